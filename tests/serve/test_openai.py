#!/usr/bin/env python3
"""The `openai` client against conclave serve: chat, streams, tools, schemas, probabilities, errors, time-outs. The client
comes from .cache/openai (scripts/deps test makes it); without it everything here is skipped."""
import json
import os
import re
import struct
import sys
import tempfile
import threading
import time

sys.path.insert(0, "tests/lib")
from cli import STORY, string, with_metadata  # noqa: E402
from conclave import Checks, conclave  # noqa: E402
from server import PLAIN, Server  # noqa: E402

OWN = os.path.abspath(".cache/openai/bin/python")
try:
    import openai
except ImportError:
    openai = None
    if os.path.exists(OWN) and os.path.realpath(sys.prefix) != os.path.realpath(".cache/openai"):
        os.execv(OWN, [OWN, os.path.abspath(__file__)] + sys.argv[1:])

check = Checks()
PROMPT = "Velvet was a busy hedgehog"
USER = [{"role": "user", "content": PROMPT}]
MODEL = "story-moe-q4_k_m"


def client_of(server, **more):
    return openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % server.port, api_key=more.pop("api_key", "none"), **more)


def text_of(n, *args):
    return conclave("run", "-m", STORY, "-p", PROMPT, "-n", n, "--no-display-prompt", *args).stdout.decode()


def raised(kind, call, *words):
    """The client turns the answer into its own exception, and our words are in it."""
    try:
        call()
    except kind as e:
        return check(all(w in str(e) for w in words), "%s says %s, wanted %s" % (kind.__name__, e, words)) and e
    except Exception as e:  # noqa: BLE001
        check(False, "%s came, wanted %s: %s" % (type(e).__name__, kind.__name__, e))
    else:
        check(False, "no %s" % kind.__name__)


def chat(c):
    first = text_of(12, "--temp", 0)
    a = c.chat.completions.create(model=MODEL, messages=USER, temperature=0, max_tokens=12)
    check(a.choices[0].message.content == first and a.choices[0].message.role == "assistant", "chat: %s" % a)
    check(a.choices[0].finish_reason == "length" and a.usage.completion_tokens == 12 and a.model == MODEL and a.id and a.created,
          "its end and its numbers: %s" % a)
    a = c.chat.completions.create(model="any", messages=USER, seed=7, temperature=0.9, max_completion_tokens=12, n=2)
    check(a.choices[0].message.content == text_of(12, "--temp", 0.9, "--seed", 7) and len(a.choices) == 2, "a seed, n: %s" % a)
    a = c.chat.completions.create(model="any", messages=USER, temperature=0, max_tokens=12, stop=[" home"])
    check(first.startswith(a.choices[0].message.content + " home") and a.choices[0].finish_reason == "stop", "a text that ends it: %s" % a)
    a = c.chat.completions.create(model="any", temperature=0, max_tokens=12, messages=[
        {"role": "user", "content": [{"type": "text", "text": PROMPT}]}])
    check(a.choices[0].message.content == first, "parts: %s" % a)
    a = c.completions.create(model="any", prompt=PROMPT, temperature=0, max_tokens=12, echo=True)
    check(a.choices[0].text == PROMPT + first, "completions: %s" % a)
    r = c.responses.create(model="any", input=PROMPT, temperature=0, max_output_tokens=12)
    check(r.output_text == first and r.status == "incomplete", "responses: %s" % r)
    check([m.id for m in c.models.list()] == [MODEL], "models")
    return first


