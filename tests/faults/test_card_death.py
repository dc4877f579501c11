#!/usr/bin/env python3
"""A card's worker that dies or faults does not change the text: killed between the stores of the protocol's
words (CONCLAVE_DIE, shm/fault.h), killed from outside at any moment, stopped, ended by an error of its own,
dying while it starts, three times within a minute, both workers at once, while the slots are filled for the
first time, in a prompt of several calls a layer; of two cards, four and eight, with pools of one size and of many. The log says who died, who has its items, and who goes on;
nothing is left.

    tests/faults/test_card_death.py BUILD [--cards LIST] [--parts points,host,...] [--points fault,item,...]

Emulated cards, or with --cards the driver's: 0, or 0,0 or 0,1."""
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, "tests/lib")
from cli import STORY, SharedMemory, children, default_signals, gone, program, wait_for  # noqa: E402
from conclave import Checks  # noqa: E402

REAL = sys.argv[sys.argv.index("--cards") + 1] if "--cards" in sys.argv else None
if REAL:
    os.environ.pop("CONCLAVE_PROBE", None)  # tests/lib names no cards
N_CARDS = len(REAL.split(",")) if REAL else 2
TWICE = REAL and len(set(REAL.split(","))) < N_CARDS  # contexts of one card take turns: some 20 ms a token
check = Checks()
shm = SharedMemory()
PARTS = sys.argv[sys.argv.index("--parts") + 1].split(",") if "--parts" in sys.argv else None
POINTS = sys.argv[sys.argv.index("--points") + 1].split(",") if "--points" in sys.argv else None
SECONDS = 60 if TWICE else 20 if REAL else 120  # within which everything here ends; it takes a second on an idle machine
PROMPT = "One Sock\nVelvet was a busy hedgehog who lived in a snug den behind"
ALL, HALF = 8 << 20, 4 << 20  # bytes of slots that hold all experts, and about half of them

DIED = re.compile(r"card \d+ \(pid (\d+)\)[: ](.*?); (?:(\d+) unfinished items?|no item was unfinished|it was not ready yet)"
                  r"(.*)")
AGAIN = re.compile(r"(\d+) open calls? retired, pid \d+ goes on with call")
UP = re.compile(r"card \d+: pid (\d+) goes on with empty slots")


