#!/usr/bin/env python3
"""What run, eval and perplexity write, and where."""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from cli import SHORT, STORY, own_lines, program, string, with_metadata  # noqa: E402
from conclave import DEMO, Checks, conclave  # noqa: E402

check = Checks()
dir_ = tempfile.TemporaryDirectory()
tmp = dir_.name
stats_file = os.path.join(tmp, "stats.json")
with open(DEMO + "/ref/story-moe.json") as f:
    sock = [x for x in json.load(f)["prompts"] if x["name"] == "sock"][0]
WANT = sock["greedy_text"].encode()


def run(*args, prompt=SHORT, **more):
    return conclave("run", "-m", STORY, *([] if prompt is None else ["-p", prompt]), *args, **more)


# --- text --------------------------------------------------------------------------------------
p = run("-n", 64, "--temp", 0)
check(p.returncode == 0 and p.stdout == SHORT.encode() + WANT, "prompt and answer: %r %s" % (p.stdout, p.stderr))
p = run("-n", 64, "--temp", 0, "--no-display-prompt")
check(p.stdout == WANT, "the answer alone: %r" % p.stdout)
lines = own_lines(p)
check(re.fullmatch(r"conclave: prompt 20 tokens, [\d.]+ tokens/s; answer 64 tokens, [\d.]+ tokens/s; experts [\d.]+ s, "
                   r"trunk [\d.]+ s, waiting [\d.]+ s, other [\d.]+ s; \d+ B a token from the file; seed \d+", lines[-1]),
      "closing line: %s" % lines)
check(b"\033" not in p.stderr and b"\r" not in p.stderr, "colours or a bar without a terminal: %r" % p.stderr)
text = os.path.join(tmp, "text")
with open(text, "w") as f:
    f.write(SHORT)
p = run("-f", text, "-n", 64, "--temp", 0, "--no-display-prompt", prompt=None)
check(p.stdout == WANT, "-f: %r" % p.stdout)
for more in ([], ["-f", "-"]):
    with open(text) as f:
        p = subprocess.run([program(), "run", "-m", STORY, "-n", "64", "--temp", "0", "--no-display-prompt"] + more,
                           stdin=f, capture_output=True)
    check(p.stdout == WANT, "standard input %s: %r" % (more, p.stdout))
p = run("-e", "-n", 64, "--temp", 0, prompt=SHORT.replace("\n", "\\n"))
check(p.stdout == SHORT.encode() + WANT, "-e: %r" % p.stdout)
p = run("-n", 2, "--temp", 0, prompt="a\\nb")
check(p.stdout.startswith(b"a\\nb"), "without -e a backslash is a backslash: %r" % p.stdout)
p = run("-n", 0)
check(p.returncode == 0 and p.stdout == SHORT.encode() and "answer 0 tokens" in own_lines(p)[-1], "-n 0: %s" % p)

# --- the end -----------------------------------------------------------------------------------
p = run("-c", 30, "-n", 64, "--temp", 0, "--no-display-prompt", "--stats", stats_file)
check(p.returncode == 0 and WANT.startswith(p.stdout) and p.stdout, "end of the context: %s" % p)
check(any("context of 30 tokens is full" in x for x in own_lines(p)), "no line at the context's end: %s" % p.stderr)
check("answer 10 tokens" in own_lines(p)[-1], "20 + 10 tokens fill it: %s" % p.stderr)
stats = json.load(open(stats_file))
check(stats["stop"] == "context" and stats["n_ctx"] == 30, "stats at the context's end: %s" % stats["stop"])
p = run("-c", 20, "-n", 5, "--temp", 0, "--no-display-prompt")
check(p.returncode == 0 and not p.stdout, "a prompt as long as the context: %s" % p)
# <|endoftext|> ends a story: this one is nearly over
near_end = " ".join(open(DEMO + "/heldout.txt").read().split("\n\n")[0].split(" ")[:-2])
p = run("-n", 400, "--temp", 0, "--no-display-prompt", "--stats", stats_file, prompt=near_end)
stats = json.load(open(stats_file))
check(p.returncode == 0 and stats["stop"] == "end of text", "end of text: %s, %r" % (stats["stop"], p.stdout))
check(b"endoftext" not in p.stdout, "the end token was printed: %r" % p.stdout)
n = stats["timings"]["predicted_n"]
p = run("-n", n + 20, "--temp", 0, "--no-display-prompt", "--ignore-eos", "--stats", stats_file, prompt=near_end)
stats = json.load(open(stats_file))
check(stats["stop"] == "length" and stats["timings"]["predicted_n"] == n + 20, "--ignore-eos: %s" % stats["stop"])

# --- seeds -------------------------------------------------------------------------------------
one = run("-n", 40, "--seed", 7)
check(one.stdout == run("-n", 40, "-s", 7, "-t", 1, "--batch", 3, "--nodes", 2).stdout, "a seed means one text")
check(one.stdout != run("-n", 40, "--seed", 8).stdout, "another seed gives the same text")
check("seed 7" in own_lines(one)[-1], "the seed is printed: %s" % own_lines(one)[-1])
p = run("-n", 40)
seed = re.search(r"seed (\d+)", own_lines(p)[-1]).group(1)
check(int(seed) < 2**32 and run("-n", 40, "--seed", seed).stdout == p.stdout, "the printed seed %s is not the used one" % seed)
other = re.search(r"seed (\d+)", own_lines(run("-n", 1))[-1]).group(1)
check(other != seed, "two chosen seeds are equal: %s" % seed)
check(re.search(r"temp 0.8, top-k 40, top-p 0.95, min-p 0.05", p.stderr.decode()), "defaults: %s" % p.stderr)
for setting in (("--temp", 1.7), ("--top-k", 1), ("--top-p", 0.01), ("--min-p", 1), ("--repeat-penalty", 4),
                ("--frequency-penalty", 3), ("--presence-penalty", 5)):
    changed = run("-n", 60, "--seed", 7, *setting).stdout
    check(changed != run("-n", 60, "--seed", 7).stdout, "%s changes nothing" % (setting,))
