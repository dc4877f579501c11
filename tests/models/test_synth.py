#!/usr/bin/env python3
"""Synthetic models choose experts as their preset says: small ones are run over random tokens, and what
their routers chose is held to bounds. Deterministic; the figures of large ones: scripts/README.md."""
import json
import os
import random
import sys
import tempfile
from collections import OrderedDict

sys.path.insert(0, "tests/lib")
from conclave import Checks, Eval, conclave  # noqa: E402
import buffers  # noqa: E402

LAYERS, EXPERTS, USED, VOCAB, TOKENS, SKIP = 3, 128, 8, 4096, 1100, 100
SHAPE = ("--layers", LAYERS, "--embd", 256, "--ff", 32, "--experts", EXPERTS, "--used", USED, "--heads", 4,
         "--kv-heads", 2, "--head-dim", 64, "--ctx", TOKENS, "--type", "q8_0", "--vocab", VOCAB)

QWEN4 = ("--model", "qwen4exp", *SHAPE, "--embd", 512, "--table-rows", 16384)
# least and most: LRU's hit rate with a quarter of all experts, with half of them; part of the calls that the
# hottest seventh of a layer's experts takes; part of its experts that a token shares with the one before
BOUNDS = {"flat": ((.20, .28), (.44, .54), (.14, .20), (.04, .09)),
          "local": ((.77, .85), (.85, .92), (.14, .33), (.35, .60)),
          "skewed": ((.52, .68), (.78, .90), (.39, .47), (.15, .30))}
# the running mean is a delta net's, whose silu leaves something that all tokens have
QWEN4_BOUNDS = dict(BOUNDS, local=((.77, .85), (.87, .94), (.14, .52), (.35, .60)))


def lru(routes, places):
    """Hit rate after the first SKIP tokens; one pool for all layers, as demo/README.md's replay."""
    held, hits, n = OrderedDict(), 0, 0
    for t, token in enumerate(routes):
        for one in token:
            hit = one in held
            held[one] = True
            held.move_to_end(one)
            if len(held) > places:
                held.popitem(last=False)
            hits += hit and t >= SKIP
            n += t >= SKIP
    return hits / n


def hottest(routes, part):
    shares = []
    for layer in range(LAYERS):
        uses = [0] * EXPERTS
        for token in routes[SKIP:]:
            for at, expert in token:
                uses[expert] += at == layer
        uses.sort(reverse=True)
        shares.append(sum(uses[:round(EXPERTS * part)]) / sum(uses))
    return sum(shares) / LAYERS


def shared(routes):
    pairs = list(zip(routes[SKIP:], routes[SKIP + 1:]))
    return sum(len(set(a) & set(b)) for a, b in pairs) / sum(len(a) for a, _ in pairs)


def routes_of(check, model, what):
    """[token][layer and place] -> (layer, expert)"""
    draw = random.Random(3)
    tokens = [draw.randrange(VOCAB) for _ in range(TOKENS)]
    with tempfile.TemporaryDirectory() as d:
        p = conclave("eval", "-m", model, "--tokens", ",".join(map(str, tokens)), "--dump", d)
        if not check(p.returncode == 0, "%s: %s" % (what, p.stderr.decode()[-400:])):
            return None
        got = buffers.load(d)
    chosen = [got["L%u.experts" % i][1] for i in range(LAYERS)]
    return [[(i, chosen[i][USED * t + k]) for i in range(LAYERS) for k in range(USED)] for t in range(TOKENS)]


def foreseen(check, model, what, ram):
    """Reading ahead into a quarter of the experts' memory: most of what the first layer's choice does not decide is
    named before its call, in either form of the residual, and most of what is read is called for. Chance alone:
    USED of EXPERTS. Experts and attention write little in these files, so that each layer chooses like the next."""
    with tempfile.TemporaryDirectory() as d:
        stats = os.path.join(d, "stats")
        said = {}
        for mode in ("off", "on"):
            p = conclave("run", "-m", model, "-p", "abcdefgh", "-n", 100, "--temp", 1, "--seed", 1, "--ignore-eos",
                         "--no-heat", "--ram", ram, "--prefetch", mode, "--stats", stats)
            if not check(p.returncode == 0, "%s: %s" % (what, p.stderr.decode()[-400:])):
                return
            with open(stats) as f:
                said[mode] = p.stdout, json.load(f)["residency"]["prefetch"]
    s = said["on"][1]
    used = s["in_time"] + s["late"]
    print("%s: of %d experts read ahead %d were called for" % (what, used + s["wasted"], used))
    check(said["on"][0] == said["off"][0], "%s: another text with reading ahead" % what)
    check(used > 50 and used > s["wasted"], "%s: read ahead: %s" % (what, s))


