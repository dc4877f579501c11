#!/usr/bin/env python3
"""What is kept of the router's choices: recorded routes are the reference's in every batch shape; a start
with the heat file beats one without it over the first 64 tokens, and a heat file that cannot be used costs
one line. No answer changes by any of it."""
import array
import json
import os
import re
import sys
import tempfile

sys.path.insert(0, "tests/lib")
import buffers  # noqa: E402
from cli import SHORT, STORY, own_lines, refused  # noqa: E402
from conclave import DEMO, Checks, cases, conclave  # noqa: E402

check = Checks()
dir_ = tempfile.TemporaryDirectory()
tmp = dir_.name
routes_file, stats_file = os.path.join(tmp, "routes.npy"), os.path.join(tmp, "stats.json")


def read_npy(path):
    """(shape, numbers) of an array of u8 or u16."""
    with open(path, "rb") as f:
        data = f.read()
    n = int.from_bytes(data[8:10], "little")
    head = data[10:10 + n].decode()
    a = array.array({"|u1": "B", "<u2": "H"}[re.search(r"'descr': '(.*?)'", head).group(1)])
    a.frombytes(data[10 + n:])
    return [int(x) for x in re.search(r"\((.*?)\)", head).group(1).split(",") if x.strip()], a


# --- routes: golden models, expert by expert -----------------------------------------------------
def layers_of(tensors):
    """[token][layer][k] of a golden case or a dump, flat."""
    layers = []
    while "L%d.experts" % len(layers) in tensors:
        layers.append(tensors["L%d.experts" % len(layers)])
    (n, k), _ = layers[0]
    return [n, len(layers), k], [e for t in range(n) for _, x in layers for e in x[t * k:(t + 1) * k]]


for name, model, folder, prompt in cases(["tiny/olmoe", "tiny/qwen3moe"]):
    shape, want = layers_of(buffers.load(folder, prompt))
    n = len(prompt["tokens"])
    for batch in sorted({1, 2, 7, n}):
        for more in ([], ["--ram", "100K", "--nodes", 2]):
            p = conclave("eval", "-m", model, "--tokens", ",".join(map(str, prompt["tokens"])), "--kv", "f32",
                         "--batch", batch, "--record-routes", routes_file, *more)
            if not check(p.returncode == 0, "%s --batch %d %s: %s" % (name, batch, more, p.stderr)):
                continue
            got = read_npy(routes_file)
            check(got[0] == shape and list(got[1]) == want, "%s %s --batch %d %s: other routes, shape %s, not %s" %
                  (name, prompt["name"], batch, more, got[0], shape))

# the demo model: every pass of an answer, as the dump of the same tokens has it; the same model with F16
# weights chose nearly the same
with open(DEMO + "/story-moe-routing-tokens.npy", "rb") as f:
    ids = array.array("H", f.read()[128:128 + 2 * 96])
p = conclave("eval", "-m", STORY, "--tokens", ",".join(map(str, ids)), "--dump", os.path.join(tmp, "dump"),
             "--batch", 31, "--record-routes", routes_file)
check(p.returncode == 0, "dump of the demo model: %s" % p.stderr)
shape, got = read_npy(routes_file)
check((shape, list(got)) == layers_of(buffers.load(os.path.join(tmp, "dump"))), "the demo model: routes and dump differ")
_, f16 = read_npy(DEMO + "/story-moe-routing.npy")
same = sum(a == b for a, b in zip(got, f16)) / len(got)
check(same > 0.8, "the demo model chooses as with F16 weights only %.2f of the time" % same)

p = conclave("run", "-m", STORY, "-p", SHORT, "-n", 5, "--temp", 0, "--record-routes", routes_file)
check(read_npy(routes_file)[0] == [24, 4, 3], "run: 20 tokens and 4 of 5: %s" % read_npy(routes_file)[0])
p = conclave("simulate", "--routes", routes_file, "--ram", "50%")
check(p.returncode == 0 and b"24 tokens, 4 layers" in p.stdout, "simulate reads what run wrote: %s" % p)
with open(DEMO + "/heldout.txt") as f, open(os.path.join(tmp, "text"), "w") as text:
    text.write(f.read(500))
p = conclave("perplexity", "-m", STORY, "-f", text.name, "-c", 32, "--record-routes", routes_file)
shape, _ = read_npy(routes_file)
check(p.returncode == 0 and shape == [124, 4, 3], "perplexity: %s %s" % (shape, p.stderr))
with open(os.path.join(tmp, "model.gguf"), "wb") as f:
    f.write(b"GGUF and more")
refused(check, conclave("run", "-m", STORY, "-p", SHORT, "-n", 1, "--record-routes", f.name), 1, f.name, "model")
check(os.path.getsize(f.name) == 13, "a model file was written over")
before = open(routes_file, "rb").read()  # a run that cannot begin leaves an earlier trace, and no new file
for name in (routes_file, tmp + "/new.npy"):
    p = conclave("run", "-m", STORY, "-p", SHORT, "-n", 1, "--record-routes", name, env=dict(os.environ, CONCLAVE_IO="x"))
    refused(check, p, 1, "CONCLAVE_IO")
