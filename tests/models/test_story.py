#!/usr/bin/env python3
"""The demo model: its greedy texts byte for byte, logits' hashes, perplexity on the held-out stories,
the same figure for every batch, thread count and number of nodes."""
import json
import sys

sys.path.insert(0, "tests/lib")
from conclave import DEMO, Checks, Eval, conclave, whole_model_hashes  # noqa: E402

MODEL = DEMO + "/story-moe-q4_k_m.gguf"
check = Checks()
table = whole_model_hashes()
with open(DEMO + "/ref/story-moe.json") as f:
    prompts = json.load(f)["prompts"]
for prompt in prompts:
    for kv in ("f32", "f16"):
        r = Eval(MODEL, prompt["tokens"], "--kv", kv)
        wanted = table["demo/story-moe", prompt["name"]][kv]
        check(r.ok and r.hash() == wanted, "story-moe %s --kv %s: hash %s, wanted %s %s" %
              (prompt["name"], kv, r.hash(), wanted, "" if r.ok else r.error()))
    p = conclave("run", "-m", MODEL, "-p", prompt["text"], "-n", len(prompt["greedy"]), "--temp", 0,
                 "--no-display-prompt", "--ignore-eos")
    check(p.returncode == 0 and p.stdout == prompt["greedy_text"].encode(),
          "story-moe %s: text %r, wanted %r %s" % (prompt["name"], p.stdout, prompt["greedy_text"], p.stderr[-300:]))
    p = conclave("tokenize", "-m", MODEL, "-p", prompt["text"])
    check(p.stdout.decode().split() == list(map(str, prompt["tokens"])), "story-moe %s: ids" % prompt["name"])

figures = {}
for args in ((), ("--batch", 1, "-t", 1), ("--batch", 37), ("-t", 1), ("--nodes", 2), ("--nodes", 3, "-t", 2, "--batch", 100)):
    p = conclave("perplexity", "-m", MODEL, "-f", DEMO + "/heldout.txt", "-c", 512, *args, timeout=900)
    last = p.stdout.decode().strip().split("\n")[-1]
    if check(p.returncode == 0, "perplexity %s: %s" % (args, p.stderr[-300:])):
        figures[args] = last
print("perplexity", figures)
check(len(set(figures.values())) == 1, "perplexity differs: %s" % figures)
value = float(figures.get((), "nan"))
check(abs(value / 1.54369 - 1) <= 0.003, "perplexity %s, wanted 1.54369 within 0.3%%" % value)
check.end()
