#!/usr/bin/env python3
"""Bytes of the logits for every combination of nodes, threads, --ram and batch, for every golden model
and the demo model: one value each. The cache policies take turns, reading ahead is on, or off, rows of an n-gram table lie in memory or are read. The slabs stay inside --ram, experts
are read more than once where they do not fit, and every node computes rows."""
import itertools
import json
import sys

sys.path.insert(0, "tests/lib")
from conclave import DEMO, Checks, Eval, cases  # noqa: E402

NAMES = ["tiny/olmoe", "tiny/qwen3moe", "models/olmoe-q8_0", "models/qwen3moe-q4_k_m", "models/qwen3moe-iq",
         "tiny/qwen35moe", "models/qwen35moe-q8_0", "models/qwen35moe-q4_k_m", "tiny/qwen4exp",
         "models/qwen4exp-q8_0-iq4_xs", "tiny/glm5next"]


def prompts():
    for name, model, _, prompt in cases(NAMES):
        if prompt["name"] not in ("short", "eos"):  # the long one runs the same code on more tokens
            yield name, model, prompt["tokens"], "nextn" in prompt
    with open(DEMO + "/ref/story-moe.json") as f:
        case = json.load(f)
    yield "story-moe", DEMO + "/story-moe-q4_k_m.gguf", case["prompts"][-1]["tokens"], False


check = Checks()
policies = itertools.cycle(("heat", "lru", "heat", "lfu", "heat"))
read_ahead = 0
ahead = itertools.cycle(("on", "on", "off"))
tables = itertools.cycle(("1G", "4K", "12K"))  # whole; rows of a token or two; most of them
for name, model, tokens, nextn in prompts():
    base = Eval(model, tokens, "--nodes", 1, "-t", 1, "--batch", 1)
    if not check(base.ok, "%s: %s" % (name, base.error())):
        continue
    for nodes in (1, 2, 3):
        probe = Eval(model, tokens[:1], "--nodes", nodes)
        if not check(probe.ok, "%s --nodes %d: %s" % (name, nodes, probe.error())):
            continue
        whole, one = probe.stats["slab_bytes_all"], probe.stats["slab_bytes_one"]
        experts = probe.stats["experts"]
        for ram in (whole, max(whole // 2, one), max(whole // 4, one), max(whole // 10, one), one):
            for threads in (1, 2):
                for batch in (1, len(tokens)):
                    args = ("--nodes", nodes, "-t", threads, "--ram", ram, "--batch", batch,
                            "--cache-policy", next(policies), "--prefetch", next(ahead), "--table-ram", next(tables))
                    what = "%s %s" % (name, " ".join(map(str, args)))
                    r = Eval(model, tokens, *args)
                    if not check(r.ok, "%s: %s" % (what, r.error())):
                        continue
                    check(r.logits == base.logits, "%s: other bytes" % what)
                    s = r.stats
                    check(s["slab_bytes"] <= ram, "%s: %d bytes of slabs" % (what, s["slab_bytes"]))
                    check(s["net_finds"] == 0, "%s: %d wake-ups lost" % (what, s["net_finds"]))
                    workers = [w for w in s["workers"] if w["name"].startswith("cpu worker")]
                    check(len(workers) == nodes and all(w["rows"] > 0 for w in workers),
                          "%s: a node without rows: %s" % (what, workers))
                    if ram == whole:
                        check(s["expert_reads"] == experts, "%s: %d reads of %d experts" %
                              (what, s["expert_reads"], experts))
                    elif ram <= whole // 2 and batch == 1 and len(tokens) >= 20:
                        check(s["expert_reads"] > experts, "%s: %d reads of %d experts: none twice?" %
                              (what, s["expert_reads"], experts))
        # nearly all at hand: spare places enough to read ahead into
        r = Eval(model, tokens, "--nodes", nodes, "--ram", whole * 7 // 8, "--batch", 1, "--prefetch", "on")
        if check(r.ok and r.logits == base.logits, "%s --nodes %d, reading ahead: other bytes" % (name, nodes)):
            read_ahead += sum(r.stats["residency"]["prefetch"][k] for k in ("in_time", "late", "wasted"))
    if not nextn:
        continue
    # rows of the NextN block
    base = Eval(model, tokens, "--nodes", 1, "-t", 1, "--batch", 1, nextn=True)
    check(base.ok and base.nextn, "%s: NextN rows: %s" % (name, base.error()))
    for cards, nodes, ram, batch in itertools.product((None, "emu:1", "emu:2"), (1, 3), (whole, max(whole // 4, one)),
                                                      (1, 5, len(tokens))):
        args = ("--nodes", nodes, "--ram", ram, "--batch", batch, "--prefetch", "off" if cards else next(ahead),
                *(("--cards", cards) if cards else ()))
        r = Eval(model, tokens, *args, nextn=True)
        check(r.ok and r.logits == base.logits and r.nextn == base.nextn, "%s %s: other NextN bytes: %s" %
              (name, " ".join(map(str, args)), r.error()))
check(read_ahead > 0, "nothing was read ahead")
check.end()
