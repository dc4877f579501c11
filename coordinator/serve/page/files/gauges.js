"use strict";
/* Numbers beside the picture: rates from counters that only grow, read a few times a second. */

const put = (id, text) => {
  const el = document.getElementById(id);
  if (el.textContent !== text) el.textContent = text;
};
const bar = (id, part) => { document.getElementById(id).value = Math.max(0, Math.min(1, part || 0)); };

function bytes(n) {
  const unit = ["B", "kB", "MB", "GB", "TB"];
  let k = 0;
  for (; n >= 999.5 && k < unit.length - 1; k++) n /= 1000;
  return n.toFixed(k && n < 9.95 ? 1 : 0) + " " + unit[k];
}
const percent = (part, all) => (all > 0 ? ((100 * part) / all).toFixed(part === all || !part ? 0 : 1) + " %" : "–");

class Gauges {
  constructor(canvas) {
    this.canvas = canvas;
    this.most = 1;         /* the highest rate so far: a full bar */
    this.said = 0;
  }

  /* Experts of a frame's last step: {1: card, 2: RAM, 4: disk}. */
  lit(last) {
    for (const [name, tier] of [["card", CARD], ["ram", RAM], ["disk", DISK]]) put(name + "-now", String(last[tier]));
  }

  /* Of all uses since the page was opened; before the first, since the server's start. */
  shares(e) {
    const from = this.first && e.items > this.first.items ? this.first : { items: 0, card_items: 0, disk_items: 0 };
    const s = { all: e.items - from.items, card: e.card_items - from.card_items, disk: e.disk_items - from.disk_items };
    s.ram = s.all - s.card - s.disk;
    this.first = this.first || e;
    for (const tier of ["card", "ram", "disk"]) put(tier + "-share", percent(s[tier], s.all));
    put("g-hit", percent(s.all - s.disk, s.all));
    bar("g-hit-bar", s.all ? 1 - s.disk / s.all : 0);
    const now = performance.now();
    if (s.all && now - this.said > 5000) { /* for those who don't see it: not at every token */
      this.said = now;
      this.canvas.setAttribute("aria-label", "Experts by layer. Of those used so far " + percent(s.card, s.all) +
        " were computed on cards, " + percent(s.ram, s.all) + " in RAM, " + percent(s.disk, s.all) + " came from disk");
    }
  }

  figures(f) {
    const was = this.was, e = f.engine, seconds = was ? (f.ms - was.ms) / 1000 : 0;
    const rate = was && seconds > 0 ? (f.predicted - was.predicted) / seconds : 0;
    this.most = Math.max(this.most, rate);
    const shown = was ? (rate >= 100 ? rate.toFixed(0) : rate.toFixed(1)) : "–";
    if (rate || !this.counted) put("rate-number", rate ? shown : "–");
    this.counted = this.counted || rate > 0;
    put("rate-unit", f.busy || !this.counted ? "tokens/s" : "tokens/s, last");
    put("g-rate", shown);
    bar("g-rate-bar", rate / this.most);
    put("g-busy", f.busy + " of " + f.slots);
    bar("g-busy-bar", f.busy / f.slots);
    put("g-wait", String(f.waiting));
    this.shares(e);
    const step = was ? (e.ms - was.engine.ms) / 1000 : 0, idle = was && e.ms === was.engine.ms;
    for (const tier of ["card", "ram", "disk"])
      if (step > 0) put(tier + "-bytes", bytes((e[tier + "_bytes"] - was.engine[tier + "_bytes"]) / step));
      else if (idle && !f.busy) put(tier + "-bytes", bytes(0));
    this.processes(f.processes);
    this.was = f;
  }

  processes(list) {
    const body = document.querySelector("#processes tbody");
    while (body.rows.length > list.length) body.deleteRow(-1);
    list.forEach((p, i) => {
      const row = body.rows[i] || body.insertRow(), cells = [p.name, bytes(p.own), bytes(p.shared), p.card ? bytes(p.card) : "–"];
      cells.forEach((text, k) => {
        let cell = row.cells[k];
        if (!cell) {
          cell = document.createElement(k ? "td" : "th");
          if (!k) cell.scope = "row";
          row.append(cell);
        }
        if (cell.textContent !== text) cell.textContent = text;
      });
    });
  }
}
