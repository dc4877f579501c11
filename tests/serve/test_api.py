#!/usr/bin/env python3
"""conclave serve: what each API answers, in one piece and as a stream, against conclave run's text for the same
prompt; what is refused and how it is said."""
import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, "tests/lib")
from conclave import Checks, conclave  # noqa: E402
from server import PLAIN, STORY, Server  # noqa: E402

check = Checks()
CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"


def run(prompt, n, *args):
    return conclave("run", "-m", STORY, "-p", prompt, "-n", n, "--no-display-prompt", *args).stdout.decode()


def user(text):
    return [{"role": "user", "content": text}]


def refused(what, answer, status, *words, kind=None, param=None):
    got, body = answer
    error = body.get("error", {}) if isinstance(body, dict) else {}
    check(got == status and all(w in error.get("message", "") for w in words), "%s: %s %s" % (what, got, body))
    if kind:
        check(error.get("type") == kind, "%s: type %s, wanted %s" % (what, error.get("type"), kind))
    if param:
        check(error.get("param") == param, "%s: param %s, wanted %s" % (what, error.get("param"), param))


PROMPT = "Velvet was a busy hedgehog"
LONG = " ".join(["Velvet was a busy hedgehog who lived in a snug den."] * 12)
GREEDY = {"temperature": 0}
first = run(PROMPT, 12, "--temp", 0)
seeded = run(PROMPT, 12, "--temp", 0.9, "--seed", 7)

