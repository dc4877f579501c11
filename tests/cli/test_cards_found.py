#!/usr/bin/env python3
"""--cards and --trunk against cards that are there, missing, full or of the wrong age, as a probe in place of
conclave-gpu's tells them (CONCLAVE_PROBE): one clear line each; what is chosen automatically never ends a run."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from cli import STORY, refused  # noqa: E402
from conclave import Checks, conclave  # noqa: E402

check = Checks()
dir_ = tempfile.TemporaryDirectory()
GIB = 1 << 30


def card(number, **more):
    return {"number": number, "name": "NVIDIA H200", "major": 9, "minor": 0, "pci": "0000:18:00.0", "numa": 0,
            "multiprocessors": 132, "total_bytes": 140 * GIB, "free_bytes": 139 * GIB, "runs": True, "registers": True,
            "registers_read_only": False, "peers": [], "problem": None, **more}


def told(cards, **more):
    return json.dumps({"build": "cuda", "archs": "75 80 90 90+ptx", "driver": 13000, "runtime": 13000,
                       "problem": None, "cards": cards, **more})


def probe(text, script="cat <<'END'\n%s\nEND\n"):
    path = os.path.join(dir_.name, "probe")
    with open(path, "w") as f:
        f.write("#!/bin/sh\n" + (script % text if "%s" in script else script))
    os.chmod(path, 0o755)
    return path


def run(probe_path, *args):
    return conclave("run", "-m", STORY, "-p", "One", "-n", 4, "--temp", 0, *args,
                    env={**os.environ, "CONCLAVE_PROBE": probe_path})


base = run("/nowhere", "--cards", "none")
check(base.returncode == 0, "a run without cards: %s" % base.stderr)


def goes_on(p, what, *words):
    """The text of the run without cards, and a line that holds the words; no words: no such line."""
    lines = [x for x in p.stderr.decode().splitlines() if "card" in x]
    check(p.returncode == 0 and p.stdout == base.stdout, "%s: status %d, %s" % (what, p.returncode, p.stderr))
    check(len(lines) == bool(words) and all(w in lines[0] for w in words), "%s: said %s, wanted %s" % (what, lines, words))


def both(what, path, *words, always=False):
    """Named: an error. Automatic: the run goes on; said with -v, or always where there is a driver."""
    refused(check, run(path, "--cards", "0"), 1, "--cards", *words, what=what)
    goes_on(run(path), what, *(words if always else ()))
    goes_on(run(path, "--cards", "all", "-v"), what, *words)


none = told([], driver=0, problem="no NVIDIA driver is installed: install one to use cards")
both("no driver", probe(none), "no NVIDIA driver")
both("driver too old", probe(told([], driver=12020, problem="the driver is too old: it knows CUDA 12.2, this build "
                                  "needs 13.0 or later: install a newer driver")), "too old", "12.2", "13.0", always=True)
both("built without CUDA", probe(told([], archs="", driver=0, problem="this conclave-gpu was built without CUDA")),
     "without CUDA")
both("no device", probe(told([], problem="the driver finds no card")), "finds no card", always=True)
both("a card of the wrong age", probe(told([card(0, name="Tesla P100", major=6, runs=False)])), "Tesla P100", "6.0",
     "7.5, 8.0, 9.0 and later", "CUDA_ARCH=60", always=True)
both("a full card", probe(told([card(0, free_bytes=GIB // 4)])), "NVIDIA H200", "full", "0.25 GiB", "1.00 GiB", always=True)
both("a card that cannot be opened", probe(told([card(0, problem="cannot be opened: busy")])), "cannot be opened", "busy",
     always=True)
both("a library missing", probe("", "echo 'conclave-gpu: error while loading shared libraries: libnuma.so.1: cannot open "
                                "shared object file' >&2\nexit 127\n"), "status 127", "libnuma.so.1")
both("a probe that is killed", probe("", "kill -9 $$\n"), "signal 9")
both("nonsense", probe("hello"), "its text")
both("no probe", "/nowhere/probe", "/nowhere/probe", "No such file")

# cards that are found, but whose workers do not all start: no machine of ours has so many
lost = probe(told([card(n) for n in range(8)]))
check(run(lost, "--cards", "7", "-t", 1).returncode == 1, "a named card that does not start")
goes_on(run(lost, "-t", 1), "a card that does not start", "cards are not used", "card ")
with tempfile.TemporaryDirectory() as d:
    trace, routes = os.path.join(d, "trace"), os.path.join(d, "routes")
    goes_on(run(lost, "-t", 1, "--trace", trace, "--record-routes", routes), "the same, with a timeline", "cards are not used")
    with open(trace) as f:
        events = json.load(f)
    check(sum(x["name"] == "step" for x in events) > 1, "no step in the timeline")
    check(os.path.exists(routes) and os.path.getsize(routes) > 0, "no routes")

# a small model: sixteen threads are sooner than a card; one is not
goes_on(run(lost, "-t", 16), "a small model", "cards are not used", "16 threads", "--cards 0")

two = probe(told([card(0), card(1)]))
refused(check, run(two, "--cards", "0,2"), 1, "no card 2", "0 to 1")
refused(check, run(two, "--cards", "0,1", "--trunk", "2"), 1, "--trunk 2")
refused(check, run(two, "--cards", "none", "--trunk", "0"), 1, "--trunk 0")
refused(check, run(two, "--cards", "emu:1", "--trunk", "1"), 1, "--trunk 1")
refused(check, run(probe(told([card(0, free_bytes=3 * GIB // 2)])), "--cards", "0,0"), 1, "full", "1.50 GiB", "2.00 GiB",
        "all its workers")
# scripts/gpu-check without a card: one line
with tempfile.TemporaryDirectory() as d:
    os.mkdir(os.path.join(d, "bin"))
    for text, words in ((none, "no NVIDIA driver"), (told([card(0, name="P100", major=6, runs=False)]), "P100 (6.0)"),
                        ("nonsense", "nonsense")):
        os.replace(probe(text), os.path.join(d, "bin", "conclave-gpu"))
        p = subprocess.run(["scripts/gpu-check", d], capture_output=True, timeout=60)
        check(p.returncode == 1 and not p.stdout and p.stderr.startswith(b"gpu-check: no card: ") and p.stderr.count(b"\n") == 1
              and words.encode() in p.stderr, "gpu-check: %d %s" % (p.returncode, p.stderr))

# what reads the trunk's buffers keeps it here: auto is not refused, a card that is named is
with tempfile.TemporaryDirectory() as d:
    tokens = ("eval", "-m", STORY, "--tokens", "1,2,3,4")
    for flag, to in (("--dump", os.path.join(d, "dump")), ("--record-routes", os.path.join(d, "routes"))):
        p = conclave(*tokens, "--greedy", 1, flag, to, "--cards", "emu:2:1M")
        check(p.returncode == 0 and os.path.exists(to), "%s with cards: %s" % (flag, p.stderr))
        refused(check, conclave(*tokens, "--greedy", 1, flag, to, "--cards", "emu:2:1M", "--trunk", 1), 1, flag, "--trunk 1")
    p = conclave(*tokens, "--greedy", 1, "--prefetch", "on", "--ram", "1M",
                 env={**os.environ, "CONCLAVE_PROBE": probe(told([card(0)]))})
    check(p.returncode == 0 and b"not used" in p.stderr and b"--prefetch on" in p.stderr, "--prefetch on: %s" % p.stderr)
    # a card with room for no expert beside the trunk
    small = probe(told([card(0, free_bytes=GIB + GIB // 8)]))
    p = conclave("run", "-m", STORY, "-p", "One", "-n", 4, "--temp", 0, "-c", 200000, "-t", 1,
                 env={**os.environ, "CONCLAVE_PROBE": small})
    check(p.returncode == 0 and p.stdout == base.stdout and b"cards are not used: " in p.stderr, "little room: %s" % p.stderr)

for flag, value in (("--cards", "0,"), ("--cards", "emu:0"), ("--cards", "gpu"), ("--trunk", "gpu"), ("--trunk", "-1")):
    for verb in (("run", "-p", "x"), ("eval", "--tokens", "1"), ("perplexity", "-f", "x")):
        refused(check, conclave(*verb, "-m", STORY, flag, value), 2, flag, what="%s %s %s" % (verb[0], flag, value))
check.end()
