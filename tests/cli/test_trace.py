#!/usr/bin/env python3
"""--trace: a timeline that Chrome's format allows, with every process in it, whose items and bytes are those of
--stats, whose times lie inside each other as the work did, and which changes no byte of the output."""
import json
import os
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from cli import STORY, SharedMemory, children, program, refused, start  # noqa: E402
from conclave import Checks, conclave  # noqa: E402

check = Checks()
dir_ = tempfile.TemporaryDirectory()
shm = SharedMemory()
LATE = 4  # two on their way to each of two cards; the pager has up to 16
PROMPT, N = "One Sock\nVelvet was a busy hedgehog", 12
EVAL = ("eval", "-m", STORY, "--tokens", "1,2,3,4,5,6,7")


def path(name):
    return os.path.join(dir_.name, name)


def load(name):
    """(events that last, {pid: process}, {(pid, tid): thread})"""
    with open(path(name)) as f:
        events = json.load(f)
    named = {"process_name": {}, "thread_name": {}}
    last = []
    for e in events:
        if e["ph"] == "M":
            key = e["pid"] if e["name"] == "process_name" else (e["pid"], e["tid"])
            check(key not in named[e["name"]], "named twice: %s" % e)
            named[e["name"]][key] = e["args"]["name"]
        elif check(e["ph"] == "X" and e["dur"] >= 0 and e["ts"] > 0 and {"name", "cat", "args"} <= set(e), e):
            check(e["pid"] in named["process_name"] and (e["pid"], e["tid"]) in named["thread_name"],
                  "an event before its process has a name: %s" % e)
            last.append(e)
    return last, named["process_name"], named["thread_name"]


def nested(events, what):
    """On one thread things lie inside each other or one after the other."""
    ok = True
    for key in {(e["pid"], e["tid"]) for e in events}:
        ends = []
        mine = [(round(1000 * e["ts"]), round(1000 * (e["ts"] + e["dur"])), e["name"]) for e in events
                if (e["pid"], e["tid"]) == key]
        for a, b, name in sorted(mine, key=lambda x: (x[0], -x[1])):
            while ends and ends[-1] <= a + 1:  # microseconds with three digits: rounding
                ends.pop()
            ok = ok and (not ends or b <= ends[-1] + 1)
            ends.append(b)
    check(ok, "%s: events overlap on one thread" % what)


def total(events, name, key, pid=None):
    return sum(e["args"][key] for e in events if e["name"] == name and pid in (None, e["pid"]))


def of(events, name, pid=None):
    return [e for e in events if e["name"] == name and pid in (None, e["pid"])]


def timeline(*args, processes):
    """A run with it: the text of one without, and a file that agrees with the counters."""
    what = " ".join(map(str, args))
    command = ("run", "-m", STORY, "-p", PROMPT, "-n", N, "--temp", 0, "--no-heat", *args)
    plain = conclave(*command)
    p = conclave(*command, "--trace", path("t.json"), "--stats", path("s.json"))
    check(p.returncode == 0 and p.stdout == plain.stdout, "%s: status %d, %s" % (what, p.returncode, p.stderr))
    with open(path("s.json")) as f:
        stats = json.load(f)
    events, names, _ = load("t.json")
    check(sorted(names.values()) == sorted(processes), "%s: %s, wanted %s" % (what, names, processes))
    check({w["pid"] for w in stats["workers"]} | {stats["pid"]} <= set(names), "%s: %s" % (what, names))
    for w in stats["workers"][1:]:
        made = total(events, "pass", "items", w["pid"]) + total(events, "own experts", "items", w["pid"])
        check(made == w["items"], "%s: %s made %d items, %d by --stats" % (what, w["name"], made, w["items"]))
    check(len(of(events, "step")) == stats["steps"] and len(of(events, "publish")) == stats["calls"]
          and total(events, "publish", "items") == stats["items"] and sum(e["args"]["call"] > 0 for e in of(events, "sum")) == stats["calls"],
          "%s: calls: %s" % (what, stats["calls"]))
    # the counters were read at the last token, what was on its way then came behind it
    for name, n, size in (("read", None, stats["bytes_read"]), ("upload", stats["uploads"], stats["upload_bytes"]),
                          ("copy down", stats["copies_down"], None)):
        found = of(events, name)
        late = [0] + sorted((e["args"]["bytes"] for e in found), key=lambda b: -b)[:16 if name == "read" else LATE]
        check(n is None or n <= len(found) <= n + LATE, "%s: %d of %s, %s by --stats" % (what, len(found), name, n))
        check(size is None or size <= total(found, name, "bytes") <= size + sum(late),
              "%s: %d bytes of %s, %s by --stats" % (what, total(found, name, "bytes"), name, size))
    nested(events, what)
    calls = {e["args"]["call"]: e for e in of(events, "publish")}
    check(sorted(calls) == list(range(1, len(calls) + 1)), "%s: calls are numbered from 1" % what)
    ends = {e["args"]["call"]: e["ts"] + e["dur"] for e in of(events, "sum")}
    for e in of(events, "pass"):
        n = e["args"]["call"]
        # a pass is told of when it has stamped: the sum may be over by then
        check(calls[n]["ts"] - 0.01 <= e["ts"] <= ends[n] and e["args"]["layer"] == calls[n]["args"]["layer"],
              "%s: pass %s outside of its call %s" % (what, e, calls[n]))
    steps = sorted((e["ts"], e["ts"] + e["dur"]) for e in of(events, "step"))
    for e in of(events, "publish") + of(events, "sum") + of(events, "wait"):
        check(any(a - 0.01 <= e["ts"] and e["ts"] + e["dur"] <= b + 0.01 for a, b in steps), "%s: outside of steps: %s" % (what, e))
    return events, stats