def streams(c, first):
    chunks = list(c.chat.completions.create(model="any", messages=USER, temperature=0, max_tokens=12, stream=True,
                                            stream_options={"include_usage": True}))
    text = "".join(k.choices[0].delta.content or "" for k in chunks if k.choices)
    # the role, text in as many pieces as the clock makes of it, the reason, what was used
    check(text == first and chunks[0].choices[0].delta.role == "assistant" and len(chunks) >= 4, "a stream: %s" % chunks)
    check(len({k.id for k in chunks}) == 1 and chunks[-1].usage.completion_tokens == 12 and not chunks[-1].choices, "its last chunk: %s" % chunks[-1])
    check([k.choices[0].finish_reason for k in chunks if k.choices and k.choices[0].finish_reason] == ["length"], "why it ended")
    # an answer that takes longer comes while it is made
    pieces = [k.choices[0].delta.content for k in c.chat.completions.create(
        model="any", messages=USER, temperature=0, max_tokens=200, stream=True, extra_body={"ignore_eos": True}) if k.choices]
    check(len([x for x in pieces if x]) > 6, "a long answer in pieces: %s" % pieces)
    text = "".join(k.choices[0].text for k in c.completions.create(model="any", prompt=PROMPT, temperature=0, max_tokens=12, stream=True)
                   if k.choices)
    check(text == first, "completions as a stream: %r" % text)
    events = list(c.responses.create(model="any", input=PROMPT, temperature=0, max_output_tokens=12, stream=True))
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    check(text == first and events[-1].type == "response.incomplete" and events[-1].response.output_text == first,
          "responses as a stream: %s" % events[-1])
    with c.responses.stream(model="any", input=PROMPT, temperature=0, extra_body={"grammar": 'root ::= "all" | "none"'}) as s:
        kinds = [e.type for e in s]
        check(s.get_final_response().output_text in ("all", "none") and kinds[-1] == "response.completed", "one that is complete: %s" % kinds)


def schemas(c):
    person = {"type": "object", "additionalProperties": False, "required": ["name", "age"],
              "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 1, "maximum": 99}}}
    for seed in range(3):
        a = c.chat.completions.create(model="any", messages=USER, seed=seed, max_tokens=200, response_format={
            "type": "json_schema", "json_schema": {"name": "person", "schema": person, "strict": True}})
        said = json.loads(a.choices[0].message.content)
        check(set(said) == {"name", "age"} and len(said["name"]) <= 20 and 1 <= said["age"] <= 99 and a.choices[0].finish_reason == "stop",
              "a schema: %s" % a)
    from pydantic import BaseModel

    class Animal(BaseModel):
        kind: str
        legs: int

    class Zoo(BaseModel):
        animals: list[Animal]
        open: bool
    try:
        a = c.chat.completions.parse(model="any", messages=USER, seed=3, max_tokens=400, response_format=Zoo,
                                     extra_body={"repeat_penalty": 1.3})
        check(isinstance(a.choices[0].message.parsed, Zoo), "a class: %s" % a)
    except openai.LengthFinishReasonError as e:  # a small model may go on and on: then it is cut, and was right so far
        check(e.completion.choices[0].message.content.startswith('{'), "a class: %s" % e)
    a = c.chat.completions.create(model="any", messages=USER, seed=1, max_tokens=60, response_format={"type": "json_object"})
    check(a.choices[0].message.content.startswith("{"), "any object: %s" % a)
    a = c.chat.completions.create(model="any", messages=USER, temperature=0, extra_body={"grammar": 'root ::= "yes" | "no"'})
    check(a.choices[0].message.content in ("yes", "no") and a.choices[0].finish_reason == "stop", "a grammar: %s" % a)
    raised(openai.BadRequestError, lambda: c.chat.completions.create(model="any", messages=USER, response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}), "'not' is not supported")


def probabilities(c):
    a = c.chat.completions.create(model="any", messages=USER, temperature=0, max_tokens=5, logprobs=True, top_logprobs=3)
    rows = a.choices[0].logprobs.content
    check(len(rows) == 5 and "".join(r.token for r in rows) == a.choices[0].message.content, "a row a token: %s" % rows)
    check(all(len(r.top_logprobs) == 3 and r.top_logprobs[0].logprob == r.logprob <= 0 and r.top_logprobs[0].token == r.token and
              bytes(r.bytes).decode() == r.token for r in rows), "the most likely is the one: %s" % rows)
    a = c.completions.create(model="any", prompt=PROMPT, temperature=0, max_tokens=5, logprobs=2)
    p = a.choices[0].logprobs
    check(len(p.tokens) == len(p.token_logprobs) == len(p.top_logprobs) == 5 and abs(p.token_logprobs[0] - rows[0].logprob) < 1e-6,
          "the older form: %s" % p)
    check(c.chat.completions.create(model="any", messages=USER, max_tokens=1).choices[0].logprobs is None, "none without asking")


