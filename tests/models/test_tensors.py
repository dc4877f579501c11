#!/usr/bin/env python3
"""Named buffers (`eval --dump`) of the tiny models against the float64 tensors: within 1e-4 of each
tensor's largest number, chosen experts, pools and positions identical. Some bounds are closer: what they
are for is in the model's specification."""
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from buffers import load  # noqa: E402
from conclave import Checks, Eval, cases  # noqa: E402


CLOSE = {"hc_attn_pre": 1e-6, "hc_attn_post": 2e-6, "hc_attn_comb": 1e-6, "hc_ffn_pre": 1e-6, "hc_ffn_post": 2e-6,
         "hc_ffn_comb": 1e-6, "idx_pool": 5e-6, "ffn_out": 2e-5}  # glm5next: absolute


def counted(key, shape, a):
    """Of scores those of blocks that are complete at their position: the reference has numbers for all."""
    if not key.endswith("index_scores"):
        return a
    ratio, (positions, blocks) = 4, shape  # of the tiny model
    return [a[p * blocks + k] for p in range(positions) for k in range(blocks) if (k + 1) * ratio <= p + 1]


check = Checks()
for name, model, folder, prompt in cases(["tiny/olmoe", "tiny/qwen3moe", "tiny/qwen35moe", "tiny/qwen4exp", "tiny/glm5next"]):
    want = load(folder, prompt)
    for batch in (1, 5, len(prompt["tokens"])):
        what = "%s %s --batch %d" % (name, prompt["name"], batch)
        with tempfile.TemporaryDirectory() as d:
            r = Eval(model, prompt["tokens"], "--kv", "f32", "--batch", batch, "--dump", d,
                     nextn="nextn" in prompt)
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
                a, b = counted(key, shape, a), counted(key, shape, b)
                most = max(map(abs, a))
                worst = max(abs(x - y) for x, y in zip(a, b))
                bound = CLOSE.get(key.split(".")[-1], 1e-4 * most) if "glm5next" in name else 1e-4 * most
                check(worst <= bound, "%s %s: differs by %g, largest is %g" % (what, key, worst, most))
check.end()
