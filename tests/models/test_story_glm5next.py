#!/usr/bin/env python3
"""story-glm5next, the trained model with a recurrent part, selected attention and a NextN block: logits within
5e-5 of the float64 references, best tokens and sums at every position, experts and pools equal, hashes, greedy
texts, perplexity on the held-out stories. Beyond the width of the selection: attention over the selected list
against a plain computation over the same positions."""
import json
import math
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from buffers import load  # noqa: E402
from conclave import DEMO, Checks, Eval, conclave, floats, read_floats, whole_model_hashes  # noqa: E402

MODEL, REF, VOCAB = DEMO + "/story-glm5next-f16.gguf", DEMO + "/ref", 2048
check = Checks()
table = whole_model_hashes()


def rows_of(data, n):
    a = floats(data)
    return [a[i * n:(i + 1) * n] for i in range(len(a) // n)]


def logsumexp(row):
    m = max(row)
    return m + math.log(sum(math.exp(x - m) for x in row))


def near(what, rows, ref):
    """ref: its file of some rows, best tokens and sums of all."""
    want = read_floats("%s/%s" % (REF, ref["logits"]))
    far = max(abs(rows[p][k] - want[i * VOCAB + k]) for i, p in enumerate(ref["rows"]) for k in range(VOCAB))
    check(far <= 5e-5, "%s: differs by %g" % (what, far))
    best = [r.index(max(r)) for r in rows]
    check(best == ref.get("argmax", ref.get("draft")), "%s: other best tokens" % what)
    far = max(abs(logsumexp(r) - x) for r, x in zip(rows, ref["logsumexp"]))
    check(far <= 5e-5, "%s: sums differ by %g" % (what, far))


def same_choice(what, got, prompt):
    """Experts, their weights, pools."""
    for name, (shape, want) in load(REF, prompt).items():
        if name.endswith("_gap"):
            continue
        first = prompt["tensors"][[t["name"] for t in prompt["tensors"]].index(name)].get("pos0", 0)
        width = shape[1]
        have = got[name][1][first * width:]
        if want.typecode == "i":
            check(have == want, "%s %s: another choice" % (what, name))
        else:
            far = max(abs(a - b) for a, b in zip(have, want))
            check(len(have) == len(want) and far <= 1e-5, "%s %s: differs by %g" % (what, name, far))


def plain_attention(what, got, layer, positions):
    """Softmax over the listed positions, one after another, in double: what the selected list must give."""
    (_, heads, rank), q = got[layer + ".q_absorbed"]
    latent, seen, z = got[layer + ".latent"][1], got[layer + ".attended"][1], got[layer + ".attn_latent"][1]
    n = len(seen) // got[layer + ".attended"][0][0]
    worst = 0
    for p in positions:
        listed = [j for j in range(n) if seen[p * n + j]]
        check(len(listed) < p + 1, "%s %s: position %d sees all" % (what, layer, p))
        for h in range(heads):
            at = (p * heads + h) * rank
            score = [sum(q[at + i] * latent[j * rank + i] for i in range(rank)) / math.sqrt(32) for j in listed]
            top = max(score)
            weight = [math.exp(s - top) for s in score]
            for i in range(rank):
                want = sum(w * latent[j * rank + i] for w, j in zip(weight, listed)) / sum(weight)
                worst = max(worst, abs(want - z[at + i]))
    check(worst < 2e-6, "%s %s: attention over the list differs by %g" % (what, layer, worst))


with open(REF + "/case.json") as f:
    prompts = json.load(f)["prompts"]
for prompt in prompts:
    tokens, name = prompt["tokens"], prompt["name"]
    for kv in ("f32", "f16"):
        what = "story-glm5next %s --kv %s" % (name, kv)
        with tempfile.TemporaryDirectory() as d:
            r = Eval(MODEL, tokens, "--kv", kv, *(("--dump", d) if kv == "f32" else ()), nextn=True)
            if not check(r.ok, "%s: %s" % (what, r.error())):
                continue
            got = load(d) if kv == "f32" else None
        wanted = table["demo/story-glm5next", name]
        check(r.hash() == wanted[kv] and r.hash(True) == wanted["nextn " + kv], "%s: hashes %s, %s" %
              (what, r.hash(), r.hash(True)))
        one = Eval(MODEL, tokens, "--kv", kv, "--batch", 1 if name == "short" else 29, "-t", 1, nextn=True)
        check(one.logits == r.logits and one.nextn == r.nextn, "%s: other bytes in other passes" % what)
        if kv == "f16":
            continue
        near(what, rows_of(r.logits, VOCAB), prompt)
        near(what + " NextN", rows_of(r.nextn, VOCAB), prompt["nextn"])
        same_choice(what, got, prompt)
        if name == "long":
            plain_attention(what, got, "L3", (191, 200, 217, 231))
            plain_attention(what, got, "N", (195, 230))
    p = conclave("run", "-m", MODEL, "-p", prompt["text"], "-n", 96, "--temp", 0, "--no-display-prompt", "--draft", 0)
    check(p.returncode == 0 and p.stdout == prompt["greedy_text"].encode(), "story-glm5next %s: text %r %s" %
          (name, p.stdout, p.stderr[-300:]))
    p = conclave("tokenize", "-m", MODEL, "-p", prompt["text"])
    check(p.stdout.decode().split() == list(map(str, tokens)), "story-glm5next %s: ids" % name)
p = conclave("perplexity", "-m", MODEL, "-f", DEMO + "/heldout.txt", "-c", 256, "--kv", "f32", timeout=900)
value = float(p.stdout.decode().strip().split("\n")[-1]) if p.returncode == 0 else float("nan")
check(abs(value / 1.51555 - 1) <= 0.001, "perplexity %s, wanted 1.51555 within 0.1%%: %s" % (value, p.stderr[-300:]))
check.end()