def cards(pool, trunk="cpu"):
    """Two cards (as many as are there) with so many bytes of slots together, and where the trunk is executed."""
    real = REAL and ",".join("%s:%d" % (name, pool // N_CARDS) for name in REAL.split(","))
    return ["--cards", real or "emu:2:%d" % (pool // 2), "--trunk", trunk]


def asked(die):
    return not POINTS or die.split(":")[0] in POINTS


class Run:
    """A run whose answer goes, where it is to be taken slowly, into a socket that holds a few tokens."""

    def __init__(self, *more, tokens=60, die=None, prompt=PROMPT, slow=False):
        args = [program(), "run", "-m", STORY, "-p", prompt, "-n", str(tokens), "--ignore-eos", "--temp", "0",
                "--no-heat", *map(str, more)]
        env = dict(os.environ)
        if die:
            env["CONCLAVE_DIE"] = die
        self.what = "%s %s" % (die or "", " ".join(map(str, more)))
        self.pids, self.log, self.text = set(), tempfile.TemporaryFile(), b""
        self.out, end = os.pipe()
        if slow:
            os.close(self.out)
            os.close(end)
            a, b = socket.socketpair()
            b.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            self.out, end = a.detach(), b.detach()
        self.p = subprocess.Popen(args, env=env, stdin=subprocess.DEVNULL, stdout=end, stderr=self.log,
                                  preexec_fn=default_signals)
        os.close(end)

    def workers(self):
        """pids of the cards' workers now, in the order of the cards"""
        found = children(self.p.pid)
        self.pids |= set(found)
        return sorted(pid for pid, name in found.items() if name.startswith("conclave-gpu"))

    def host(self):
        """pid of the one that started last: it has the trunk"""
        return self.workers()[-1]

    def read(self, n):
        """So many bytes at most; False at the end."""
        got = os.read(self.out, n)
        self.text += got
        return bool(got)

    def begun(self):
        """The answer has: from now on steps follow each other."""
        while not self.text and self.read(4):
            pass
        return self

    def until(self, there):
        """Takes the answer slowly until there(self)."""
        self.look()
        while not there(self) and self.read(4):
            time.sleep(0.003)
            self.look()
        return self

    def look(self):
        self.err = os.pread(self.log.fileno(), 1 << 20, 0).decode(errors="replace")
        self.deaths = [(int(m[1]), m[2], int(m[3] or 0), m[4]) for m in DIED.finditer(self.err)]
        self.successors = [int(m[1]) for m in UP.finditer(self.err)]
        self.again = [int(n) for n in AGAIN.findall(self.err)]
        self.pids |= set(self.successors) | {d[0] for d in self.deaths}

    def end(self):
        self.workers()
        late = threading.Timer(SECONDS, self.p.kill)
        late.start()
        while self.read(65536):
            pass
        os.close(self.out)
        self.p.wait()
        self.cut = not check(late.is_alive(), "%s: did not end within %d s" % (self.what, SECONDS))
        late.cancel()
        self.look()
        self.log.close()
        check(self.p.returncode == 0, "%s: status %d: %s" % (self.what, self.p.returncode, self.err[-400:]))
        check(gone(self.pids), "%s: still running" % self.what)
        check(not shm.left(), "%s: left in /dev/shm: %s" % (self.what, shm.left()))
        return self

    def has(self, quiet):
        """That text; of a run that was cut off, which has been told, the beginning."""
        n = next((i for i, (a, b) in enumerate(zip(self.text, quiet)) if a != b), min(len(self.text), len(quiet)))
        check(self.text == quiet or self.cut and n == len(self.text), "%s: another text from byte %d on: %r, wanted %r" %
              (self.what, n, self.text[n:n + 80], quiet[n:n + 80]))

    def same(self, quiet, deaths=1):
        self.has(quiet)
        return check(len(self.deaths) >= deaths, "%s: %d deaths, wanted %d: %s" %
                     (self.what, len(self.deaths), deaths, self.err[-400:]))


def points(quiet):
    """Between the stores; each time with an item of its own open."""
    half = cards(HALF)
    for point, passages in (("stage", (3, 60)), ("rows", (5, 120)), ("item", (2, 55, 140)), ("ring", (7, 90)),
                            ("upload", (5, 9)), ("uploaded", (6, 11)), ("down", (2, 5)), ("fault", (4, 50))):
        for n, k in enumerate(passages):
            if not asked(point) or REAL and (point in ("rows", "stage") or n > (point == "fault")):
                continue  # kernels do these; and each run takes its time there
            more = ["--nodes", 2] if point == "stage" or n % 2 else []
            copies = point in ("upload", "uploaded", "down")
            if copies:
                more += ["--ram", "3M"]
            os.environ["CONCLAVE_CARD_CHURN_US"] = "300" if point == "down" else "0"  # experts leave, one after the other
            for attempt in range(5 if copies else 1):  # no item may come to a card that is held up for so long
                r = Run(*half, *more, die="%s:%d:%d" % (point, k, n % N_CARDS)).end()
                if not r.same(quiet) or r.deaths[0][2]:
                    break
            if r.deaths:
                pid, how, lost, rest = r.deaths[0]
                check(lost >= 1 or point == "ring", "%s: no item was open: %s" % (r.what, r.err[-400:]))
                said = "signal 9" in how if point != "fault" else re.search("CUDA|error|fail|illegal", how)
                check(said, "%s: it %s" % (r.what, how))
                check("another starts" in rest, "%s: %s" % (r.what, rest))
    del os.environ["CONCLAVE_CARD_CHURN_US"]


def host(quiet):
    """The trunk's worker, card 0, with a step open: in its calls, its sums and its answer, in its uploads, and as a
    worker among others."""
    for point, passages in (("step", (1, 21)), ("publish", (1, 70)), ("head", (2, 71)), ("sum", (3, 101)), ("retire", (4, 111)),
                            ("fault", (3, 19)), ("logits", (1, 30)), ("answer", (2, 31)), ("upload", (9,)), ("uploaded", (11,))):
        for n, k in enumerate(passages):
            if not asked(point) or REAL and (point in ("publish", "head", "sum", "retire", "logits") or
                                             n > (point == "fault")):
                continue
            more = ["--nodes", 2] if n % 2 else []
            if point.startswith("upload"):
                more += ["--ram", "3M"]
            r = Run(*cards(HALF, "0"), *more, die="%s:%d:0" % (point, k)).end()
            if r.same(quiet):
                check(("signal 9" in r.deaths[0][1]) == (point != "fault") and len(r.again) == 1, "%s: %s" % (r.what, r.err[-400:]))
                check(point not in ("head", "sum", "retire") or r.again[0] > 0, "%s: no call was open: %s" %
                      (r.what, r.err[-400:]))
    # the other card's worker beside a trunk that is no process of ours
    for die in ("item:3:1", "stage:5:1", "upload:5:1", "fault:6:1"):
        if N_CARDS < 2 or not asked(die) or REAL and die.startswith("stage"):
            continue
        more = ["--nodes", 2] if die.startswith("stage") else ["--ram", "3M"] if die.startswith("upload") else []
        Run(*cards(HALF, "0"), *more, die=die).end().same(quiet)
    for n in range(0 if POINTS else 1 if REAL else 4):  # both, from outside
        r = Run(*cards(HALF, "0")).begun()
        time.sleep(0.003 * n)
        kill(r, 0, 1)
        r.end()
        r.has(quiet)
    # three times: the trunk goes on in the coordinator
    for die in ("step:9:0:9" if REAL else "sum:9:0:9", "ready:1:0:9"):
        if not asked(die):
            continue
        r = Run(*cards(HALF, "0"), die=die).begun()
        if die.startswith("ready"):
            os.kill(r.host(), signal.SIGKILL)
        r.end().same(quiet, 3)
        check("3 times within a minute" in r.err and "the trunk is executed here" in r.err, "%s: %s" %
              (r.what, r.err[-600:]))


def kill(r, *which):
    pids = r.workers()
    for k in which:
        if k < len(pids):
            os.kill(pids[k], signal.SIGKILL)


def outside(quiet):
    """At any moment: what is open then is open."""
    dice, died, lost = random.Random(7), 0, 0
    runs, tokens = (4, 150 if TWICE else 900) if REAL else (12, 60)  # a card's process takes a while to end
    if REAL:
        quiet = Run(tokens=tokens).end().text
    for n in range(runs):
        r = Run(*cards(HALF), tokens=tokens).begun()
        time.sleep(0.03 * dice.random())
        kill(r, n % N_CARDS)
        r.end()
        r.has(quiet)
        died += len(r.deaths)
        lost += sum(d[2] for d in r.deaths)
    check(died >= runs // 2, "only %d of %d were seen to die" % (died, runs))
    print("killed from outside: %d of %d while it ran, %d items open" % (died, runs, lost))


def successors():
    """A long answer, taken slowly, in which the successors come up and work."""
    more, n = cards(ALL), 300 if TWICE else 900
    long = Run(tokens=n).end().text

    def lives(what, deaths, ups, *which, die=None):
        r = Run(*more, tokens=n, slow=True, die=die).begun()
        r.what += ", " + what
        kill(r, *which)
        r.until(lambda r: len(r.deaths) >= deaths and len(r.successors) >= ups).end().same(long, deaths)
        check(len(r.deaths) == deaths and len(r.successors) == ups, "%s: %d deaths, %d successors: %s" %
              (r.what, len(r.deaths), len(r.successors), r.err[-600:]))
        return r

    lives("one", 1, 1, 0)
    if N_CARDS > 1:
        lives("both at once", 2, 2, 0, 1)
    lives("a successor that dies before it is ready", 2, 1, 0, die="ready:1:0:2")
    r = lives("three times within a minute", 3, 2, die="item:3:%d:9" % (N_CARDS - 1))
    check("3 times within a minute" in r.deaths[-1][3], "three times: %s" % r.err[-400:])
    r = lives("never ready", 3, 0, 0, die="ready:1:0:9")
    check("3 times within a minute" in r.deaths[-1][3], "never ready: %s" % r.err[-400:])
    # stopped: no sign of life, and the run waits for its items until then
    r = Run(*more, tokens=n, slow=True).begun()
    os.kill(r.workers()[0], signal.SIGSTOP)
    r.end().same(long)
    check("gave no sign of life" in r.deaths[0][1], "stopped: it %s" % r.deaths[0][1])


def ends():
    """The coordinator is told to end, or killed, while a successor works: that ends too."""
    for sig in (signal.SIGINT, signal.SIGKILL):
        r = Run(*cards(ALL, "0"), tokens=900, slow=True).begun()
        kill(r, 0)
        r.until(lambda r: r.successors)
        check(len(r.successors) == 1, "%s: no successor" % r.what)
        r.workers()
        r.p.send_signal(sig)
        check(wait_for(lambda: r.p.poll() is not None), "%s: goes on after signal %d" % (r.what, sig))
        check(gone(r.pids), "%s, signal %d: still running" % (r.what, sig))
        check(not shm.left(), "%s, signal %d: left in /dev/shm: %s" % (r.what, sig, shm.left()))
        os.close(r.out)


def filling(quiet):
    """While the slots are filled for the first time, beside the first tokens."""
    for k in (2, 9):
        r = Run(*cards(ALL), die="upload:%d:%d" % (k, N_CARDS - 1)).end()
        r.same(quiet)


def prompts():
    """In a pass of a prompt: many tokens together, several calls a layer, two of them open."""
    long = " ".join([PROMPT] * 12)
    os.environ["CONCLAVE_CALL_TOKENS"] = "13"
    base = Run("--batch", 100, prompt=long, tokens=20).end()
    for die in ("stage:2:0", "item:3:1", "item:40:0", "rows:50:1", "fault:4:0"):
        if REAL and die.startswith(("rows", "stage")):
            continue  # kernels do these
        die = ":".join(die.split(":")[:2] + [str(int(die.split(":")[2]) % N_CARDS)])
        r = Run(*cards(HALF), "--batch", 100, "--nodes", 2, die=die, prompt=long, tokens=20).end()
        r.same(base.text)
    del os.environ["CONCLAVE_CALL_TOKENS"]


def uneven(quiet):
    """More cards, small and large pools side by side: nobody dies, a card with few slots, one with many, the one with
    the trunk, several at once."""
    def run(sizes, trunk="cpu", die=None, which=()):
        if REAL:
            value = ",".join("%s:%d" % card for card in zip(REAL.split(","), sizes))
        else:
            value = "emu:%d:%s" % (len(sizes), ",".join(map(str, sizes)))
        with tempfile.NamedTemporaryFile() as f:
            r = Run("--cards", value, "--trunk", trunk, "--warm-first", "--stats", f.name, die=die)
            if which:
                kill(r.begun(), *which)
            r.end()
            if die:
                return r.same(quiet)
            r.has(quiet)
            if which:
                return len(r.deaths)
            s = json.load(f)
        here = sorted((w["card"], w["items"], w["came"]) for w in s["workers"] if "card" in w)
        check(len(here) == len(sizes) and all(w[2] for w in here), "%s: cards, items, experts: %s" % (r.what, here))
        return check(all(w[1] for w in here), "%s: cards, items, experts: %s" % (r.what, here))

    if N_CARDS < 2:
        return
    k, died = 1 << 10, 0
    for sizes in ((256 * k, 3072 * k),) if REAL else ((512 * k, 2048 * k, 256 * k, 1024 * k),
                                                      (1024 * k, 256 * k, 512 * k, 256 * k, 2048 * k, 256 * k, 256 * k, 512 * k)):
        few, many = sizes.index(min(sizes)), sizes.index(max(sizes))
        run(sizes)
        run(sizes, die="item:2:%d" % few)
        run(sizes, die="item:9:%d" % many)
        run(sizes, "0", die="step:9:0")
        run(sizes, str(many), die="fault:3:%d" % many)
        run(sizes, "0", die="item:2:%d" % (many or 1))
        died += run(sizes, str(many), which=(0, len(sizes) - 1))
    for n in (N_CARDS,) if REAL else (4, 8):
        run((HALF // n,) * n, "0")
        run((HALF // n,) * n, "0", die="item:2:1")
    check(died > 0, "nobody died of kills from outside")


def main():
    plain = Run().end()
    quiet = plain.text
    check(len(quiet) > 100 and not plain.deaths, "the quiet run: %r %r" % (quiet[:80], plain.err[-300:]))
    for part in (host, points, outside, successors, ends, filling, prompts, uneven):
        begin = time.monotonic()
        if PARTS and part.__name__ not in PARTS:
            continue
        part(*([] if part in (successors, ends, prompts) else [quiet]))
        print("%s: %.1f s" % (part.__name__, time.monotonic() - begin), flush=True)
    check.end()


main()