timeline(processes=["coordinator", "pager", "cpu worker 0"])
events, stats = timeline("--ram", "1M", "--nodes", 2, "--batch", 3,
                         processes=["coordinator", "pager", "cpu worker 0", "cpu worker 1"])
check(any("expert" in e["args"] for e in of(events, "read")) and stats["disk_items"] > 0, "no expert was read")
events, _ = timeline("--cards", "emu:1", processes=["coordinator", "pager", "cpu worker 0", "emulated card 0"])
check(len(of(events, "step on a card")) == len(of(events, "step")), "steps on the card")
timeline("--ram", "1M", "--cards", "emu:2:1M", processes=["coordinator", "pager", "cpu worker 0", "emulated card 0",
                                                         "emulated card 1"])
events, stats = timeline("--cards", "emu:2:2M", "--warm-first",
                         processes=["coordinator", "pager", "cpu worker 0", "emulated card 0", "emulated card 1"])
check(stats["uploads"] > 0, "nothing was uploaded")

def with_a_death():
    """A card's worker is killed: its successor goes on in the same ring under its own pid, and the file is whole."""
    command = ("run", "-m", STORY, "-p", PROMPT, "-n", 200, "--temp", 0, "--ignore-eos", "--no-heat", "--cards", "emu:1")
    quiet = conclave(*command)
    p = start(*command, "--trace", path("d.json"), bufsize=0)
    first = p.stdout.read(1)
    killed = [pid for pid, name in children(p.pid).items() if name.startswith("conclave-gpu")]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    out, err = p.communicate(timeout=120)
    check(len(killed) == 1 and p.returncode == 0 and first + out == quiet.stdout, "a death: %d %s" % (p.returncode, err))
    _, names, _ = load("d.json")
    lives = [pid for pid, name in names.items() if name == "emulated card 0"]
    check(len(lives) == 2 and killed[0] in lives, "a card's two lives: %s, killed %s: %s" % (names, killed, err[-300:]))


with_a_death()
p = conclave(*EVAL, "--logits", path("a"))
q = conclave(*EVAL, "--logits", path("b"), "--trace", path("e.json"))
check(q.returncode == 0 and open(path("a"), "rb").read() == open(path("b"), "rb").read(), "eval: %s" % q.stderr)
check(len(of(load("e.json")[0], "step")) > 0, "eval has steps")

refused(check, conclave(*EVAL, "--greedy", 1, "--trace", path("no/t.json")), 1, "no/t.json", "No such file")
refused(check, conclave(*EVAL, "--greedy", 1, "--trace", path("x"), "--stats", path("x")), 1, "--trace", "--stats")
p = conclave(*EVAL, "--greedy", 1, "--trace", "/dev/full")
check(p.returncode == 1 and b"/dev/full" in p.stderr and b"No space" in p.stderr, "/dev/full: %d %s" % (p.returncode, p.stderr))
with open(path("kept"), "w") as f:
    f.write("before")
p = conclave("run", "-m", STORY, "-p", "x", "--ram", "1", "--trace", path("kept"))
check(p.returncode == 1 and open(path("kept")).read() == "before", "a run that cannot begin has cost the old file")
p = subprocess.run("%s %s --greedy 1 --trace /dev/stderr 2>&1 >/dev/null | head -c 1" % (program(), " ".join(EVAL)), shell=True,
                   capture_output=True)
check(p.stdout == b"[", "a timeline into a pipe: %s" % p.stdout)
check(not shm.left(), "something is left in /dev/shm")
check.end()
