"use strict";
/* The picture: a ring a layer, the first one inside, a point an expert. What is used lights up and fades. Nothing is
   drawn while nothing changes. */
const CARD = 1, RAM = 2, DISK = 4;

class Rings {
  constructor(canvas) {
    this.canvas = canvas;
    this.layers = [];      /* numbers of the layers that have experts */
    this.running = false;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    new ResizeObserver(() => this.resize()).observe(canvas);
    window.addEventListener("conclave-theme", () => this.colours());
    this.colours();
  }

  colours() {
    const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(name).trim();
    this.colour = { [CARD]: of("--card"), [RAM]: of("--ram"), [DISK]: of("--disk"), off: of("--off"), line: of("--line") };
    this.base = null;
    this.draw();
  }

  /* experts: how many each layer has. */
  shape(experts) {
    const most = Math.max(1, ...experts);
    this.experts = experts;
    this.most = most;
    this.layers = experts.map((n, i) => (n ? i : -1)).filter((i) => i >= 0);
    this.heat = new Float32Array(experts.length * most);   /* 1: just lit */
    this.tier = new Uint8Array(experts.length * most);
    this.uses = new Float32Array(experts.length * most);   /* fades slowly: what was used much lately */
    this.lit = new Set();
    this.resize();
  }

  resize() {
    const box = this.canvas.getBoundingClientRect(), scale = window.devicePixelRatio || 1;
    this.size = Math.max(1, Math.round(Math.min(box.width, box.height) * scale));
    this.canvas.width = this.canvas.height = this.size;
    this.base = null;
    this.place();
    this.draw();
  }

  place() {
    if (!this.experts) return;
    const n = this.layers.length, mid = this.size / 2, outer = this.size * 0.47, inner = outer * (n > 8 ? 0.26 : 0.34);
    this.x = new Float32Array(this.heat.length);
    this.y = new Float32Array(this.heat.length);
    this.gap = (outer - inner) / Math.max(1, n - 1 || 1);
    this.radius = this.layers.map((_, k) => (n > 1 ? inner + k * this.gap : (inner + outer) / 2));
    this.layers.forEach((layer, k) => {
      for (let e = 0; e < this.experts[layer]; e++) {
        /* each ring begins elsewhere: experts of one number have nothing in common, and make no spokes */
        const angle = ((e + (0.618 * k) % 1) / this.experts[layer]) * 2 * Math.PI - Math.PI / 2;
        this.x[layer * this.most + e] = mid + this.radius[k] * Math.cos(angle);
        this.y[layer * this.most + e] = mid + this.radius[k] * Math.sin(angle);
      }
    });
    /* a point: as large as its neighbours leave room */
    const along = (2 * Math.PI * this.radius[0]) / Math.max(...this.layers.map((l) => this.experts[l]));
    this.point = Math.max(1, Math.min(this.gap * 0.42, along * 0.8, this.size * 0.016));
    this.lamp = Math.max(this.point, this.size / 300); /* lit ones are seen, though they hide a neighbour */
  }

  /* uses: numbers (layer * most + expert) * 16 + last * 8 + tiers. Returns how many of each tier the last step had. */
  light(uses) {
    const last = { [CARD]: 0, [RAM]: 0, [DISK]: 0 };
    if (!this.experts) return last;
    for (const use of uses) {
      const at = use >> 4, tiers = use & 7, tier = tiers & DISK ? DISK : tiers & CARD ? CARD : RAM;
      if (at >= this.heat.length) continue;
      this.heat[at] = use & 8 ? 1 : Math.max(this.heat[at], 0.5);
      if (use & 8) last[tier]++;
      this.tier[at] = tier;
      this.uses[at] = Math.min(1, this.uses[at] + 0.08);
      this.lit.add(at);
    }
    this.wake();
    return last;
  }

  wake() {
    if (this.running || document.hidden) return;
    this.running = true;
    this.last = performance.now();
    requestAnimationFrame((t) => this.frame(t));
  }

  frame(now) {
    const passed = Math.min(0.2, Math.max(0, (now - this.last) / 1000)), keep = Math.exp(-passed / (this.still.matches ? 2 : 0.55)),
      slow = Math.exp(-passed / 12);
    this.last = now;
    for (const at of this.lit) {
      this.heat[at] *= keep;
      this.uses[at] *= slow;
      if (this.heat[at] < 0.02 && this.uses[at] < 0.02) {
        this.heat[at] = this.uses[at] = 0;
        this.lit.delete(at);
      } else if (this.heat[at] < 0.02) {
        this.heat[at] = 0;
      }
    }
    this.draw();
    if (this.lit.size) requestAnimationFrame((t) => this.frame(t));
    else this.running = false;
  }

  /* What does not change: rings and dark points. */
  background() {
    const base = document.createElement("canvas"), g = base.getContext("2d"), mid = this.size / 2;
    base.width = base.height = this.size;
    g.strokeStyle = this.colour.line;
    g.lineWidth = Math.max(1, this.size / 900);
    if (this.gap > 6 * g.lineWidth)
      for (const r of this.radius) {
        g.beginPath();
        g.arc(mid, mid, r, 0, 2 * Math.PI);
        g.stroke();
      }
    g.fillStyle = this.colour.off;
    const s = Math.max(1, this.point * 0.55);
    for (const layer of this.layers)
      for (let e = 0; e < this.experts[layer]; e++) {
        const at = layer * this.most + e;
        g.fillRect(this.x[at] - s / 2, this.y[at] - s / 2, s, s);
      }
    this.base = base;
  }

  draw() {
    const g = this.canvas.getContext("2d");
    if (!this.experts || !this.x || !this.size) return;
    if (!this.base) this.background();
    g.clearRect(0, 0, this.size, this.size);
    g.drawImage(this.base, 0, 0);
    for (const at of this.lit) {
      const heat = this.heat[at], s = (this.tier[at] === DISK ? 1.25 : 1) * (0.6 * this.point + (1.35 * this.lamp - 0.6 * this.point) * heat);
      g.globalAlpha = Math.min(1, Math.max(heat, this.uses[at] * 0.55));
      g.fillStyle = this.colour[this.tier[at]];
      if (s < 1.5) {
        g.fillRect(this.x[at] - s, this.y[at] - s, 2 * s, 2 * s);
        continue;
      }
      g.beginPath();
      g.arc(this.x[at], this.y[at], s, 0, 2 * Math.PI);
      g.fill();
    }
    g.globalAlpha = 1;
  }
}
