#!/usr/bin/env python3
"""Many clients on few slots: every answer is that of the same request alone, byte for byte; nobody starves; memory
stays. With --seconds 120 what docs/MEASUREMENTS.md tells.

    tests/serve/test_load.py BUILD [--seconds N] [--clients N] [--parallel N]"""
import argparse
import json
import sys
import threading
import time

sys.path.insert(0, "tests/lib")
from conclave import Checks  # noqa: E402
from server import Server  # noqa: E402

p = argparse.ArgumentParser()
p.add_argument("build")
p.add_argument("--seconds", type=float, default=4)
p.add_argument("--clients", type=int, default=64)
p.add_argument("--parallel", type=int, default=4)
o = p.parse_args()
check = Checks()
STORY = open("tests/demo/heldout.txt").read()


def requests():
    """Short and long prompts, greedy and drawn, plain and as streams, with stop texts and schemas."""
    made = []
    for i in range(16):
        text = STORY[997 * i:997 * i + (60, 200, 900, 2200)[i % 4]]
        q = {"max_tokens": (8, 24, 48)[i % 3], "temperature": 0 if i % 2 else 1.1, "seed": i, "stream": i % 3 == 0}
        if i % 5 == 4:
            q["stop"] = [". ", "\n"]
        if i % 8 == 7:
            q["response_format"] = {"type": "json_schema", "json_schema": {"schema": {"type": "array", "items": {"enum": ["a", 1]}}}}
        made.append(("/v1/chat/completions", dict(q, messages=[{"role": "user", "content": text}])) if i % 4 < 2 else
                    ("/v1/completions", dict(q, prompt=text)))
    return made


def answer_of(c, path, body):
    """(text and why it ended, seconds to the first byte of the answer, seconds in all)"""
    start = time.monotonic()
    c.request("POST", path, json.dumps(body))
    r = c.getresponse()
    first, text, why = None, "", None
    if r.status != 200:
        raise RuntimeError("%d %s" % (r.status, r.read()))
    if not body["stream"]:
        a = json.loads(r.read())["choices"][0]
        return (a["message"]["content"] if "message" in a else a["text"], a["finish_reason"]), None, time.monotonic() - start
    for line in r:
        if line.startswith(b"data: {"):
            d = json.loads(line[6:])
            if "error" in d:
                raise RuntimeError(d)
            a = d["choices"][0]
            part = a["delta"].get("content") if "delta" in a else a["text"]
            if part and first is None:
                first = time.monotonic() - start
            text += part or ""
            why = a["finish_reason"] or why
    return (text, why), first, time.monotonic() - start


def memory(s):
    with open("/proc/%d/status" % s.process.pid) as f:
        return int(f.read().split("VmRSS:")[1].split()[0])


class Client(threading.Thread):
    def __init__(self, s, number, asked, alone, until):
        super().__init__()
        self.s, self.number, self.asked, self.alone, self.until = s, number, asked, alone, until
        self.n, self.wrong, self.waits, self.firsts = 0, [], [], []

    def run(self):
        c = self.s.connect(timeout=300)
        i = self.number
        while time.monotonic() < self.until:
            k = i % len(self.asked)
            i += 5 + self.number % 7
            try:
                got, first, wall = answer_of(c, *self.asked[k])
            except Exception as e: # noqa: BLE001
                self.wrong.append("request %d: %r" % (k, e))
                return
            if got != self.alone[k]:
                self.wrong.append("request %d: %r, alone %r" % (k, got, self.alone[k]))
            self.n += 1
            self.waits.append(wall)
            if first is not None:
                self.firsts.append(first)
        c.close()


with Server("-c", 768, "--parallel", o.parallel, "--log-level", "info") as s:
    asked = requests()
    c = s.connect(timeout=300)
    alone = [answer_of(c, path, dict(body, cache_prompt=False))[0] for path, body in asked]
    c.close()
    check(len({a for a in alone}) > 12, "the answers are too much alike: %s" % alone)
    start = time.monotonic()
    clients = [Client(s, i, asked, alone, start + o.seconds) for i in range(o.clients)]
    for t in clients:
        t.start()
    sizes = []
    while any(t.is_alive() for t in clients):
        time.sleep(min(1, o.seconds / 8))
        sizes.append(memory(s))
    for t in clients:
        t.join()
    wall = time.monotonic() - start
    wrong = [w for t in clients for w in t.wrong]
    n = sum(t.n for t in clients)
    check(not wrong, "%d of %d: %s" % (len(wrong), n, wrong[:3]))
    fewest = min(t.n for t in clients)
    check(fewest > 0 and n >= o.clients, "answers: %d, fewest of a client %d" % (n, fewest))
    m = s.metrics()
    waits = sorted(w for t in clients for w in t.waits)
    firsts = sorted(w for t in clients for w in t.firsts)
    # first come, first served: nobody waits much longer than a whole queue of others takes
    queue = o.clients / (n / wall)
    check(m["queue_wait_most_seconds"] < 3 * queue + 1, "longest wait %.2f s, a queue takes %.2f s" % (m["queue_wait_most_seconds"], queue))
    early = max(sizes[len(sizes) // 4:len(sizes) // 2] or sizes)
    check(max(sizes[len(sizes) // 2:]) < 1.05 * early + 4096, "memory: %s kB" % sizes)
    check(m["jobs_failed_total"] == 0 and m["http_clients_gone_total"] == 0 and s.free(), "%s" % m)
    at = lambda v, q: v[min(len(v) - 1, int(q * len(v)))] # noqa: E731
    print("%d clients, %d slots, %.0f s: %d answers, %d to %d a client; request to last byte median %.2f, 99 %% %.2f, longest %.2f s; "
          "to the first token of a stream median %.2f, longest %.2f s; longest wait in the queue %.2f s; memory %.1f to %.1f MB" %
          (o.clients, o.parallel, wall, n, fewest, max(t.n for t in clients), at(waits, 0.5), at(waits, 0.99), waits[-1],
           at(firsts, 0.5), firsts[-1], m["queue_wait_most_seconds"], early / 1024, sizes[-1] / 1024))
check(s.end() == 0, s.log[-3000:])
check.end()