def errors(c, server):
    e = raised(openai.BadRequestError, lambda: c.chat.completions.create(model="any", messages=USER, temperature="hot"), "temperature")
    check(e and e.status_code == 400 and e.type == "invalid_request_error" and e.param == "temperature", "its parts: %s" % (e and e.body))
    raised(openai.BadRequestError, lambda: c.chat.completions.create(model="any", messages=[{"role": "user", "content": PROMPT * 200}]),
           "256")
    raised(openai.BadRequestError, lambda: c.chat.completions.create(model="any", messages=[{"role": "user", "content": 3}]), "messages[0]")
    raised(openai.APIStatusError, lambda: c.embeddings.create(model="any", input="x"), "not")
    raised(openai.NotFoundError, lambda: c.get("/nothing", cast_to=object))
    # a failure within a stream is an event, which the client raises: here a grammar's limit, 2^12 ways to read "a..."
    ways = "root ::= r0\n" + "".join('r%d ::= "a" r%d "b" | "a" r%d "c"\n' % (i, i + 1, i + 1) for i in range(12)) + 'r12 ::= "a"'
    try:
        list(c.chat.completions.create(model="any", messages=USER, stream=True, temperature=0, extra_body={"grammar": ways}))
        check(False, "a stream that fails does not say so")
    except openai.APIError as e:
        check("ways to read" in str(e), "a stream that fails: %s" % e)
    check(server.free(), "slots are free after errors")


def time_outs(c, server):
    """A client that waits no longer goes away, and its answer is given up."""
    short = c.with_options(timeout=openai.Timeout(5, read=0.05), max_retries=0) # less than eight answers take anywhere
    start = time.monotonic()
    raised(openai.APITimeoutError, lambda: short.chat.completions.create(model="any", messages=USER, extra_body={
        "ignore_eos": True, "n": 8}), "")
    check(time.monotonic() - start < 5 and server.free(), "given up: %.1f s" % (time.monotonic() - start))
    # a stream that is closed
    s = c.chat.completions.create(model="any", messages=USER, stream=True, extra_body={"ignore_eos": True})
    next(iter(s))
    s.close()
    check(server.free(), "a closed stream")
    # several at a time
    found = [None] * 6

    def one(i):
        found[i] = c.chat.completions.create(model="any", messages=USER, temperature=0.9, seed=i % 3, max_tokens=10).choices[0].message.content
    threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(all(found) and found[:3] == found[3:], "beside each other: %s" % found)


def keys():
    with Server("-c", 256, "--api-key", "sesame") as s:
        raised(openai.AuthenticationError, lambda: client_of(s).models.list(), "key")
        check([m.id for m in client_of(s, api_key="sesame").models.list()] == [MODEL], "with the key")


# ---- tools: the small model writes no calls, so its first words are given the texts of one ----

CALL = ['<tool_call>\n{"name": "weather", "arguments": {', '"city": "Rome", "days": 2}}\n</tool_call>', "<end>"]
HERMES = ("{% for m in messages %}{% if m.role == 'tool' %}<tool_response>{{ m.content }}</tool_response>{% else %}{{ m.content }}"
          "{% endif %}{% for c in m.tool_calls or [] %}<tool_call>{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}"
          "</tool_call>{% endfor %}{% endfor %}{% if false %}{{ tools }}{% endif %}")
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}]


def renamed(keys, names):
    """The metadata with other texts for some tokens, without the merges that speak of them."""
    keys, was = texts(keys, b"tokenizer.ggml.tokens", lambda i, t: names.get(i, t))
    gone = {was[i] for i in names}
    return texts(keys, b"tokenizer.ggml.merges",
                 lambda i, t: None if t.replace(b" ", b"") in gone or gone & set(t.split(b" ")) else t)[0]


