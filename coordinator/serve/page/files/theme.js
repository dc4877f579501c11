"use strict";
/* Before the first paint: the system's colours, or the ones that were chosen. */
(function () {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  function chosen() {
    try { return localStorage.getItem("conclave-theme"); } catch (e) { return null; }
  }
  function apply() {
    document.documentElement.dataset.theme = chosen() || (dark.matches ? "dark" : "light");
    window.dispatchEvent(new Event("conclave-theme"));
  }
  window.nextTheme = function () {
    const next = { "": "dark", dark: "light", light: "" }[chosen() || ""];
    try { if (next) localStorage.setItem("conclave-theme", next); else localStorage.removeItem("conclave-theme"); } catch (e) { /* stays for this view */ }
    apply();
    return next;
  };
  window.themeName = function () { return chosen() || ""; };
  dark.addEventListener("change", apply);
  apply();
})();
