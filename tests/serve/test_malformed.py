#!/usr/bin/env python3
"""10,000 requests that no client should send: bodies, headers and chunks with faults, and disconnects at every byte
of an exchange. The server answers what can be answered, never dies, hangs or leaks (the address sanitizer's build
says so when it ends), serves others the right bytes meanwhile, and has all its slots free in the end.

    tests/serve/test_malformed.py BUILD [--requests N] [--seed N]"""
import argparse
import asyncio
import json
import random
import socket
import struct
import sys
import time

sys.path.insert(0, "tests/lib")
from conclave import Checks  # noqa: E402
from server import Server  # noqa: E402

p = argparse.ArgumentParser()
p.add_argument("build")
p.add_argument("--requests", type=int, default=0, help="10,000 where a sanitizer looks on, else 1,000")
p.add_argument("--seed", type=int, default=18)
o = p.parse_args()
o.requests = o.requests or (10000 if "address" in o.build else 1000)
check = Checks()
rng = random.Random(o.seed)
AT_ONCE, PATIENCE = 64, 0.25

CHAT = {"messages": [{"role": "user", "content": "Velvet was a busy hedgehog"}], "max_tokens": 3, "temperature": 0}
CALLS = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "t"}]},
                      {"role": "assistant", "content": None, "tool_calls": [
                          {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]},
                      {"role": "tool", "tool_call_id": "a", "content": "r"}],
         "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}],
         "max_tokens": 2, "n": 2, "stop": ["x", "yy"], "logit_bias": {"5": 1.5}, "logprobs": True, "top_logprobs": 2, "seed": 4}