check = Checks()
for preset, bounds, shape in [(*b, SHAPE) for b in BOUNDS.items()] + [(*b, QWEN4) for b in QWEN4_BOUNDS.items()]:
    with tempfile.TemporaryDirectory() as d:
        model = os.path.join(d, preset + ".gguf")
        p = conclave("synth", "-o", model, "--preset", preset, *shape)
        if not check(p.returncode == 0, "%s: %s" % (preset, p.stderr.decode())):
            continue
        routes = routes_of(check, model, preset)
        if preset == "local":
            foreseen(check, model, *(("qwen4exp", "5M") if shape is QWEN4 else ("qwen3moe", "2600K")))
    if not routes:
        continue
    figures = (lru(routes, LAYERS * EXPERTS // 4), lru(routes, LAYERS * EXPERTS // 2), hottest(routes, 1 / 7),
               shared(routes))
    print("%s: LRU at 25%% %.3f, at 50%% %.3f, hottest seventh %.3f, shared with the token before %.3f" %
          (preset, *figures))
    for name, x, (least, most) in zip(("LRU at 25%", "LRU at 50%", "hottest seventh", "shared"), figures, bounds):
        check(least <= x <= most, "%s: %s is %.3f, wanted %.2f to %.2f" % (preset, name, x, least, most))

# qwen4exp's small experts in the types that people run them in: one value of bytes on every axis, with the reference
# kernels too
with tempfile.TemporaryDirectory() as d:
    draw = random.Random(4)
    tokens = [draw.randrange(VOCAB) for _ in range(24)]
    for kind in ("iq2_xs", "iq3_s", "iq4_xs"):
        model = os.path.join(d, kind + ".gguf")
        p = conclave("synth", "-o", model, "--preset", "local", *QWEN4, "--type", kind)
        if not check(p.returncode == 0, "%s: %s" % (kind, p.stderr[-300:])):
            continue
        down = json.loads(conclave("inspect", "-m", model, "--json").stdout)["experts"]["by_layer"][0]
        check((down["gate"], down["up"], down["down"]) == (kind.upper(), kind.upper(), "IQ4_NL"), "%s: %s" % (kind, down))
        base = Eval(model, tokens, "--nodes", 1, "-t", 1, "--batch", 1)
        check(base.ok, "%s: %s" % (kind, base.error()))
        for args in (("--batch", 24), ("--batch", 5, "--nodes", 2, "--ram", "1M"), ("--cards", "emu:2", "--batch", 1),
                     ("--table-ram", "64K", "--ram", "2M", "--batch", 1, "--prefetch", "on"), ("--batch", 3)):
            level = os.environ.get("CONCLAVE_CPU")
            if args == ("--batch", 3):
                os.environ["CONCLAVE_CPU"] = "generic"
            r = Eval(model, tokens, *args)
            os.environ.pop("CONCLAVE_CPU", None)
            if level:
                os.environ["CONCLAVE_CPU"] = level
            check(r.ok and r.logits == base.logits, "qwen4exp in %s, %s: other bytes %s" % (kind, args, r.error()))

# glm5next counts, and its NextN block drafts what it says; what a sequence takes is what inspect says
with tempfile.TemporaryDirectory() as d:
    model, stats = os.path.join(d, "glm.gguf"), os.path.join(d, "stats")
    p = conclave("synth", "-o", model, "--model", "glm5next", "--embd", 256, "--heads", 4, "--head-dim", 32, "--ff", 256,
                 "--experts", 8, "--used", 2, "--vocab", 512)
    check(p.returncode == 0, "glm5next: %s" % p.stderr.decode())
    look = json.loads(conclave("inspect", "-m", model, "--json").stdout)
    for drafts in (0, 4):
        for nodes in (1, 2):
            p = conclave("run", "-m", model, "-p", "A", "-n", 40, "-c", 64, "--temp", 0, "--draft", drafts, "--nodes", nodes,
                         "--stats", stats)
            what = "glm5next, %d drafts, %d nodes" % (drafts, nodes)
            check(p.stdout == bytes(range(65, 106)), "%s: it said %r %s" % (what, p.stdout, p.stderr[-300:]))
            with open(stats) as f:
                s = json.load(f)
            if drafts:
                check(s["drafts"]["accepted"] == 32 and s["drafts"]["steps"] == 8, "%s: %s" % (what, s["drafts"]))
            state = look["kv_bytes_per_token"]["with_drafts"] if drafts else look["kv_bytes_per_token"]
            check(s["kv_bytes"] == 64 * state["f16"] + state["fixed"], "%s: %d bytes of state, %s" % (what, s["kv_bytes"], state))
check.end()
