"use strict";
/* Puts the parts together: keys, buttons, what the server says about itself. */
(function () {
  const by = (id) => document.getElementById(id), message = by("message");
  const rings = new Rings(by("rings")), gauges = new Gauges(by("rings"));
  const chat = new Chat(by("log"), (busy, error) => {
    by("send").hidden = busy;
    by("stop").hidden = !busy;
    if (!busy && !error) by("state").textContent = "";
    if (busy) by("state").textContent = "Answering";
    if (!busy && document.activeElement === document.body) message.focus();
  });

  function grow() {
    message.style.height = "auto";
    message.style.height = message.scrollHeight + 2 + "px";
  }

  function send() {
    const text = message.value;
    if (!text.trim() || chat.busy()) return;
    message.value = "";
    grow();
    chat.send(text);
    by("log").scrollTop = by("log").scrollHeight;
  }

  by("composer").addEventListener("submit", (e) => { e.preventDefault(); send(); });
  message.addEventListener("input", grow);
  message.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); }
  });
  document.addEventListener("keydown", (e) => { if (e.key === "Escape" && chat.busy()) chat.stop(); });
  by("stop").addEventListener("click", () => { chat.stop(); message.focus(); });
  by("fresh").addEventListener("click", () => { chat.clear(); message.focus(); });

  function nameTheme() {
    const name = { "": "as the system has them", dark: "dark", light: "light" }[themeName()];
    by("theme").setAttribute("aria-label", "Colours: " + name);
    by("theme").title = "Colours: " + name;
  }
  by("theme").addEventListener("click", () => { nextTheme(); nameTheme(); });
  nameTheme();

  const narrow = matchMedia("(max-width: 820px)");
  function picture(on) {
    by("picture").hidden = !on;
    by("picture-toggle").setAttribute("aria-expanded", String(on));
    document.querySelector("main").classList.toggle("narrow", !on);
    if (on) watch();
    else unwatch();
  }
  by("picture-toggle").addEventListener("click", () => picture(by("picture").hidden));

  /* ---- the server ---- */
  let watching = null; /* stops the stream of lights */

  function event(name, data) {
    const d = JSON.parse(data);
    if (name === "shape") rings.shape(d.experts);
    else if (name === "lit") gauges.lit(rings.light(d.used));
    else if (name === "figures") gauges.figures(d);
  }

  /* Lights, as long as the picture is open and the page is looked at. */
  async function watch() {
    if (watching || by("picture").hidden || document.hidden) return;
    const mine = (watching = new AbortController());
    let wait = 500;
    while (!mine.signal.aborted) {
      try {
        await readEvents("routes", { headers: headers(), signal: mine.signal }, (name, data) => { wait = 500; event(name, data); });
      } catch (e) { /* not there yet, or no more: once again a little later */ }
      if (!mine.signal.aborted) await new Promise((done) => setTimeout(done, wait));
      wait = Math.min(10000, wait * 2);
    }
  }
  function unwatch() {
    if (watching) watching.abort();
    watching = null;
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) unwatch();
    else watch();
  });
  by("key").addEventListener("change", () => { unwatch(); watch(); about(); });

  async function ready() {
    for (let wait = 500; ; wait = Math.min(3000, wait * 1.5)) {
      try {
        const answer = await fetch("health");
        if (answer.ok) break;
        by("state").textContent = "Loading the model";
      } catch (e) { by("state").textContent = "The server cannot be reached"; }
      await new Promise((done) => setTimeout(done, wait));
    }
    by("state").textContent = "";
  }

  async function about() {
    try {
      const answer = await fetch("v1/models", { headers: headers() });
      if (answer.ok) by("model").textContent = (await answer.json()).data[0].id;
    } catch (e) { /* the name is not needed */ }
  }

  if (narrow.matches && innerHeight < 600) picture(false);
  message.focus();
  ready().then(() => { about(); watch(); });
})();