with Server("-c", 512, "--parallel", 3) as s:
    # --- one piece ---
    code, a = s.post(CHAT, dict(GREEDY, messages=user(PROMPT), max_tokens=12, unknown_member={"x": 1}))
    c = a["choices"][0]
    check(code == 200 and c["message"] == {"role": "assistant", "content": first} and c["finish_reason"] == "length" and
          c["logprobs"] is None and a["object"] == "chat.completion", "chat: %s" % a)
    check(a["usage"]["completion_tokens"] == 12 and a["usage"]["total_tokens"] == a["usage"]["prompt_tokens"] + 12, "usage: %s" % a["usage"])
    t = a["timings"]
    check(all(k in t for k in "cache_n prompt_n prompt_ms prompt_per_token_ms prompt_per_second predicted_n predicted_ms "
              "predicted_per_token_ms predicted_per_second queue_ms ram_hit_rate bytes_read".split()) and
          t["cache_n"] + t["prompt_n"] == a["usage"]["prompt_tokens"], "timings: %s" % t)
    long = dict(GREEDY, messages=user(LONG), max_tokens=12)
    a, b = s.post(CHAT, long)[1], s.post(CHAT, long)[1]
    check(b["choices"] == a["choices"] and b["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, "a second time: %s" % b)
    code, a = s.post(TEXT, dict(prompt=PROMPT, max_tokens=12, temperature=0.9, seed=7))
    check(a["choices"][0]["text"] == seeded, "completions: %s, wanted %r" % (a, seeded))
    code, a = s.post(TEXT, dict(GREEDY, prompt=[PROMPT, "A fox"], max_tokens=4, n=2, echo=True))
    texts = [x["text"] for x in a["choices"]]
    check(len(texts) == 4 and texts[0] == texts[1] == PROMPT + run(PROMPT, 4, "--temp", 0) and
          texts[2] == texts[3] == "A fox" + run("A fox", 4, "--temp", 0), "prompts, n, echo: %s" % texts)
    code, a = s.post(TEXT, dict(prompt=PROMPT, max_tokens=40, temperature=0.9, seed=7, n=2))
    check(a["choices"][0]["text"].startswith(seeded) and a["choices"][1]["text"] != seeded, "answers of one seed differ: %s" % a["choices"])
    ids = s.post("/tokenize", {"content": PROMPT})[1]["tokens"]
    code, a = s.post("/completion", dict(GREEDY, prompt=ids, n_predict=12, return_tokens=True))
    check(a["content"] == first and a["stop_type"] == "limit" and len(a["tokens"]) == 12 and a["tokens_evaluated"] == len(ids) and
          a["generation_settings"]["temperature"] == 0, "/completion: %s" % a)
    check(s.post("/detokenize", {"tokens": a["tokens"]})[1]["content"] == first, "ids of the answer")
    pieces = s.post("/tokenize", {"content": PROMPT, "with_pieces": True})[1]["tokens"]
    check("".join(p["piece"] for p in pieces) == PROMPT and [p["id"] for p in pieces] == ids, "pieces: %s" % pieces)
    code, a = s.post(RESPONSES, dict(GREEDY, input=PROMPT, max_output_tokens=12))
    check(a["status"] == "incomplete" and a["output"][0]["content"][0]["text"] == first and a["usage"]["output_tokens"] == 12 and
          a["incomplete_details"] == {"reason": "max_output_tokens"}, "responses: %s" % a)
    code, a = s.post(MESSAGES, dict(GREEDY, messages=[{"role": "user", "content": [{"type": "text", "text": PROMPT}]}], max_tokens=12))
    check(a["content"] == [{"type": "text", "text": first}] and a["stop_reason"] == "max_tokens" and a["usage"]["output_tokens"] == 12,
          "messages: %s" % a)
    check(s.post(MESSAGES + "/count_tokens", {"messages": user(PROMPT)})[1] == {"input_tokens": len(ids)}, "count_tokens")
    check(s.post("/apply-template", {"messages": user(PROMPT)})[1] == {"prompt": PROMPT}, "apply-template")

    # --- streams say the same ---
    ev = s.stream(CHAT, dict(GREEDY, messages=user(PROMPT), max_tokens=12, stream_options={"include_usage": True}))
    chunks = [d for _, d in ev[:-1]]
    check(ev[-1][1] == "[DONE]" and chunks[0]["choices"][0]["delta"]["role"] == "assistant" and
          "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks[:-1]) == first and
          chunks[-2]["choices"][0]["finish_reason"] == "length" and "timings" in chunks[-2] and
          chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 12 and len({c["id"] for c in chunks}) == 1,
          "chat's stream: %s" % ev)
    check(all(c["choices"] for c in [d for _, d in s.stream(CHAT, dict(messages=user("A"), max_tokens=2))[:-1]]),
          "a chunk without choices that nobody asked for")
    ev = s.stream(TEXT, dict(GREEDY, prompt=PROMPT, max_tokens=12, n=2))
    for i in range(2):
        check("".join(c["choices"][0]["text"] for _, c in ev[:-1] if c["choices"][0]["index"] == i) == first, "completions' stream: %s" % ev)
    ev = s.stream("/completion", dict(GREEDY, prompt=PROMPT, n_predict=12, return_progress=True))
    check("".join(d["content"] for _, d in ev if "content" in d) == first and ev[-1][1]["stop"] is True, "/completion's stream: %s" % ev)
    check(any("prompt_progress" in d for _, d in ev), "progress: %s" % ev)
    ev = s.stream(RESPONSES, dict(GREEDY, input=PROMPT, max_output_tokens=12))
    check([d["sequence_number"] for _, d in ev] == list(range(len(ev))) and all(n == d["type"] for n, d in ev) and
          "".join(d["delta"] for n, d in ev if n == "response.output_text.delta") == first and
          ev[-1][1]["response"]["output"][0]["content"][0]["text"] == first and ev[0][0] == "response.created", "responses' stream: %s" % ev)
    ev = s.stream(MESSAGES, dict(GREEDY, messages=user(PROMPT), max_tokens=12))
    check([n for n, _ in ev if n != "content_block_delta"] == ["message_start", "content_block_start", "content_block_stop",
                                                               "message_delta", "message_stop"] and
          "".join(d["delta"]["text"] for n, d in ev if n == "content_block_delta") == first, "messages' stream: %s" % ev)

    # --- stop texts: across tokens, not given out, the same in streams ---
    for stop in (" mushroom", "in a ho", ["zz", "big"], "ved in a home under a b", "w"):
        cut = min(first.find(x) for x in ([stop] if isinstance(stop, str) else stop) if x in first)
        code, a = s.post(CHAT, dict(GREEDY, messages=user(PROMPT), max_tokens=12, stop=stop))
        check(a["choices"][0]["message"]["content"] == first[:cut] and a["choices"][0]["finish_reason"] == "stop", "stop %r: %s" % (stop, a))
        ev = s.stream(CHAT, dict(GREEDY, messages=user(PROMPT), max_tokens=12, stop=stop, stream_options={"include_usage": True}))
        check("".join(c["choices"][0]["delta"].get("content") or "" for _, c in ev[:-2]) == first[:cut] and
              ev[-2][1]["usage"]["completion_tokens"] == a["usage"]["completion_tokens"], "stop %r in a stream: %s" % (stop, ev))
    code, a = s.post("/completion", dict(GREEDY, prompt=PROMPT, n_predict=12, stop=["home"]))
    check(a["stop_type"] == "word" and a["stopping_word"] == "home", "stopping word: %s" % a)
    code, a = s.post(MESSAGES, dict(GREEDY, messages=user(PROMPT), max_tokens=12, stop_sequences=["home"]))
    check(a["stop_reason"] == "stop_sequence" and a["stop_sequence"] == "home", "stop sequence: %s" % a)

    # --- probabilities ---
    code, a = s.post(CHAT, dict(GREEDY, messages=user(PROMPT), max_tokens=5, logprobs=True, top_logprobs=3))
    p = a["choices"][0]["logprobs"]["content"]
    check(len(p) == 5 and "".join(x["token"] for x in p) == a["choices"][0]["message"]["content"] and
          all(len(x["top_logprobs"]) == 3 and x["top_logprobs"][0]["token"] == x["token"] and x["logprob"] <= 0 and
              bytes(x["bytes"]).decode() == x["token"] for x in p), "logprobs: %s" % p)
    ev = s.stream(CHAT, dict(GREEDY, messages=user(PROMPT), max_tokens=5, logprobs=True, top_logprobs=3))
    q = [x for _, c in ev[:-1] if c["choices"][0]["logprobs"] for x in c["choices"][0]["logprobs"]["content"]]
    check(q == p, "logprobs in a stream: %s" % q)
    code, a = s.post(TEXT, dict(GREEDY, prompt=PROMPT, max_tokens=5, logprobs=2))
    q = a["choices"][0]["logprobs"]
    check(q["token_logprobs"] == [x["logprob"] for x in p] and all(len(x) == 2 for x in q["top_logprobs"]) and q["text_offset"][0] == 0,
          "the older form: %s" % q)
    biased = s.post(CHAT, dict(GREEDY, messages=user(PROMPT), max_tokens=1, logit_bias={str(p[0]["id"]): -100}))[1]
    check(biased["choices"][0]["message"]["content"] == p[0]["top_logprobs"][1]["token"], "logit_bias: %s" % biased)
    check(s.post("/completion", dict(GREEDY, prompt=PROMPT, n_predict=1, logit_bias=[[p[0]["token"], False]]))[1]["content"] ==
          p[0]["top_logprobs"][1]["token"], "logit_bias as pairs")

    # --- grammars ---
    code, a = s.post(CHAT, dict(messages=user(PROMPT), max_tokens=200, seed=3, response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": {
            "type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["red", "blue"]}}, "required": ["a", "b"],
            "additionalProperties": False}}}))
    if check(code == 200, "schema: %s" % a) and a["choices"][0]["finish_reason"] == "stop":
        v = json.loads(a["choices"][0]["message"]["content"])
        check(isinstance(v["a"], int) and v["b"] in ("red", "blue") and len(v) == 2, "schema: %s" % v)
    code, a = s.post("/completion", dict(prompt=PROMPT, n_predict=20, grammar='root ::= "yes" | "no"'))
    check(a["content"] in ("yes", "no") and a["stop_type"] == "eos", "GBNF: %s" % a)
    check(s.post(RESPONSES, dict(input=PROMPT, text={"format": {"type": "json_schema", "name": "x", "schema": {"const": 5}}}))[1]
          ["output"][0]["content"][0]["text"] == "5", "a schema in a response")
    refused("a bad grammar", s.post("/completion", dict(prompt="x", grammar="root ::= (")), 400, "grammar: line 1", param="grammar")

    # --- about the server ---
    check(s.get("/health") == (200, {"status": "ok"}) and s.get("/v1/health")[0] == 200, "health")
    m = s.get("/v1/models")[1]
    check(m["object"] == "list" and m["data"][0]["id"] == "story-moe-q4_k_m" and m["data"][0]["meta"]["n_ctx"] == 512, "models: %s" % m)
    check(s.get("/v1/models/any")[1] == m["data"][0], "one model")
    check(s.get("/props")[1]["total_slots"] == 3 and len(s.get("/slots")[1]) == 3, "props, slots")
    text = s.get("/metrics")[1]
    check(all(("# TYPE conclave:" + x) in text for x in ("prompt_tokens_total counter", "requests_deferred gauge")) and
          s.metrics()["tokens_predicted_total"] > 100, "metrics: %s" % text[:300])
    check(s.free(), "slots are in use")
    text = s.get("/metrics")[1]
    ram = re.search(r'^conclave:experts_total\{tier="ram"\} (\d+)$', text, re.M)
    check(ram and int(ram.group(1)) > 1000 and re.search(r'^conclave:worker_items_total\{worker=".*"\} \d{4,}$', text, re.M), "metrics: %s" % text[-2000:])

    # --- refusals ---
    for what, path, body, status, words, param in (
            ("no JSON", CHAT, "{", 400, ["the body"], None),
            ("no object", CHAT, "[]", 400, ["object"], None),
            ("no messages", CHAT, {}, 400, ["messages"], "messages"),
            ("empty messages", CHAT, {"messages": []}, 400, ["messages"], "messages"),
            ("messages' type", CHAT, {"messages": "x"}, 400, ["an array is wanted, not a string"], "messages"),
            ("a message's type", CHAT, {"messages": [5]}, 400, ["messages[0]"], "messages"),
            ("an image", CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 400,
             ["image_url"], "messages"),
            ("temperature", CHAT, {"messages": user("x"), "temperature": "hot"}, 400, ["a number is wanted"], "temperature"),
            ("max_tokens", CHAT, {"messages": user("x"), "max_tokens": 1.5}, 400, ["whole number"], "max_tokens"),
            ("stream", CHAT, {"messages": user("x"), "stream": "yes"}, 400, ["boolean"], "stream"),
            ("stop", CHAT, {"messages": user("x"), "stop": [1]}, 400, ["stop"], "stop"),
            ("n", CHAT, {"messages": user("x"), "n": 1000}, 400, ["1 to 64"], "n"),
            ("seed", CHAT, {"messages": user("x"), "seed": []}, 400, ["seed"], "seed"),
            ("top_logprobs alone", CHAT, {"messages": user("x"), "top_logprobs": 2}, 400, ["logprobs must be true"], "top_logprobs"),
            ("bias", CHAT, {"messages": user("x"), "logit_bias": {"99999": 1}}, 400, ["99999"], "logit_bias"),
            ("a sampler", CHAT, {"messages": user("x"), "mirostat": 2}, 400, ["mirostat"], "mirostat"),
            ("tools", CHAT, {"messages": user("x"), "tools": [{}]}, 400, ["tools[0]"], "tools"),
            ("forced tools", CHAT, {"messages": user("x"), "tools": [{"type": "function", "function": {"name": "f"}}],
                                    "tool_choice": "required"}, 501, ["tool_choice"], "tool_choice"),
            ("a format", CHAT, {"messages": user("x"), "response_format": {"type": "xml"}}, 400, ["json_schema"], "response_format"),
            ("kwargs", CHAT, {"messages": user("x"), "chat_template_kwargs": []}, 400, ["object"], "chat_template_kwargs"),
            ("no prompt", TEXT, {}, 400, ["prompt"], "prompt"),
            ("an id", TEXT, {"prompt": [99999]}, 400, ["99999"], "prompt"),
            ("a suffix", TEXT, {"prompt": "x", "suffix": "y"}, 400, ["suffix"], "suffix"),
            ("a stored response", RESPONSES, {"input": "x", "previous_response_id": "y"}, 400, ["stored"], "previous_response_id"),
            ("an item", RESPONSES, {"input": [{"type": "computer_call"}]}, 400, ["computer_call"], "input"),
            ("embeddings", "/v1/embeddings", {"input": "x"}, 501, ["supported"], None),
            ("a slot", "/slots/0?action=save", {}, 501, ["supported"], None),
            ("tokenize", "/tokenize", {"content": 5}, 400, ["content"], "content"),
            ("detokenize", "/detokenize", {"tokens": [-1]}, 400, ["tokens[0]"], "tokens"),
            ("a long prompt", TEXT, {"prompt": "word " * 2000}, 400, ["512"], None)):
        refused(what, s.post(path, body), status, *words, param=param)
    code, a = s.post(TEXT, {"prompt": "word " * 2000})
    check(a["error"]["type"] == "exceed_context_size_error" and sorted(a["error"]) == ["code", "message", "param", "type"], "four keys: %s" % a)
    code, a = s.post(MESSAGES, {"messages": user("x")})
    check(code == 400 and a["type"] == "error" and a["error"]["type"] == "invalid_request_error" and a["request_id"].startswith("req-"),
          "Anthropic's form: %s" % a)
    refused("too many values", s.post("/detokenize", b'{"tokens":[' + b"1," * (2 << 20) + b"1]}"), 400, "values")
    check(s.free(), "slots are in use: %s" % s.metrics())

    # --- a client that goes ---
    before = s.metrics()["jobs_cancelled_total"]
    for i in range(3):
        c = s.connect()
        c.request("POST", TEXT, json.dumps({"prompt": PROMPT, "ignore_eos": True, "max_tokens": 450, "n": 4, "stream": i == 0}))
        time.sleep(0.05)
        c.sock.close() if i else c.close()
    check(s.free() and s.metrics()["jobs_cancelled_total"] - before >= 9, "slots after clients have gone: %s" % s.metrics())
