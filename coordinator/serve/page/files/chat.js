"use strict";
/* The conversation: what was said, the answer that is being written, and how it is stopped. */

class Chat {
  constructor(log, state) {
    this.log = log;
    this.state = state;
    this.messages = [];    /* as the API has them */
    this.stopper = null;   /* of the answer in work */
  }

  busy() { return !!this.stopper; }

  clear() {
    this.stop();
    this.messages = [];
    for (const el of [...this.log.querySelectorAll("article")]) el.remove();
    document.getElementById("welcome").hidden = false;
  }

  stop() { if (this.stopper) this.stopper.abort(); }

  article(kind, name) {
    const el = document.createElement("article"), body = document.createElement("div"), title = document.createElement("h2");
    document.getElementById("welcome").hidden = true;
    el.className = kind;
    title.textContent = name;
    if (kind === "user") title.className = "hidden";
    body.className = "body";
    el.append(title, body);
    this.log.append(el);
    return { el, body };
  }

  request() {
    const value = (id) => document.getElementById(id).value.trim(), r = { messages: [], stream: true, stream_options: { include_usage: true } };
    if (value("system")) r.messages.push({ role: "system", content: value("system") });
    r.messages.push(...this.messages);
    if (value("temperature")) r.temperature = Number(value("temperature"));
    if (value("max-tokens")) r.max_tokens = Number(value("max-tokens"));
    if (value("thinking")) r.chat_template_kwargs = { enable_thinking: value("thinking") === "on", thinking: value("thinking") === "on" };
    r.seed = value("seed") ? Number(value("seed")) : crypto.getRandomValues(new Uint32Array(1))[0];
    return r;
  }

  async send(text) {
    this.messages.push({ role: "user", content: text });
    this.article("user", "You").body.textContent = text;
    await this.answer();
  }

  async again() {
    if (this.busy() || !this.messages.length) return;
    if (this.messages[this.messages.length - 1].role === "assistant") this.messages.pop();
    const last = [...this.log.querySelectorAll("article:not(.user)")].pop();
    if (last) last.remove();
    await this.answer();
  }

  async answer() {
    const { el, body } = this.article("assistant busy", "Answer"), request = this.request(), start = performance.now();
    const a = { content: "", reasoning: "", tokens: 0, first: 0, timings: null, usage: null, why: "" };
    this.stopper = new AbortController();
    this.state(true);
    el.setAttribute("aria-busy", "true");
    try {
      await readEvents("v1/chat/completions", {
        method: "POST", body: JSON.stringify(request), headers: headers({ "Content-Type": "application/json" }), signal: this.stopper.signal
      }, (name, data) => { if (data !== "[DONE]") this.take(a, JSON.parse(data), start, body); });
    } catch (e) {
      if (e.name === "AbortError") a.why = "stopped";
      else this.failed(a, e);
    }
    this.paint(a, body, true);
    el.classList.remove("busy");
    el.setAttribute("aria-busy", "false");
    this.stopper = null;
    if (a.error) this.refused(el, a);
    if (a.content || a.reasoning) this.messages.push(Object.assign({ role: "assistant", content: a.content }, a.reasoning ? { reasoning_content: a.reasoning } : {}));
    else if (a.error) this.messages.pop(); /* it was not answered: it may be asked again */
    this.foot(el, a, request);
    this.state(false, a.error);
  }

  take(a, chunk, start, body) {
    if (chunk.error) throw { message: chunk.error.message };
    if (chunk.usage) a.usage = chunk.usage;
    if (chunk.timings) a.timings = chunk.timings;
    const choice = chunk.choices && chunk.choices[0];
    if (!choice) return;
    if (choice.finish_reason) a.why = choice.finish_reason;
    const more = (choice.delta && choice.delta.content) || "", thought = (choice.delta && choice.delta.reasoning_content) || "";
    if (!more && !thought) return;
    if (!a.first) a.first = performance.now() - start;
    a.content += more;
    a.reasoning += thought;
    a.tokens++;
    this.paint(a, body, false);
  }