def texts(keys, name, new):
    """An array of texts, each as new(number, text) has it (None: left out); and the texts as they were."""
    at = keys.index(string(name)) + len(string(name)) + 8
    n = struct.unpack_from("<Q", keys, at)[0]
    front, at, was = keys[:at], at + 8, []
    for _ in range(n):
        size = struct.unpack_from("<Q", keys, at)[0]
        was.append(keys[at + 8:at + 8 + size])
        at += 8 + size
    now = [t for t in (new(i, t) for i, t in enumerate(was)) if t is not None]
    return front + struct.pack("<Q", len(now)) + b"".join(map(string, now)) + keys[at:], was


def tools(dir_):
    with Server("-c", 256) as s:
        ids = s.post("/completion", {"prompt": PROMPT, "n_predict": 3, "temperature": 0, "return_tokens": True})[1]["tokens"]
        known = s.post("/tokenize", {"content": PROMPT})[1]["tokens"]
    check(len(set(ids)) == 3 and not set(ids) & set(known), "three words that differ: %s" % ids)
    names = {i: t.replace("\n", "\u010a").replace(" ", "\u0120").encode() for i, t in zip(ids, CALL)}
    path = os.path.join(dir_, "calls.gguf")
    with open(STORY, "rb") as f, open(path, "wb") as out:
        out.write(with_metadata(f.read(), lambda keys: renamed(keys, names)))
    ask = dict(model="any", messages=USER, temperature=0, max_tokens=30, stop=["<end>"], tools=TOOLS)
    with Server("-c", 256, model=path, template=HERMES) as s:
        c = client_of(s)
        a = c.chat.completions.create(**ask)
        m = a.choices[0].message
        check(a.choices[0].finish_reason == "tool_calls" and not m.content and len(m.tool_calls) == 1, "a call: %s" % a)
        call = m.tool_calls[0]
        check(call.type == "function" and call.id and call.function.name == "weather" and
              json.loads(call.function.arguments) == {"city": "Rome", "days": 2}, "its parts: %s" % call)
        parts = {}
        why = None
        for k in c.chat.completions.create(stream=True, **ask):
            why = k.choices[0].finish_reason or why
            for t in k.choices[0].delta.tool_calls or []:
                p = parts.setdefault(t.index, {"id": "", "name": "", "arguments": ""})
                p["id"] += t.id or ""
                p["name"] += t.function.name or ""
                p["arguments"] += t.function.arguments or ""
        check(why == "tool_calls" and list(parts) == [0] and parts[0]["id"] and parts[0]["name"] == "weather" and
              json.loads(parts[0]["arguments"]) == {"city": "Rome", "days": 2}, "a call in a stream: %s %s" % (why, parts))
        # the next turn: the call as the client gives it back, and its result
        a = c.chat.completions.create(model="any", temperature=0, max_tokens=3, tools=TOOLS, messages=USER + [
            m.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}])
        check(a.choices[0].message.content is not None and a.usage.prompt_tokens > 20, "the result of a call: %s" % a)
        a = c.chat.completions.create(**dict(ask, tools=openai.NOT_GIVEN))
        check("<tool_call>" in a.choices[0].message.content and not a.choices[0].message.tool_calls, "text where no tools are offered: %s" % a)


def main():
    if not openai:
        check.skip("no openai client here (pip: openai; scripts/deps test puts it into .cache/openai)")
        check.end()
    print("openai %s" % openai.__version__)
    with Server("-c", 256, "--parallel", 3, template=PLAIN) as s:
        c = client_of(s)
        first = chat(c)
        streams(c, first)
        schemas(c)
        probabilities(c)
        errors(c, s)
        time_outs(c, s)
    check(not re.search(r"assert|sanitizer", s.log, re.I), "the server's log: %s" % s.log)
    keys()
    with tempfile.TemporaryDirectory() as d:
        tools(d)
    check.end()


main()
