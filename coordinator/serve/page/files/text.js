"use strict";
/* The part of Markdown that models write: fences, headings, lists, bold, italics, code. Made of text nodes only:
   nothing of an answer is ever read as HTML. */

function inline(to, text) {
  const mark = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*([^*\n]+(?:\*[^*\n]+\*[^*\n]*)*)\*\*|\*([^*\s][^*\n]*)\*/;
  for (let m; (m = mark.exec(text)); text = text.slice(m.index + m[0].length)) {
    to.append(text.slice(0, m.index));
    const el = document.createElement(m[1] ? "code" : m[3] ? "strong" : "em");
    if (m[1]) el.textContent = m[2];
    else inline(el, m[3] || m[4]);
    to.append(el);
  }
  to.append(text);
}

function list(lines) {
  const ordered = /^\s*\d/.test(lines[0]), el = document.createElement(ordered ? "ol" : "ul");
  if (ordered) el.start = parseInt(lines[0].trim(), 10);
  for (const line of lines) {
    const item = document.createElement("li");
    inline(item, line.replace(/^\s*(?:[-*+]|\d+[.)])\s+/, ""));
    el.append(item);
  }
  return el;
}

function renderText(to, text) {
  const out = document.createDocumentFragment(), lines = text.split("\n");
  let plain = [];
  const flush = () => {
    const block = plain.join("\n").replace(/^\n+|\n+$/g, "");
    plain = [];
    if (!block) return;
    for (const part of block.split(/\n{2,}/)) {
      const p = document.createElement("p");
      inline(p, part);
      out.append(p);
    }
  };
  for (let i = 0; i < lines.length; i++) {
    const fence = /^\s*(```+|~~~+)\s*([\w+#.-]*)/.exec(lines[i]), heading = /^(#{1,6})\s+(.*)/.exec(lines[i]);
    if (fence) {
      flush();
      const code = document.createElement("code"), pre = document.createElement("pre"), body = [];
      while (++i < lines.length && !lines[i].trim().startsWith(fence[1])) body.push(lines[i]);
      code.textContent = body.join("\n");
      if (fence[2]) pre.setAttribute("aria-label", fence[2] + " code");
      pre.tabIndex = 0;
      pre.append(code);
      out.append(pre);
    } else if (heading) {
      flush();
      const h = document.createElement("h3");
      inline(h, heading[2]);
      out.append(h);
    } else if (/^\s*(?:[-*+]|\d+[.)])\s+\S/.test(lines[i])) {
      flush();
      const items = [];
      for (; i < lines.length && /^\s*(?:[-*+]|\d+[.)])\s+\S/.test(lines[i]); i++) items.push(lines[i]);
      i--;
      out.append(list(items));
    } else {
      plain.push(lines[i]);
    }
  }
  flush();
  to.replaceChildren(out);
}
