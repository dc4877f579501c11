#!/usr/bin/env python3
"""scripts/compare-dumps: a dump against the float64 tensors, against itself, with one number changed."""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from conclave import GOLDEN, Checks, Eval, cases  # noqa: E402

CASE = GOLDEN + "/tiny/glm5next"
check = Checks()


def compare(*args):
    return subprocess.run(["scripts/compare-dumps"] + [str(a) for a in args], capture_output=True, text=True)


with tempfile.TemporaryDirectory() as d:
    prompt = next(p for _, _, _, p in cases(["tiny/glm5next"]) if p["name"] == "short")
    one, other = d + "/one", d + "/other"
    r = Eval(CASE + "/model.gguf", prompt["tokens"], "--kv", "f32", "--dump", one, nextn=True)
    check(r.ok, r.error())
    p = compare(CASE + ":short", one, "--most", 1e-5)
    check(p.returncode == 0 and "%d buffers compared" % len(prompt["tensors"]) in p.stdout, "golden: %s" % p)
    check("experts              L2*      equal" in p.stdout and "kda_scan" in p.stdout, "golden: %s" % p.stdout)
    p = compare(one, one, "--layers", "--most", 0)
    check(p.returncode == 0 and "L3       equal" in p.stdout, "itself: %s" % p)
    shutil.copytree(one, other)
    with open(os.path.join(other, "tensors.bin"), "r+b") as f:
        x, = struct.unpack("<f", f.read(4))
        f.seek(0)
        f.write(struct.pack("<f", x + 0.5))
    p = compare(one, other, "--most", 1e-3)
    first = p.stdout.splitlines()[1].split()
    check(p.returncode == 1 and first[:2] == ["embd", "5.00e-01"], "one number off: %s" % p)
    p = compare(one, d + "/nothing")
    check(p.returncode == 1 and len(p.stderr.splitlines()) == 1, "no such folder: %s" % p)
    p = compare(CASE + ":nobody", one)
    check(p.returncode == 1 and "no prompt nobody" in p.stderr, "no such prompt: %s" % p)
check.end()
