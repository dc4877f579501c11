#!/usr/bin/env python3
"""Bytes of the logits with one, two and three emulated cards, whose pools hold 10%, 50% and all of the experts:
those of the run without cards, for every golden model and the demo model. Every model, number of cards and size
of pools meets every batch (1, odd, all at once) and number of nodes, RAM for all experts and for a quarter, the
trunk on one of the cards and on the CPU; of these four, every two of their values meet (the rows of SHAPES). A
card computes items wherever its pool holds an expert. The CPU's kernels stand for the card's: this is about
placement and processes alone. At the end experts leave the cards at every layer of every step, while they are
computed with a delay."""
import json
import os
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from conclave import Checks, Eval, conclave, long_prompts  # noqa: E402

GREEDY = 40  # tokens behind the prompt: by then every card has been sent an expert that is used
FEW = 8
# batch (0: all), nodes, part of the experts in RAM, the trunk on a card
SHAPES = [(1, 1, 1, True), (1, 2, 4, False), (7, 1, 4, True), (7, 2, 1, False), (0, 1, 1, False), (0, 2, 4, True)]


def run(what, model, tokens, base, args, greedy=GREEDY):
    r = Eval(model, tokens, "--greedy", greedy, *args)
    if not check(r.ok, "%s: %s" % (what, r.error())):
        return None, []
    s = r.stats
    check(r.logits == base.logits and r.p.stdout == base.p.stdout, "%s: other bytes" % what)
    check(s["net_finds"] == 0, "%s: %d wake-ups lost" % (what, s["net_finds"]))
    return s, sorted((w for w in s["workers"] if "card" in w), key=lambda w: w["card"])


def counters(what, s, workers, cards, trunk, nodes, all_in_ram):
    """Who computed: each card that holds an expert, the trunk where it was asked to be, and every item once."""
    check([w["card"] for w in workers] == list(range(cards)), "%s: other cards: %s" % (what, workers))
    check([w["card"] for w in workers if w["trunk"]] == ([] if trunk is None else [trunk]), "%s: the trunk: %s" %
          (what, workers))
    for w in workers:
        check(w["items"] > 0 or not (w["came"] or w["held"]), "%s: a card holds experts and has no items: %s" % (what, w))
    # what the trunk's card holds was hit; and hits come from what came there, though it may have left since
    host = [w for w in workers if w["trunk"]]
    check(s["own_items"] > 0 or not any(w["held"] for w in host), "%s: no own hits: %s" % (what, workers))
    check(s["own_items"] == 0 or any(w["came"] for w in host), "%s: own hits: %d, %s" % (what, s["own_items"], workers))
    slots, experts = s["card_slots"], s["experts"]
    check(slots >= cards, "%s: %d slots" % (what, slots))
    if not all_in_ram:
        return
    # the slots are filled before the first token, each with one expert or another
    check(s["uploads"] >= min(slots, experts), "%s: %d uploads to %d slots" % (what, s["uploads"], slots))
    check(s["expert_reads"] == experts, "%s: %d reads" % (what, s["expert_reads"]))
    if slots >= experts:  # all of them, each once and for good; no node has anything to do
        on_cpu = [w["items"] for w in s["workers"] if w["name"].startswith("cpu worker")]
        check(s["uploads"] == experts and s["card_moves"] == 0 and sum(w["held"] for w in workers) == experts,
              "%s: %d uploads, %d moves" % (what, s["uploads"], s["card_moves"]))
        check(not any(on_cpu), "%s: items for nodes: %s" % (what, on_cpu))
        # a worker counts shares, of which an item has one a node; an own hit is one
        check(s["card_items"] * nodes + s["own_items"] == sum(w["items"] for w in workers), "%s: items %s" % (what, workers))


