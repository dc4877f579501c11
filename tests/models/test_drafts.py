#!/usr/bin/env python3
"""Drafts of the NextN block: the text is byte for byte that without them, greedy and sampled with penalties,
whatever the number of drafts, batch, nodes, --ram and emulated cards; acceptance as in the references; rejections at every
place, and all drafts right, among the steps."""
import json
import os
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from conclave import DEMO, GOLDEN, Checks, conclave  # noqa: E402

MODEL = DEMO + "/story-glm5next-f16.gguf"
STEPS = {"short": 50, "mid": 50, "long": 49}  # tests/demo/ref/case.json: 96 tokens, one draft a step
# the trunk in a card's worker and here, pools of some and of all experts
ON_CARDS = (("--draft", 0, "--cards", "emu:2"), ("--draft", 1, "--cards", "emu:1:400000"), ("--draft", 2, "--cards", "emu:2"),
            ("--draft", 4, "--cards", "emu:2", "--nodes", 2, "--ram", "800K"),
            ("--draft", 4, "--cards", "emu:1", "--trunk", "cpu"))
check = Checks()


def run(prompt, *args, model=MODEL):
    """(text, statistics), or None."""
    with tempfile.TemporaryDirectory() as d:
        stats = os.path.join(d, "stats")
        p = conclave("run", "-m", model, "-p", prompt["text"], "--no-display-prompt", "--stats", stats, *args)
        what = "%s %s" % (prompt["name"], " ".join(map(str, args)))
        if not check(p.returncode == 0, "%s: %s" % (what, p.stderr.decode(errors="replace")[-300:])):
            return None
        return p.stdout, json.load(open(stats)), p.stderr.decode(errors="replace"), what


with open(DEMO + "/ref/case.json") as f:
    prompts = json.load(f)["prompts"]
ends = {}  # drafts of a step -> how many were right, of all steps
for prompt in prompts:
    base = run(prompt, "-n", 96, "--temp", 0, "--kv", "f32", "--draft", 0)
    if not base:
        continue
    check(base[0].decode() == prompt["greedy_text"], "%s: another text: %r" % (base[3], base[0]))
    check("drafts" not in base[2], "%s: drafts in the closing line: %s" % (base[3], base[2]))
    for args in (("--draft", 1), ("--draft", 2), ("--draft", 4, "-t", 1), (), ("--draft", 4, "--nodes", 2, "--ram", "800K"),
                 ("--draft", 3, "--batch", 2), ("--draft", 3, "--cards", "emu:2", "--trunk", "cpu"),
                 ("--draft", 1, "--cards", "emu:1"), ("--draft", 4, "--cards", "emu:2", "--nodes", 2)):
        r = run(prompt, "-n", 96, "--temp", 0, "--kv", "f32", *args)
        if not r:
            continue
        check(r[0] == base[0], "%s: another text: %r" % (r[3], r[0]))
        check("nothing is drafted" not in r[2], "%s: it said %s" % (r[3], r[2]))
        if args[:2] != ("--draft", 1):
            continue
        d = r[1]["drafts"]
        check((d["steps"], d["accepted"]) == (STEPS[prompt["name"]], 46) and prompt["speculation"]["accepted"] == 46,
              "%s: %s" % (r[3], d))
        check("46 of %d right" % STEPS[prompt["name"]] in r[2], "%s: closing line: %s" % (r[3], r[2]))
    sampled = ("-n", 120, "--temp", 1.2, "--top-k", 0, "--repeat-penalty", 1.1, "--presence-penalty", 0.3,
               "--frequency-penalty", 0.1, "--ignore-eos")
    for seed in (1, 2):
        base = run(prompt, *sampled, "--seed", seed, "--draft", 0)
        for args in (("--draft", 1), ("--draft", 2), ("--draft", 4), ("--draft", 8, "--nodes", 2), (),
                     *(ON_CARDS if seed == 2 else ())):
            r = run(prompt, *sampled, "--seed", seed, *args)
            if not r or not base:
                continue
            check(r[0] == base[0], "%s: another text: %r, not %r" % (r[3], r[0], base[0]))
            if args[:2] == ("--draft", 0):
                continue
            d, k = r[1]["drafts"], args[1] if args else 0
            seen, right = d["looked_at"] + [0] * 9, d["right"] + [0] * 9
            for place in range(k):  # steps that ended with the draft at this place, and those with none wrong
                ends.setdefault(k, [0] * (k + 1))[place] += seen[place] - right[place]
            if k:
                ends[k][k] += right[k - 1]
print(ends)
for k in (1, 2, 4):
    check(all(ends.get(k, [0])), "%d drafts: steps by the place of the first wrong one: %s" % (k, ends.get(k)))
