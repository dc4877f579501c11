#!/usr/bin/env python3
"""GET /routes: what the page draws. Each use of an expert is told with where it lay, whoever executes the trunk; those who
don't read, who come and who go hold up nobody."""
import json
import sys
import threading
import time

sys.path.insert(0, "tests/lib")
from conclave import Checks  # noqa: E402
from server import Server  # noqa: E402

check = Checks()
CARD, RAM, DISK = 1, 2, 4
ASK = {"prompt": "Velvet was a busy hedgehog", "n_predict": 24, "temperature": 0, "cache_prompt": False}


class Watcher:
    """Reads the stream in a thread."""

    def __init__(self, server, reads=True):
        self.connection = server.connect()
        self.connection.request("GET", "/routes")
        self.answer = self.connection.getresponse()
        self.events, self.over = [], False
        if reads:
            self.thread = threading.Thread(target=self.read)
            self.thread.start()

    def read(self):
        name = None
        try:
            for line in self.answer:
                line = line.decode().rstrip("\n")
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    self.events.append((name, json.loads(line[6:])))
        except (OSError, ValueError, AttributeError):
            pass
        self.over = True

    def of(self, name):
        return [d for n, d in self.events if n == name]

    def wait(self, done, seconds=10):
        end = time.monotonic() + seconds
        while not done(self) and time.monotonic() < end:
            time.sleep(0.02)
        return done(self)

    def close(self):
        self.answer.close()
        self.connection.close()


def used(w):
    """{(layer, expert): tiers} of all that was told."""
    most = max(w.of("shape")[0]["experts"])
    out = {}
    for d in w.of("lit"):
        for u in d["used"]:
            out[divmod(u >> 4, most)] = out.get(divmod(u >> 4, most), 0) | (u & 7)
    return out


def told(what, tiers, *args):
    with Server("-c", 256, *args) as s:
        w = Watcher(s)
        check(w.answer.status == 200 and w.answer.getheader("Content-Type") == "text/event-stream", "%s: %s" % (what, w.answer.status))
        check(w.wait(lambda w: w.of("figures")) and w.of("shape") == [{"experts": [12] * 4}], "%s: the shape" % what)
        before = w.of("figures")[-1]
        a = s.post("/completion", ASK)[1]
        n = a["timings"]["prompt_n"] + a["timings"]["predicted_n"] - 1  # the last token is not fed
        check(w.wait(lambda w: sum(d["tokens"] for d in w.of("lit")) >= n), "%s: tokens" % what)
        time.sleep(0.15)  # another frame
        check(sum(d["tokens"] for d in w.of("lit")) == n, "%s: %d tokens, wanted %d" % (what, sum(d["tokens"] for d in w.of("lit")), n))
        lit = used(w)
        got = 0
        for t in lit.values():
            got |= t
        check(got == tiers, "%s: tiers %d, wanted %d" % (what, got, tiers))
        check({layer for layer, _ in lit} == {0, 1, 2, 3} and all(x < 12 for _, x in lit) and 20 < len(lit) <= 48, "%s: %s" % (what, lit))
        check(any(u & 8 for d in w.of("lit")[-3:] for u in d["used"]), "%s: the last step's" % what)
        check(w.wait(lambda w: w.of("figures")[-1]["predicted"] == before["predicted"] + a["timings"]["predicted_n"] and
                     w.of("figures")[-1]["engine"]["items"] > before["engine"]["items"]), "%s: figures %s" % (what, w.of("figures")[-1]))
        f = w.of("figures")[-1]
        e, was = f["engine"], before["engine"]
        check(bool(e["card_items"] - was["card_items"]) == bool(tiers & CARD) and
              bool(e["disk_items"] - was["disk_items"]) == bool(tiers & DISK), "%s: uses %s" % (what, e))
        check(all(p["own"] > 0 and p["name"] for p in f["processes"]) and len(f["processes"]) >= 3, "%s: processes %s" % (what, f["processes"]))
        check(f["slots"] == 4 and f["busy"] == 0 and f["waiting"] == 0, "%s: %s" % (what, f))
        start = time.monotonic()
        check(s.end() == 0 and time.monotonic() - start < 5, "%s: the end with a watcher: %.1f s" % (what, time.monotonic() - start))
        check(w.wait(lambda w: w.over), "%s: it is sent away" % what)
        w.close()
        return a["content"]


def come_and_go():
    with Server("-c", 256) as s:
        first, asleep = Watcher(s), Watcher(s, reads=False)
        many = [Watcher(s, reads=False) for _ in range(30)]
        more = Watcher(s, reads=False)
        check(more.answer.status == 503, "too many: %s" % more.answer.status)
        more.close()
        check(s.post("/completion", ASK)[0] == 200, "an answer beside 32 watchers")
        check(first.wait(lambda w: w.of("lit")), "one of them sees it")
        for w in many + [asleep]:
            w.close()
        check(first.wait(lambda w: s.metrics()["http_requests"] == 2), "they have gone")
        n = len(first.of("figures"))
        check(first.wait(lambda w: len(w.of("figures")) > n + 1), "the first one stays")
        first.close()
        first.wait(lambda w: s.metrics()["http_requests"] == 1)
        check(s.post("/completion", ASK)[0] == 200, "nobody watches")
        again = Watcher(s)
        check(again.wait(lambda w: w.of("figures")) and not again.of("lit"), "what was lit before is dark")
        again.close()


texts = [told("all in RAM", RAM), told("some on disk", RAM | DISK, "--ram", "3M"),
         told("a card has experts", CARD | RAM, "--cards", "emu:1:1M", "--trunk", "cpu"),
         told("a card has the trunk", CARD | RAM, "--cards", "emu:1:1M", "--trunk", "0")]
check(len(set(texts)) == 1, "watched or not, wherever: %s" % texts)
come_and_go()
check.end()