check = Checks()
for number, (name, model, tokens) in enumerate(long_prompts()):
    base = Eval(model, tokens, "--greedy", GREEDY, "--nodes", 1, "-t", 1, "--batch", 1)
    if not check(base.ok, "%s: %s" % (name, base.error())):
        continue
    one = {n: Eval(model, tokens[:1], "--nodes", n).stats["slab_bytes_one"] for n in (1, 2)}
    for cards in (1, 2, 3):
        for percent in (10, 50, 100):
            for row, (batch, nodes, part, on_card) in enumerate(SHAPES):
                whole = base.stats["slab_bytes_all"]
                pool = max(whole * percent // 100 // cards, one[1])
                trunk = (row + number + percent) % cards if on_card else None
                args = ("--cards", "emu:%d:%d" % (cards, pool) if percent < 100 or row % 2 else "emu:%d" % cards,
                        "--trunk", "cpu" if trunk is None else trunk, "--nodes", nodes, "--batch", batch or len(tokens),
                        *(("--ram", max(whole // part, one[nodes])) if part > 1 else ()))
                what = "%s %s" % (name, " ".join(map(str, args)))
                s, workers = run(what, model, tokens, base, args)
                if s:
                    counters(what, s, workers, cards, trunk, nodes, part == 1)
                    check(any(w["came"] for w in workers), "%s: nothing came to a card" % what)
    # ever leaving and coming, and a delay before the trunk's card's own hits are computed, in which the steward looks;
    # an expert that a step may use leaves at its end, so a small pool has none left to go meanwhile
    few = Eval(model, tokens[:12], "--greedy", FEW)
    os.environ["CONCLAVE_CARD_CHURN_US"], os.environ["CONCLAVE_CARD_DELAY_US"] = "300", "2000"
    for args in (("--cards", "emu:1", "--batch", 1), ("--cards", "emu:2", "--trunk", 1, "--batch", 3, "--nodes", 2)):
        what = "%s %s, leaving" % (name, " ".join(map(str, args)))
        s, workers = run(what, model, tokens[:12], few, args, FEW)
        if s:
            steps = FEW - 1 + 12 // args[args.index("--batch") + 1]
            check(s["card_moves"] >= min(steps * s["layers"], steps * s["experts"] // 8), "%s: only %d experts left "
                  "in %d steps of %d layers" % (what, s["card_moves"], steps, s["layers"]))
            check((s["own_items"] > 0 or args[1] != "emu:1") and s["copies_down"] == 0, "%s: %d own hits, %d copies down" %
                  (what, s["own_items"], s["copies_down"]))
    # what RAM does not have is copied down first
    args = ("--cards", "emu:2", "--batch", 1, "--ram", max(whole // 2, one[1]))
    what = "%s %s, leaving" % (name, " ".join(map(str, args)))
    s, workers = run(what, model, tokens, base, args)
    check(not s or s["copies_down"] > 0, "%s: no copies down" % what)
    del os.environ["CONCLAVE_CARD_CHURN_US"], os.environ["CONCLAVE_CARD_DELAY_US"]



def started(what, *args):
    """A run of the same text that keeps its heat: statistics and text; None: it failed."""
    with tempfile.NamedTemporaryFile() as f:
        p = conclave("run", "-m", model, "-p", "One Sock Velvet was", "-n", 60, "--ignore-eos", "--temp", 0,
                     "--warm-first", "--stats", f.name, *args)
        return check(p.returncode == 0, "%s: %s" % (what, p.stderr[-300:])) and (json.load(f), p.stdout)


# a second start knows who was hot in the first, and sends those to the card before the first token
small = ("--cards", "emu:1:%d" % (base.stats["slab_bytes_all"] // 5))
first, second = started("first start", *small), started("second start", *small)
if first and second:
    check(first[1] == second[1], "the second start gives another text")
    check(second[0]["own_items"] > first[0]["own_items"], "own hits: %d at the first start, %d at the second" %
          (first[0]["own_items"], second[0]["own_items"]))

# rates taken for measured: nodes, cards. Where RAM has all, each gets its part of the work, whichever experts came
# first, for this text's uses are known by now; a fast card gets all of it.
for rates, args, least, most in (("1e9,1e9", ("--cards", "emu:1"), (.45,), (.55,)),
                                 ("3e9,1e9", ("--cards", "emu:1"), (.05,), (.12,)),
                                 ("1e9,1e9,2e9", ("--cards", "emu:2", "--trunk", 1), (.2, .45), (.28, .55)),
                                 ("1e9,1e11", ("--cards", "emu:1", "--trunk", "cpu"), (1,), (1,))):
    os.environ["CONCLAVE_CARD_RATES"] = rates
    what = "%s %s, rates %s" % (name, " ".join(map(str, args)), rates)
    r = started(what, "--nodes", 1, *args)
    if r and first:
        s, text = r
        check(text == first[1], "%s: another text" % what)
        workers = sorted((w for w in s["workers"] if "card" in w), key=lambda w: w["card"])
        parts = [w["items"] / (s["items"] + s["own_items"]) for w in workers]
        check(all(a <= p <= b for a, p, b in zip(least, parts, most)), "%s: parts %s" % (what, parts))
    del os.environ["CONCLAVE_CARD_RATES"]
# ... and where nothing is known all experts are alike, not those free that the first tokens left out
os.environ["CONCLAVE_CARD_RATES"] = "1e9,1e9,2e9"
s, workers = run("%s, nothing known" % name, model, tokens[:12], few, ("--cards", "emu:2", "--trunk", 1, "--batch", 1), FEW)
if s:
    held = [w["held"] / s["experts"] for w in workers]
    check(.2 < held[0] < .3 and .45 < held[1] < .55, "%s: cards hold the parts %s of all experts, wanted 0.25 and 0.5" % (name, held))
del os.environ["CONCLAVE_CARD_RATES"]

# several cards begin with the hottest as one does: none is passed over because its card is busy with another
with tempfile.TemporaryDirectory() as d:
    skewed, hits = os.path.join(d, "skewed.gguf"), {}
    p = conclave("synth", "-o", skewed, "--model", "glm-5.3-flash", "--preset", "skewed", "--layers", 2, "--embd", 256, "--ff", 256)
    if check(p.returncode == 0, "synth: %s" % p.stderr[-300:]):
        pool = 0
        for cards in (0, 1, 4):  # 0: leaves the heat file
            out = os.path.join(d, "stats")
            p = conclave("run", "-m", skewed, "-p", "Once upon a time", "-n", 96, "--ignore-eos", "--temp", 1, "--seed", 1, "--warm-first",
                         "--cards", "emu:%d:%d" % (max(cards, 1), pool // max(cards, 1)) if pool else "emu:1:8M", "--stats", out)
            if not check(p.returncode == 0, "skewed, %d cards: %s" % (cards, p.stderr[-300:])):
                break
            with open(out) as f:
                s = json.load(f)
            pool = s["slab_bytes_all"] // 5
            hits[cards] = (s["own_items"] + s["card_items"]) / (s["own_items"] + s["items"])
        check(len(hits) == 3 and hits[1] > .4 and hits[4] > .85 * hits[1], "hits by cards: %s" % hits)

for value in ("emu", "emu:", "emu:0", "emu:17", "emu:1:", "emu:1:x", "emu:1:0", "emu:-1"):
    p = conclave("eval", "-m", model, "--tokens", "1", "--cards", value)
    check(p.returncode == 2 and b"--cards" in p.stderr, "--cards %s: %d %s" % (value, p.returncode, p.stderr))
p = conclave("eval", "-m", model, "--tokens", "1", "--greedy", "1", "--cards", "emu:1:1K")
check(p.returncode == 1 and b"hold no expert" in p.stderr, "a pool of 1K: %d %s" % (p.returncode, p.stderr))
check.end()
