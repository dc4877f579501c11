#!/usr/bin/env python3
"""Bytes of the logits with experts on one, two and three emulated cards, whose pools hold 10%, 50% and all
of the experts, with all experts in RAM and with a quarter of them, one token at a time and all at once: those
of the run without cards, for every golden model and the demo model. A card computes items wherever an expert
lies on it. The CPU's kernels stand for the card's: this is about placement and processes alone."""
import json
import sys

sys.path.insert(0, "tests/lib")
from conclave import DEMO, Checks, Eval, cases, conclave  # noqa: E402

NAMES = ["tiny/olmoe", "tiny/qwen3moe", "models/olmoe-q8_0", "models/qwen3moe-q4_k_m", "models/qwen3moe-iq"]


def prompts():
    for name, model, _, prompt in cases(NAMES):
        if prompt["name"] != "short":  # the long one runs the same code on more tokens
            yield name, model, prompt["tokens"]
    with open(DEMO + "/ref/story-moe.json") as f:
        case = json.load(f)
    yield "story-moe", DEMO + "/story-moe-q4_k_m.gguf", case["prompts"][-1]["tokens"]


def run(what, model, tokens, base, cards, args):
    r = Eval(model, tokens, *args)
    if not check(r.ok, "%s: %s" % (what, r.error())):
        return None
    s = r.stats
    check(r.logits == base.logits, "%s: other bytes" % what)
    check(s["net_finds"] == 0, "%s: %d wake-ups lost" % (what, s["net_finds"]))
    workers = [w for w in s["workers"] if "card" in w]
    check(len(workers) == cards, "%s: %d cards" % (what, len(workers)))
    return s, workers


check = Checks()
for number, (name, model, tokens) in enumerate(prompts()):
    base = Eval(model, tokens, "--nodes", 1, "-t", 1, "--batch", 1)
    if not check(base.ok, "%s: %s" % (name, base.error())):
        continue
    probe = Eval(model, tokens[:1], "--nodes", 2)
    whole, one = base.stats["slab_bytes_all"], probe.stats["slab_bytes_one"]
    for cards in (1, 2, 3):
        for part in (10, 50, 100):
            pool = max(whole * part // 100 // cards, one)
            for batch in (1, len(tokens)):
                nodes = 1 + (cards + part // 10 + number) % 2
                args = ("--cards", "emu:%d:%d" % (cards, pool), "--nodes", nodes, "--batch", batch)
                # all experts in RAM: the slots are filled before the first token
                what = "%s %s" % (name, " ".join(map(str, args)))
                got = run(what, model, tokens, base, cards, args)
                if got:
                    s, workers = got
                    check(s["card_slots"] >= cards and s["uploads"] >= min(s["card_slots"], s["experts"]) - s["card_moves"] - 1 or
                          part == 100, "%s: %d uploads to %d slots" % (what, s["uploads"], s["card_slots"]))
                    # one expert of four is surely used; a single one may not be
                    check(all(w["items"] > 0 for w in workers if w["held"] * 4 >= s["experts"]) and
                          (s["card_items"] + s["own_items"] > 0 or part == 10), "%s: a card without items: %s" % (what, workers))
                    check(s["expert_reads"] == s["experts"], "%s: %d reads" % (what, s["expert_reads"]))
                # a part in RAM: an expert goes to a card after it was read
                if batch > 1 and part == 50:
                    continue
                args += ("--ram", max(whole // 4, one))
                what = "%s %s" % (name, " ".join(map(str, args)))
                got = run(what, model, tokens, base, cards, args)
                if got and batch == 1 and len(tokens) >= 20:
                    s, workers = got
                    check(any(w["came"] > 0 for w in workers), "%s: nothing came to a card: %s" % (what, workers))
                    check(s["card_items"] + s["own_items"] > 0, "%s: no item went to a card" % what)

for value in ("emu", "emu:", "emu:0", "emu:17", "emu:1:", "emu:1:x", "emu:1:0", "emu:-1", "0,", "nvidia"):
    p = conclave("eval", "-m", model, "--tokens", "1", "--cards", value)
    check(p.returncode == 2 and b"--cards" in p.stderr, "--cards %s: %d %s" % (value, p.returncode, p.stderr))
p = conclave("eval", "-m", model, "--tokens", "1", "--greedy", "1", "--cards", "emu:1:1K")
check(p.returncode == 1 and b"hold no expert" in p.stderr, "a pool of 1K: %d %s" % (p.returncode, p.stderr))
check.end()