check(run("-n", 60, "--seed", 7, "--repeat-penalty", 4, "--repeat-last-n", 0).stdout == run("-n", 60, "--seed", 7).stdout,
      "--repeat-last-n 0 leaves a penalty")
check(run("-n", 60, "--temp", 0).stdout == run("-n", 60, "--top-k", 1).stdout, "top-k 1 is not the most likely token")

# --- reports -----------------------------------------------------------------------------------
p = run("-n", 30, "--temp", 0, "--processes", "--nodes", 2, "--stats", stats_file)
pids = re.findall(r"^  pid (\d+) +(coordinator|pager|cpu worker \d)", p.stderr.decode(), re.M)
check([x[1] for x in pids] == ["coordinator", "pager", "cpu worker 0", "cpu worker 1"], "--processes: %s" % p.stderr)
stats = json.load(open(stats_file))
check([str(w["pid"]) for w in stats["workers"]] == [x[0] for x in pids[1:]], "pids: %s %s" % (stats["workers"], pids))
check(str(stats["pid"]) == pids[0][0], "the coordinator's pid")
for w in stats["workers"][1:]:
    check(w["calls"] > 0 and w["items"] > 0 and w["rows"] > 0 and w["weight_bytes"] > 0, "a worker without work: %s" % w)
t = stats["timings"]
check(t["prompt_n"] == 20 and t["predicted_n"] == 30 and t["prompt_per_second"] > 0 and t["predicted_per_second"] > 0,
      "timings: %s" % t)
check(stats["answer"]["steps"] == 29 and stats["prompt"]["steps"] == 1, "steps: %s" % stats["answer"])
for phase in ("prompt", "answer"):
    s = stats[phase]
    parts = s["experts_ms"] + s["trunk_ms"] + s["waiting_ms"] + s["rest_ms"]
    check(abs(parts - s["wall_ms"]) <= 0.02 * s["wall_ms"] + 0.5, "%s: %s make up %g ms" % (phase, s, parts))
check(stats["sampling"]["temp"] == 0 and stats["kv"] == "f16" and stats["experts"] == 48, "settings: %s" % stats["sampling"])
quarter = stats["slab_bytes_all"] // 4
p = run("-n", 30, "--temp", 0, "--ram", quarter, "--stats", stats_file)
stats = json.load(open(stats_file))
check(stats["slab_bytes"] <= quarter and stats["answer"]["bytes_read"] > 0 and
      stats["expert_reads"] > stats["experts"], "a quarter of the memory: %s" % stats["expert_reads"])
check(not re.search(r"; 0 B a token from the file", own_lines(p)[-1]), "bytes read a token: %s" % own_lines(p)[-1])
p = run("-n", 2, "-v", "--temp", 0)
check("threads" in p.stderr.decode() and "loaded" in p.stderr.decode() and "pid " in p.stderr.decode(), "-v: %s" % p.stderr)

# a file with a chat template says so once
with open(STORY, "rb") as f:
    data = f.read()
check(b"tokenizer.chat_template" not in data, "the demo model has a chat template")
chat = os.path.join(tmp, "chat.gguf")
with open(chat, "wb") as f:
    f.write(with_metadata(data, lambda keys: keys + string(b"tokenizer.chat_template") +
                          struct.pack("<I", 8) + string(b"{{ messages }}"), 1))
p = conclave("run", "-m", chat, "-p", SHORT, "-n", 64, "--temp", 0, "--no-display-prompt")
check(p.returncode == 0 and p.stdout == WANT, "a file with a chat template: %s" % p)
check(sum("chat template" in x for x in own_lines(p)) == 1, "no line about the chat template: %s" % p.stderr)

# --- eval and perplexity -----------------------------------------------------------------------
ids = ",".join(map(str, sock["tokens"]))
p = conclave("eval", "-m", STORY, "--tokens", ids, "--greedy", 64)
check(p.stdout.decode() == ",".join(map(str, sock["greedy"])) + "\n" and not p.stderr, "eval --greedy: %s" % p)
p = conclave("eval", "-m", STORY, "--tokens", ids.replace(",", " "), "--greedy", 1)
check(p.stdout.decode() == "%d\n" % sock["greedy"][0], "spaces between tokens: %s" % p)
held = open(DEMO + "/heldout.txt").read()[:4000]
with open(os.path.join(tmp, "held"), "w") as f:
    f.write(held)
p = conclave("perplexity", "-m", STORY, "-f", os.path.join(tmp, "held"), "-c", 64, "--stats", stats_file)
check(re.fullmatch(rb"\d+\.\d{5}\n", p.stdout), "the figure alone on standard output: %r" % p.stdout)
stats = json.load(open(stats_file))
check(stats["scored"] == stats["windows"] * 31 and "%.5f\n" % stats["perplexity"] == p.stdout.decode(), "stats: %s" % stats)
check.end()