check(open(routes_file, "rb").read() == before and len(before) > 128, "the trace of an earlier run is gone")
check(not os.path.exists(tmp + "/new.npy"), "an empty trace was left")
refused(check, conclave("run", "-m", STORY, "-p", SHORT, "-n", 1, "--record-routes", tmp + "/no/such"), 1, "no/such")
if os.path.exists("/dev/full"):
    refused(check, conclave("run", "-m", STORY, "-p", SHORT, "-n", 1, "--record-routes", "/dev/full"), 1, "/dev/full",
            lines=9)

# --- heat: a second start ------------------------------------------------------------------------
cache = os.path.join(tmp, "cache")
os.environ["XDG_CACHE_HOME"] = cache


def run(*more, n=64, ahead="off"):
    p = conclave("run", "-m", STORY, "--ram", "3500K", "-p", SHORT, "-n", n, "--temp", 0, "--ignore-eos", "--stats",
                 stats_file, "--prefetch", ahead, *more)
    check(p.returncode == 0, "run %s: %s" % (more, p.stderr))
    s = json.load(open(stats_file))
    return p, s["residency"], s["bytes_read"] - s["loaded_bytes"] - s["residency"]["warm_bytes"]


def heat_files():
    return [os.path.join(d, f) for d, _, files in os.walk(cache) for f in files]


cold, first, first_bytes = run()
check(len(heat_files()) == 1, "heat files after a run: %s" % heat_files())
first_heat = open(heat_files()[0], "rb").read()
check(first["warm_reads"] == 0 and first["misses"] == first["demand_reads"], "a cold start: %s" % first)
beside, s, _ = run()  # how far the warm reads get before an expert is demanded is the disk's to say
check(beside.stdout == cold.stdout, "another answer with heat read beside it")
check(0 < s["warm_reads"] <= s["places"] and s["warm_raised"] <= s["warm_reads"], "warm reads: %s" % s)
check(s["demand_reads"] + s["warm_raised"] <= s["misses"], "a miss that a warm read met was read again: %s" % s)
with open(heat_files()[0], "wb") as f:  # as after the first run
    f.write(first_heat)
warm, second, second_bytes = run("--warm-first")
check(warm.stdout == cold.stdout, "another answer with heat")
check(second["warm_reads"] == second["places"], "warm reads: %s" % second)
check(second["misses"] < first["misses"] and second_bytes < first_bytes,
      "64 tokens with heat: %d misses, %d bytes; without: %d, %d" %
      (second["misses"], second_bytes, first["misses"], first_bytes))
_, third, _ = run("--no-heat")
check(third == first, "--no-heat is no cold start: %s" % third)
p, s, _ = run("--no-heat", "--ram", "5M", ahead="on")  # room for spare places
check(p.stdout == cold.stdout, "another answer with reading ahead")
check(s["prefetch"]["steps"] >= 63 and s["prefetch"]["in_time"] + s["prefetch"]["late"] > 0, "read ahead: %s" % s)
before = open(heat_files()[0], "rb").read()
p = conclave("eval", "-m", STORY, "--tokens", "1,2,3", "--ram", "3500K", "--greedy", 4, "--stats", stats_file)
check(json.load(open(stats_file))["residency"]["warm_reads"] == 0 and open(heat_files()[0], "rb").read() == before,
      "eval uses or changes the heat file")

conclave("eval", "-m", STORY, "--tokens", "1,2,3", "--greedy", 4, "--stats", stats_file)
s = json.load(open(stats_file))
check((s["residency"]["places"], s["residency"]["residents"], s["residency"]["misses"]) == (s["experts"], s["experts"], 0),
      "all in memory: %s" % s["residency"])

# one that cannot be used: a line, a cold start, and a good one afterwards
(path,) = heat_files()
good = open(path, "rb").read()
for what, data in (("cut off", good[:len(good) // 2]), ("damaged", good[:-1] + bytes([good[-1] ^ 1])),
                   ("no heat file", b"x" * len(good)), ("of another model", good[:24] + b"\1" * 24 + good[48:])):
    with open(path, "wb") as f:
        f.write(data)
    p, s, _ = run(n=4)
    check(s["warm_reads"] == 0 and sum("starting without heat" in x and what in x for x in own_lines(p)) == 1 and
          len(own_lines(p)) == 3, "%s: %s %s" % (what, own_lines(p), s))
    check(open(path, "rb").read()[:8] == good[:8], "%s: not replaced" % what)
for policy in ("lru", "lfu"):
    p, s, _ = run("--cache-policy", policy)
    check(p.stdout == cold.stdout and s["policy"] == policy, "%s: %s" % (policy, s))
del os.environ["XDG_CACHE_HOME"]
home = os.environ.pop("HOME", None)
p, _, _ = run(n=4)
check(sum("heat is not remembered" in x for x in own_lines(p)) == 1, "without HOME: %s" % own_lines(p))
os.environ["HOME"] = os.path.join(tmp, "model.gguf")  # no folder
p, _, _ = run(n=4)
check(any("cannot make this folder" in x and "heat is not kept" in x for x in own_lines(p)), "no folder: %s" % own_lines(p))
if home:
    os.environ["HOME"] = home
check.end()