SEEDS = [("/v1/chat/completions", CHAT), ("/v1/chat/completions", dict(CHAT, stream=True, stream_options={"include_usage": True})),
         ("/v1/chat/completions", CALLS), ("/v1/chat/completions", dict(CALLS, stream=True)),
         ("/v1/chat/completions", dict(CHAT, response_format={"type": "json_schema", "json_schema": {"schema": {
             "type": "object", "properties": {"a": {"enum": [1, "b", None]}, "c": {"type": "array", "items": {"type": "number"}}},
             "required": ["a"]}}})),
         ("/v1/completions", {"prompt": ["A fox", [1, 2, 3]], "max_tokens": 2, "echo": False, "logprobs": 2, "best_of": 1}),
         ("/completion", {"prompt": [1, "fox", 2], "n_predict": 2, "stream": True, "return_progress": True, "logit_bias": [["fox", False]]}),
         ("/completion", {"prompt": "x", "n_predict": 4, "grammar": "root ::= [a-z]+ (\",\" root)?"}),
         ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "A"}]},
                                      {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "h"}]},
                                      {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                                      {"type": "function_call_output", "call_id": "c", "output": "r"}],
                            "max_output_tokens": 2, "stream": True, "instructions": "i", "reasoning": {"effort": "low"}}),
         ("/v1/messages", {"system": [{"type": "text", "text": "s"}], "max_tokens": 2, "stream": True, "messages": [
             {"role": "user", "content": "u"}, {"role": "assistant", "content": [
                 {"type": "thinking", "thinking": "h"}, {"type": "tool_use", "id": "i", "name": "f", "input": {"x": [1]}}]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": [{"type": "text", "text": "r"}]}]}],
             "tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
         ("/tokenize", {"content": "some text", "with_pieces": True}), ("/detokenize", {"tokens": [1, 2, 3]}),
         ("/apply-template", {"messages": CALLS["messages"]}), ("/v1/messages/count_tokens", {"messages": CHAT["messages"]})]
ODD = [None, True, False, 0, -1, 1, 2 ** 31, 2 ** 63, 2 ** 64, 1e308, -1.5, "", "x", "\u0000", "\ud7ff\uffff", "</think><tool_call>", [], [[]], {},
       {"": None}, [None] * 50, "y" * 5000, {"type": "image_url"}, [{"role": "user"}], {"content": 5}, 1e-320]


def http(path, body, headers=(), method="POST", version="HTTP/1.1", length=None):
    lines = ["%s %s %s" % (method, path, version), "Host: localhost"] + list(headers)
    if length is not False:
        lines.append("Content-Length: %s" % (len(body) if length is None else length))
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body


def mutate_bytes(data, n=None):
    data = bytearray(data)
    for _ in range(n or rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(data) + 1) if data else 0
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1:
            data[at:at] = bytes([rng.choice(b'"{}[],:\\\r\n\0 \xff\xc0\xed09-e')])
        elif kind == 2:
            del data[at:at + rng.choice((1, 1, 3, 30))]
        elif kind == 3:
            data[at:at] = data[at:at + rng.randrange(1, 60)]
        elif kind == 4:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        elif at < len(data):
            data[at] ^= 1 << rng.randrange(8)
    return bytes(data)


def mutate_value(v):
    """Somewhere inside another value."""
    if isinstance(v, dict) and v and rng.random() < 0.85:
        k = rng.choice(list(v))
        if rng.random() < 0.1:
            return {x: y for x, y in v.items() if x != k}
        return {**v, k: mutate_value(v[k])}
    if isinstance(v, list) and v and rng.random() < 0.85:
        i = rng.randrange(len(v))
        return v[:i] + [mutate_value(v[i])] * rng.choice((1, 1, 2)) + v[i + 1:]
    return rng.choice(ODD)


def small(v):
    """Answers stay short whatever the mutation made of their length."""
    if isinstance(v, dict) and not isinstance(v.get("max_tokens"), int) and not isinstance(v.get("n_predict"), int) and \
            not isinstance(v.get("max_output_tokens"), int):
        v = dict(v, max_tokens=2)
    return v


def bodies(n):
    for _ in range(n):
        path, body = rng.choice(SEEDS)
        if rng.random() < 0.6:
            for _ in range(rng.choice((1, 1, 2, 4))):
                body = mutate_value(body)
            text = json.dumps(small(body)).encode()
        else:
            text = mutate_bytes(json.dumps(body).encode())
        yield http(path, text)


def headers(n):
    odd = ["X: " + "y" * 40000, "Content-Length: 5", "Content-Length: -5", "Content-Length: 99999999999999999999", "Transfer-Encoding: chunked",
           "Transfer-Encoding: gzip, chunked", "Expect: 100-continue", "Expect: 200-ok", "Connection: close", "Connection: keep-alive, upgrade",
           "Upgrade: websocket", " folded", "\tfolded", ":", "no colon", "A" * 300 + ": b", "Host: a\0b", "Origin: null", "Origin: http://localhost",
           "Authorization: Bearer", "Authorization: Basic " + "x" * 2000, "X-Api-Key:", "Content-Type: text/plain; charset=utf-16", "Range: bytes=0-",
           "Cookie: " + "a=b;" * 200, "\xff\xfe: \x80", "Content-Length : 3", "content-length: 0x10", "Content-Length: 3, 3"]
    for _ in range(n):
        path, body = rng.choice(SEEDS)
        body = json.dumps(body).encode()
        kind = rng.randrange(5)
        if kind == 0:
            yield mutate_bytes(http(path, b"").rstrip() + b"\r\n\r\n") + body
        elif kind == 1:
            yield http(path, body, rng.sample(odd, rng.randrange(1, 4)))
        elif kind == 2:
            yield http(rng.choice(["/", "*", "", "//", "/%00", "/..%2f..", "http://x/v1/models", "/health?" + "a=%zz&" * 50, "/" + "a" * 9000, path + "#x",
                                   "/v1/models\t", "/slots/0?action=erase"]), b"",
                       method=rng.choice(["GET", "HEAD", "POST", "OPTIONS", "TRACE", "CONNECT", "get", "PATCH", "", "X" * 500]))
        elif kind == 3:
            yield http(path, body, version=rng.choice(["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.9", "HTTP/", "", "HTTP/99999999999.1", "ICY"]))
        else:
            yield http(path, body, length=rng.choice([False, 0, 1, len(body) - 1, len(body) + 1, len(body) + 100, "", " 5 ", "5;5", "1e3", 2 ** 40]))


def chunks(n):
    for _ in range(n):
        path, body = rng.choice(SEEDS)
        body, parts, at = json.dumps(body).encode(), [], 0
        while at < len(body):
            size = rng.choice((1, 2, 7, 50, 5000))
            part = body[at:at + size]
            said = rng.choice(["%x"] * 12 + ["%X", "0%x", "%x;name=value", " %x", "%x ", "-%x", "+%x", "%xg", "0x%x", "fffffffff%x", ""])
            said = said % len(part) if "%" in said else said
            parts.append(said.encode() + rng.choice([b"\r\n"] * 20 + [b"\n", b"", b"\r"]) + part + rng.choice([b"\r\n"] * 20 + [b"\n", b"", b"xx"]))
            at += size
        end = rng.choice([b"0\r\n\r\n"] * 5 + [b"", b"0\r\n", b"0\r\nX: y\r\n\r\n", b"0\r\nX" + b"y" * 40000 + b"\r\n\r\n", b"00000000000000000\r\n\r\n"])
        data = http(path, b"", ["Transfer-Encoding: chunked"], length=False) + b"".join(parts) + end
        yield data if rng.random() < 0.7 else mutate_bytes(data)


def noise(n):
    for _ in range(n):
        kind = rng.randrange(5)
        if kind == 0:
            yield bytes(rng.randrange(256) for _ in range(rng.randrange(1, 400)))
        elif kind == 1:
            yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(rng.randrange(256) for _ in range(200))
        elif kind == 2:
            yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(20)
        elif kind == 3:
            yield b"\r\n" * rng.randrange(1, 500)
        else: # several at a time, the last with a fault
            path, body = rng.choice(SEEDS)
            one = http(path, json.dumps(body).encode())
            yield one * rng.randrange(1, 4) + mutate_bytes(one)


async def send(port, data, hear, how):
    """One connection: sends data, hears at most `hear` bytes (None: until it is over or takes too long), ends as
    `how` says: "fin", "rst", or "half" (the sending side first). What was heard."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    heard = b""
    try:
        writer.write(data)
        await asyncio.wait_for(writer.drain(), PATIENCE)
        if how == "half":
            writer.write_eof()
        end = time.monotonic() + PATIENCE
        while hear is None or len(heard) < hear:
            got = await asyncio.wait_for(reader.read(65536 if hear is None else hear - len(heard)), max(0.001, end - time.monotonic()))
            if not got:
                break
            heard += got
    except (asyncio.TimeoutError, OSError):
        pass
    if how == "rst":
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()
    try:
        await asyncio.wait_for(writer.wait_closed(), PATIENCE)
    except (asyncio.TimeoutError, OSError):
        writer.transport.abort()
    return heard


def exchanges(n):
    """Cut at every byte: of the request, then of the answer."""
    whole = http("/v1/chat/completions", json.dumps(SEEDS[1][1]).encode())
    cuts = [(whole[:k], 0) for k in range(len(whole))] + [(whole, k) for k in range(1, 1800)]
    for i in range(n):
        data, hear = cuts[i % len(cuts)]
        yield data, hear, ("fin", "rst", "half")[i % 3 if i < len(cuts) else (i + 1) % 3]


def plan(n):
    share = {bodies: 0.35, headers: 0.17, chunks: 0.12, noise: 0.06}
    for make, part in share.items():
        for data in make(int(n * part)):
            yield data, None, rng.choice(("fin", "fin", "rst"))
    yield from exchanges(n - sum(int(n * part) for part in share.values()))


async def all_of_them(s, good):
    """Everything, AT_ONCE at a time; in between requests that are right."""
    work, count = list(plan(o.requests)), {}
    rng.shuffle(work)
    at = iter(enumerate(work))
    wrong = []

    async def one():
        for i, (data, hear, how) in at:
            try:
                heard = await send(s.port, data, hear, how)
            except OSError as e:
                wrong.append("request %d: %s: %s" % (i, e, s.text()[-3000:] if s.process.poll() is not None else ""))
                return
            status = heard[9:12].decode("latin-1") if heard.startswith(b"HTTP/1.") and len(heard) >= 12 else "none" if not heard else \
                "cut" if b"HTTP/1.".startswith(heard[:7]) or heard.startswith(b"HTTP/1.") else "odd"
            count[status] = count.get(status, 0) + 1
            if status == "odd":
                wrong.append("%r is answered with %r" % (data[:200], heard[:200]))
            if i % 500 == 499:
                heard = await send(s.port, good, None, "fin")
                if b'"content":" who lived"' not in heard:
                    await asyncio.sleep(0.5) # it may wait behind others
                    heard = heard or await send(s.port, good, None, "fin")
                count["good"] = count.get("good", 0) + (b'"content":" who lived"' in heard or not heard)

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))
    return count, wrong, len(work)


def rss(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(f.read().split("VmRSS:")[1].split()[0])


start = time.time()
with Server("-c", 128, "--parallel", 8, "--request-timeout", 5, "--max-connections", 200, "--queue", 256) as s:
    good = http("/v1/chat/completions", json.dumps(dict(CHAT, max_tokens=2)).encode(), ["Connection: close"])
    code, a = s.post("/v1/chat/completions", dict(CHAT, max_tokens=2))
    check(code == 200 and a["choices"][0]["message"]["content"] == " who lived", "before: %s" % a)
    warm = rss(s.process.pid)
    count, wrong, n = asyncio.run(all_of_them(s, good))
    check(not wrong, "%d: %s" % (len(wrong), wrong[:5]))
    if not check(s.process.poll() is None, "the server has ended: %s" % s.text()[-6000:]):
        check.end()
    check(count.get("good") == o.requests // 500, "others' requests meanwhile: %s" % count)
    check(count.get("400", 0) > o.requests // 10 and count.get("200", 0) > o.requests // 50, "answers: %s" % count)
    check("500" not in count, "answers: %s" % count)
    check(s.free(30), "slots are in use: %s; %s" % (s.metrics(), s.get("/slots")))
    end = time.time() + 10
    while s.metrics()["http_connections"] > 1 and time.time() < end:
        time.sleep(0.1)
    m = s.metrics()
    check(m["http_connections"] == 1 and m["http_arriving_bytes"] < 1000, "connections are left: %s" % m)
    code, b = s.post("/v1/chat/completions", dict(CHAT, max_tokens=2))
    check(b["choices"] == a["choices"], "afterwards: %s" % b)
    print("%d requests in %.0f s: %s; %d kB, %d before" % (n, time.time() - start, dict(sorted(count.items())), rss(s.process.pid), warm))
check(s.end() == 0, "status %s: %s" % (s.process.returncode, s.log[-5000:]))
check("Sanitizer" not in s.log and "conclave: error" not in s.log, s.log[-5000:])
check.end()