  failed(a, e) {
    a.error = e.message || String(e);
    a.status = e.status;
    if (e instanceof TypeError) a.error = "The server cannot be reached.";
  }

  refused(el, a) {
    const p = document.createElement("p");
    el.classList.add("error");
    p.textContent = a.status === 401 ? "The server asks for an API key: give it in the settings." : a.error;
    el.querySelector(".body").append(p);
    if (a.status === 401) {
      document.getElementById("settings").open = true;
      document.getElementById("key").focus();
    }
  }

  /* Once a frame at most; the log follows where its reader is at its end. */
  paint(a, body, now) {
    a.body = body;
    if (now) { cancelAnimationFrame(a.asked || 0); this.show(a); return; }
    if (!a.asked) a.asked = requestAnimationFrame(() => { a.asked = 0; this.show(a); });
  }

  show(a) {
    const log = this.log, follows = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    if (!a.text) {
      a.text = document.createElement("div");
      a.text.className = "text";
      a.body.append(a.text);
    }
    if (a.reasoning && !a.thought) {
      a.thought = document.createElement("details");
      a.thought.className = "thought";
      a.thought.open = true;
      a.thought.append(Object.assign(document.createElement("summary"), { textContent: "Thought" }), document.createElement("div"));
      a.body.prepend(a.thought);
    }
    if (a.thought && a.thoughtShown !== a.reasoning.length) renderText(a.thought.lastChild, a.reasoning);
    if (a.thought && !a.shown && a.content) a.thought.open = false;
    a.thoughtShown = a.reasoning.length;
    if (a.shown !== a.content.length) renderText(a.text, a.content);
    a.shown = a.content.length;
    if (follows) log.scrollTop = log.scrollHeight;
  }

  button(name, label, act) {
    const b = document.createElement("button");
    b.type = "button";
    b.textContent = name;
    b.setAttribute("aria-label", label);
    b.addEventListener("click", () => act(b));
    return b;
  }

  /* What it took, and how to have it again. */
  foot(el, a, request) {
    const foot = document.createElement("p"), t = a.timings, said = [];
    foot.className = "foot";
    const n = t ? t.predicted_n : a.usage ? a.usage.completion_tokens : a.tokens;
    if (n) said.push(n + (n === 1 ? " token" : " tokens"));
    if (t && t.predicted_per_second) said.push(t.predicted_per_second.toFixed(1) + " tokens/s");
    if (a.first) said.push("first after " + (a.first < 995 ? a.first.toFixed(0) + " ms" : (a.first / 1000).toFixed(1) + " s"));
    if (t && t.cache_n) said.push("reused " + t.cache_n + " of " + (t.cache_n + t.prompt_n) + " prompt tokens");
    said.push({ stop: "", length: "cut at its limit", stopped: "stopped" }[a.why] || "");
    for (const text of said) if (text) foot.append(Object.assign(document.createElement("span"), { textContent: text }));
    if (a.content) foot.append(this.button("Copy", "Copy this answer", (b) => copy(b, a.content)));
    foot.append(this.button("Copy request", "Copy a command that gets this answer again, with its seed", (b) => copy(b, command(request))),
      this.button("Again", "Answer once more", () => this.again()));
    el.append(foot);
    this.log.scrollTop = this.log.scrollHeight;
  }
}

/* The request for a shell: the same bytes come back, whoever sends it. */
function command(request) {
  const r = Object.assign({}, request, { stream: false });
  delete r.stream_options;
  return "curl " + location.origin + "/v1/chat/completions -H 'Content-Type: application/json' -d '" +
    JSON.stringify(r).replace(/'/g, "'\\''") + "'";
}

async function copy(button, text) {
  const was = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch (e) {
    const area = document.createElement("textarea"); /* no clipboard without a secure page */
    area.value = text;
    document.body.append(area);
    area.select();
    button.textContent = document.execCommand("copy") ? "Copied" : "No clipboard";
    area.remove();
    button.focus();
  }
  setTimeout(() => { button.textContent = was; }, 1500);
}
