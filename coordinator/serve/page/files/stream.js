"use strict";
/* Server-sent events over fetch, which unlike EventSource can send a key, a body, and be stopped. */

/* Calls event(name, data) for each; resolves at the end. Throws {status, message} where the server refuses. */
async function readEvents(url, options, event) {
  const answer = await fetch(url, options);
  if (!answer.ok) throw await refusal(answer);
  const reader = answer.body.getReader(), text = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += text.decode(value, { stream: true });
    const blocks = rest.split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      let name = "message", data = [];
      for (const line of block.split(/\r?\n/)) {
        if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
        else if (line.startsWith("event:")) name = line.slice(6).trim();
      }
      if (data.length) event(name, data.join("\n"));
    }
  }
}

async function refusal(answer) {
  let message = "The server answers " + answer.status + ".";
  try {
    const body = await answer.json();
    if (body.error && body.error.message) message = body.error.message;
  } catch (e) { /* no JSON: the number says it */ }
  return { status: answer.status, message };
}

/* Headers of every request. */
function headers(more) {
  const key = document.getElementById("key").value;
  return Object.assign(key ? { Authorization: "Bearer " + key } : {}, more || {});
}
