#!/usr/bin/env python3
"""Named buffers (`eval --dump`) of the tiny models against the float64 tensors: within 1e-4 of each
tensor's largest number, chosen experts identical."""
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from buffers import load  # noqa: E402
from conclave import Checks, Eval, cases  # noqa: E402


check = Checks()
for name, model, folder, prompt in cases(["tiny/olmoe", "tiny/qwen3moe"]):
    want = load(folder, prompt)
    for batch in (1, 5, len(prompt["tokens"])):
        what = "%s %s --batch %d" % (name, prompt["name"], batch)
        with tempfile.TemporaryDirectory() as d:
            r = Eval(model, prompt["tokens"], "--kv", "f32", "--batch", batch, "--dump", d)
            if not check(r.ok, "%s: %s" % (what, r.error())):
                continue
            got = load(d)
        for key, (shape, a) in want.items():
            if not check(key in got, "%s: no buffer %s" % (what, key)):
                continue
            have, b = got[key]
            if not check(list(have) == list(shape), "%s %s: shape %s, wanted %s" % (what, key, have, shape)):
                continue
            if a.typecode == "i":
                check(a == b, "%s %s: not identical" % (what, key))
            else:
                most = max(map(abs, a))
                worst = max(abs(x - y) for x, y in zip(a, b))
                check(worst <= 1e-4 * most, "%s %s: differs by %g, largest is %g" % (what, key, worst, most))
check.end()