check(s.end() == 0 and PROMPT not in s.log and "tests/demo" not in s.log, "the log: %s" % s.log[-2000:])

# --- a conversation's state comes from the rendered prompt -----------------------------------------
OPENS = PLAIN + "{% if add_generation_prompt and enable_thinking is not false %}<think>\n{% endif %}"
with Server("-c", 256, template=OPENS) as s:
    code, a = s.post(CHAT, dict(GREEDY, messages=user(PROMPT), max_tokens=8))
    m = a["choices"][0]["message"]
    check(m["content"] == "" and m["reasoning_content"] == run(PROMPT + "<think>\n", 8, "--temp", 0).lstrip(), "a thought that the prompt opens: %s" % a)
    ev = s.stream(CHAT, dict(GREEDY, messages=user(PROMPT), max_tokens=8))
    check("".join(c["choices"][0]["delta"].get("reasoning_content") or "" for _, c in ev[:-1]) == m["reasoning_content"], "in a stream: %s" % ev)
    for off in ({"enable_thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}):
        code, a = s.post(CHAT, dict(GREEDY, messages=user(PROMPT), max_tokens=8, **off))
        check(a["choices"][0]["message"] == {"role": "assistant", "content": run(PROMPT, 8, "--temp", 0)}, "no thought with %s: %s" % (off, a))
    code, a = s.post(MESSAGES, dict(GREEDY, messages=user(PROMPT), max_tokens=8))
    check([b["type"] for b in a["content"]][0] == "thinking", "a thought as a block: %s" % a)
    code, a = s.post(RESPONSES, dict(GREEDY, input=PROMPT, max_output_tokens=8))
    check(a["output"][0]["type"] == "reasoning", "a thought as an item: %s" % a)
    ev = s.stream(RESPONSES, dict(GREEDY, input=PROMPT, max_output_tokens=8))
    check(any(n == "response.reasoning_text.delta" for n, _ in ev), "a thought in a response's stream: %s" % [n for n, _ in ev])

# what messages become: null contents, arguments as text or map, ids as the template wants them, roles
HERMES = ("{%- for m in messages %}[{{ m.role }}:{{ m.content }}{% if m.reasoning_content %}|{{ m.reasoning_content }}{% endif %}"
          "{% for c in m.tool_calls or [] %}<tool_call>{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}"
          "{% if m.tool_call_id %}@{{ m.tool_call_id }}{% endif %}]{% endfor %}"
          "{% for t in tools or [] %}{{ t.function.name }};{% endfor %}")
MISTRAL = HERMES.replace("<tool_call>", "[TOOL_CALLS]")
CALLS = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
         {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [
             {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1.0}"}},
             {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": {"y": [None]}}}]},
         {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "one"}]},
         {"role": "tool", "tool_call_id": "call_2", "content": "two"}]
with Server("-c", 256, template=HERMES) as s:
    code, a = s.post("/apply-template", {"messages": CALLS})
    check(a == {"prompt": "[system:Be kind.][user:ab][assistant:|hm<tool_call>call_1 f {\"x\": 1.0}<tool_call>call_2 g {\"y\": [null]}]"
                "[tool:one@call_1][tool:two@call_2]"}, "messages: %s" % a)
    refused("arguments that are no JSON", s.post("/apply-template", {"messages": [
        {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{"}}]}]}), 400, "messages[0]")
    tool = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
    code, a = s.post(MESSAGES + "/count_tokens", {"system": "S", "tools": [tool], "messages": [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "t"},
                                          {"type": "tool_use", "id": "i1", "name": "f", "input": {"x": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i1", "content": "r"}, {"type": "text", "text": "more"}]}]})
    wanted = s.post("/tokenize", {"content": "[system:S][user:u][assistant:t|hm<tool_call>i1 f {\"x\": 1}][tool:r@i1][user:more]f;"})[1]["tokens"]
    check(a == {"input_tokens": len(wanted)}, "Anthropic's blocks: %s, wanted %d" % (a, len(wanted)))
with Server("-c", 256, template=MISTRAL) as s:
    text = s.post("/apply-template", {"messages": CALLS})[1]["prompt"]
    made, used = re.findall(r"\[TOOL_CALLS\](\w+) ", text), re.findall(r"@(\w+)", text)
    check(len(made) == 2 and made == used and all(len(x) == 9 for x in made), "ids of nine letters: %s" % text)

# --- settings, loading, the end ------------------------------------------------------------------
with tempfile.TemporaryDirectory() as d:
    conf = os.path.join(d, "c.toml")
    with open(conf, "w") as f:
        f.write("# all\nctx-size = 300\n[run]\nnonsense here = 1\n[serve]\nalias = \"from file\" # name\nparallel=2\napi-key = ['one', \"two\"]\n")
    with Server("--config", conf, "--alias", "typed", env={"CONCLAVE_ARG_PARALLEL": "1", "CONCLAVE_ARG_NO_SLOTS": "true"}) as s:
        check(s.get("/health")[0] == 200 and s.get("/v1/models")[0] == 401, "without a key")
        key = {"Authorization": "Bearer two"}
        m = s.ask("GET", "/v1/models", headers=key)[1]
        p = s.ask("GET", "/props", headers=key)[1]
        check(m["data"][0]["id"] == "typed" and p["total_slots"] == 1 and p["default_generation_settings"]["n_ctx"] == 300 and
              s.ask("GET", "/slots", headers=key)[0] == 404, "settings: %s %s" % (m, p))
    check("two" not in s.log, "a key in the log")
    for bad, words in (("[serve]\nport = x", ["--port x"]), ("prot = 1", ["line 1", "prot"]), ("host", ["line 1", "name = value"]),
                       ("alias = \"x", ["line 1", "quotes"]), ("no-slots = 5", ["true or false"])):
        with open(conf, "w") as f:
            f.write(bad)
        p = conclave("serve", "-m", STORY, "--config", conf)
        check(p.returncode == 2 and all(w in p.stderr.decode() for w in words), "%r: %s" % (bad, p.stderr))
p = conclave("serve", "-m", STORY, "--host", "256.1.1.1")
check(p.returncode == 1 and b"cannot listen" in p.stderr, "an address that is none: %s" % p.stderr)

# --- a full queue, an answer's time ----------------------------------------------------------------
with Server("-c", 1024, "--parallel", 1, "--queue", 2, "--answer-timeout", 1, "-n", 900) as s:
    whole = dict(GREEDY, prompt=PROMPT, ignore_eos=True, max_tokens=100000)
    refused("six answers where three have room", s.post(TEXT, dict(whole, n=6)), 429, "wait already")
    check(s.ask("POST", TEXT, dict(whole, n=6))[2].get("Retry-After") == "1", "Retry-After")
    check(s.free(), "slots after a refusal: %s" % s.metrics())
    start = time.time()
    code, a = s.post(TEXT, dict(whole, n=2))
    tokens, took = a["usage"]["completion_tokens"], time.time() - start
    check(all(c["finish_reason"] == "length" for c in a["choices"]) and tokens <= 1800 and took < 30 and s.free(),
          "an answer's time and the server's -n: %d tokens, %.1f s" % (tokens, took))

# --- llama-server's names, TLS -------------------------------------------------------------------
with tempfile.TemporaryDirectory() as d:
    cert, key = os.path.join(d, "cert"), os.path.join(d, "key")
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                           "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], capture_output=True)
    check(made.returncode == 0, "openssl: %s" % made.stderr)
    with Server("-c", 256, "-np", 2, "--jinja", "--ssl-cert-file", cert, "--ssl-key-file", key, "--threads-http", 8) as s:
        c = http.client.HTTPSConnection("localhost", s.port, context=ssl.create_default_context(cafile=cert), timeout=60)
        c.request("POST", TEXT, json.dumps(dict(GREEDY, prompt=PROMPT, max_tokens=12)))
        a = json.loads(c.getresponse().read())
        check(a["choices"][0]["text"] == first, "over TLS: %s" % a)
        c.request("POST", TEXT, json.dumps({"prompt": PROMPT, "ignore_eos": True, "max_tokens": 200, "n": 2}))
        time.sleep(0.05)
        c.close()
        for junk in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"):
            r = s.raw()
            r.sendall(junk)
            r.close()
        end = time.time() + 5
        c = http.client.HTTPSConnection("localhost", s.port, context=ssl.create_default_context(cafile=cert), timeout=60)
        while time.time() < end:
            c.request("GET", "/metrics")
            m = dict(re.findall(r"^conclave:(\w+) (\S+)$", c.getresponse().read().decode(), re.M))
            if m["requests_processing"] == "0" and m["http_connections"] == "1":
                break
            time.sleep(0.05)
        check(m["requests_processing"] == "0" and m["http_connections"] == "1" and m["jobs_cancelled_total"] == "2", "clients over TLS that go: %s" % m)
    check("--parallel 2" in s.log and "one thread serves all clients" in s.log, "llama-server's names: %s" % s.log)
    for args, words in ((("--tls-cert", cert), "go together"), (("--tls-cert", key, "--tls-key", key), "no certificate"),
                        (("--tls-cert", cert, "--tls-key", cert), "no key")):
        p = conclave("serve", "-m", STORY, "--port", 0, *args)
        check(p.returncode in (1, 2) and words in p.stderr.decode(), "%s: %s" % (args, p.stderr))
for args, words in ((("--embeddings",), "not supported"), (("--api-key", ","), "holds no key"), (("--parallel", 0), "1 to 256")):
    p = conclave("serve", "-m", STORY, "--port", 0, *args)
    check(p.returncode in (1, 2) and words in p.stderr.decode(), "%s: %s" % (args, p.stderr))

with Server("-c", 512, group=True) as s:
    c = s.connect()
    c.request("POST", TEXT, json.dumps({"prompt": PROMPT, "ignore_eos": True, "max_tokens": 300, "temperature": 0}))
    time.sleep(0.1)
    os.killpg(s.process.pid, signal.SIGTERM)  # as timeout and a shell's kill %1 send it: to all of the group
    r = c.getresponse()
    body = json.loads(r.read())
    check(r.status == 200 and body["usage"]["completion_tokens"] == 300, "SIGTERM lets an answer end: %s" % body)
    check(s.end(None) == 0, "status after SIGTERM: %s" % s.process.returncode)
with Server("-c", 1024, "--drain", 1, "-t", 1) as s:
    c = s.connect()
    c.request("POST", TEXT, json.dumps({"prompt": PROMPT, "ignore_eos": True, "max_tokens": 1000, "n": 8}))
    time.sleep(0.1)
    start = time.time()
    s.process.send_signal(signal.SIGTERM)
    r = c.getresponse()
    check(r.status in (200, 503), "an answer that is cut: %s %s" % (r.status, r.read()))
    check(s.end(None) == 0 and time.time() - start < 30, "SIGTERM takes %.1f s" % (time.time() - start))
check.end()