# the trunk's host dies in a step, in a pass of the block (every second one here), with half an answer: its successor
# plays the tokens again, and the block's rows begin anew
base = run(prompts[0], "-n", 96, "--temp", 0, "--draft", 0)
for die in ("step:9:0", "step:10:0", "step:31:0:3", "logits:22:0", "answer:23:0", "sum:90:0", "step:12:0:9"):
    os.environ["CONCLAVE_DIE"] = die
    r = run(prompts[0], "-n", 96, "--temp", 0, "--draft", 2, "--cards", "emu:2")
    del os.environ["CONCLAVE_DIE"]
    if r and base:
        lives = int((die + ":1").split(":")[3])
        check(r[0] == base[0], "%s, %s: another text" % (r[3], die))
        check(r[1]["card_deaths"] == min(lives, 3) and r[1]["drafts"]["accepted"] > 20, "%s, %s: %s" %
              (r[3], die, {k: r[1][k] for k in ("card_deaths", "host_successors", "cards_out", "drafts")}))
        check(r[1]["cards_out"] == (lives > 2), "%s, %s: %d cards left out" % (r[3], die, r[1]["cards_out"]))
# what both hosts did is counted: with one expert on the card every step calls in every layer
os.environ["CONCLAVE_DIE"] = "step:60:0"
r = run(prompts[0], "-n", 96, "--temp", 0, "--draft", 0, "--cards", "emu:1:86016")
del os.environ["CONCLAVE_DIE"]
check(r and r[1]["host_successors"] == 1 and r[1]["answer"]["calls"] >= 95 * r[1]["layers"], "calls of two hosts: %s" %
      (r and r[1]["answer"]))
check(r and 0 <= r[1]["answer"]["waiting_ms"] <= r[1]["answer"]["wall_ms"], "waits of two hosts: %s" %
      (r and r[1]["answer"]))
# a NextN block that is nearly always wrong: every step goes back
qwen = [conclave("run", "-m", GOLDEN + "/tiny/qwen35moe/model.gguf", "-p", "A still is", "-n", 80, "--temp", 1.3, "--seed", 4,
                 "--ignore-eos", "--repeat-penalty", 1.1, *args) for args in
        (("--draft", 0), ("--draft", 1), ("--draft", 2, "--nodes", 2), ("--draft", 4), ())]
check(all(p.returncode == 0 and p.stdout == qwen[0].stdout for p in qwen), "qwen35moe: other texts: %s" %
      [p.stdout for p in qwen])
check(b" of 78 right" in qwen[1].stderr, "qwen35moe: %s" % qwen[1].stderr)
# left to itself it turns off, for such drafts gain nothing, and says so; when it does is the clock's matter
went_off = 0
for turn in range(10):
    r = run({"name": "qwen35moe", "text": "A still is"}, "-n", 300, "-c", 512, "--temp", 1.3, "--seed", 4, "--ignore-eos",
            model=GOLDEN + "/tiny/qwen35moe/model.gguf")
    went_off = r[1]["drafts"]["went_off"] if r else 0
    check(r and ("as they cost more than they gain" in r[2]) == (went_off > 0), "off %d times: %s" % (went_off, r and r[2]))
    if went_off:
        break
check(went_off > 0, "drafts that are never right were not turned off")
# the end of the context, of the answer, and of a prompt of one token
first = {"name": "one token", "text": "The"}
for n_ctx, n in ((24, -1), (25, -1), (40, 7), (12, 1), (12, 0)):
    texts = [run(first, "-c", n_ctx, "-n", n, "--temp", 0, "--draft", d, "--ignore-eos") for d in (0, 1, 4)]
    check(all(t and t[0] == texts[0][0] for t in texts), "-c %d -n %d: other texts: %s" % (n_ctx, n, [t and t[0] for t in texts]))
p = conclave("plan", "-m", MODEL, "--no-measure")
check(p.returncode == 0 and b"drafts     a NextN block" in p.stdout and b"a1 a2" in p.stdout, "plan: %s %s" % (p.stdout, p.stderr))
p = conclave("run", "-m", DEMO + "/story-moe-q4_k_m.gguf", "-p", "The", "-n", 4, "--draft", 2)
check(p.returncode == 0 and b"no NextN block" in p.stderr, "a model without the block: %s" % p.stderr)
p = conclave("run", "-m", MODEL, "-p", "The", "-n", 4, "--draft", 17)
check(p.returncode == 2 and b"--draft" in p.stderr, "--draft 17: %d %s" % (p.returncode, p.stderr))
check.end()
