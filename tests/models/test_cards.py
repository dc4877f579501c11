#!/usr/bin/env python3
"""The trunk in another process (--cards emu:N): the bytes of the logits, and of the NextN block's, of the run without
cards for every golden model and the demo models, at every batch shape; and a trunk's host that is killed in the
middle of an answer, many times: the same text, a successor each time, nothing left behind."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, "tests/lib")
from conclave import DEMO, Checks, Eval, build_folder, cases, conclave, long_prompts, whole_model_hashes  # noqa: E402

MODEL = DEMO + "/story-moe-q4_k_m.gguf"
KILLS = 20
TOKENS = 100


def same_bytes(check):
    for name, model, tokens in long_prompts():
        nextn = "glm5next" in name or name == "tiny/qwen35moe"
        base = Eval(model, tokens, nextn=nextn)
        if not check(base.ok and bool(base.nextn) == nextn, "%s: %s" % (name, base.error())):
            continue
        for args in (("--batch", 1), ("--batch", 7, "--nodes", 2), ("--batch", len(tokens), "-t", 1),
                     ("--batch", 3, "--ram", base.stats["slab_bytes_one"] * 4)):
            r = Eval(model, tokens, "--cards", "emu:1", *args, nextn=nextn)
            what = "%s --cards emu:1 %s" % (name, " ".join(map(str, args)))
            if check(r.ok, "%s: %s" % (what, r.error())):
                check(r.logits == base.logits and r.nextn == base.nextn, "%s: other bytes" % what)
                check(r.stats["items"] + r.stats["own_items"] > 0 and any(w.get("trunk") for w in r.stats["workers"]),
                      "%s: nothing was computed: %s" % (what, r.stats["workers"]))


def hashes(check):
    """glm5next's prompts, both KV types: the table's hashes, the NextN block's too."""
    table = whole_model_hashes()
    with open(DEMO + "/ref/case.json") as f:
        demo = [("demo/story-glm5next", DEMO + "/story-glm5next-f16.gguf", None, p) for p in json.load(f)["prompts"]]
    for name, model, _, prompt in [*cases(["tiny/glm5next"]), *demo]:
        wanted = table[name, prompt["name"]]
        for kv in ("f32", "f16"):
            r = Eval(model, prompt["tokens"], "--kv", kv, "--cards", "emu:2", nextn=True)
            check(r.ok and (r.hash(), r.hash(True)) == (wanted[kv], wanted["nextn " + kv]), "%s %s --kv %s on cards: hashes "
                  "%s, %s %s" % (name, prompt["name"], kv, r.hash(), r.hash(True), r.error()))


def read_here(check):
    """What reads the trunk's buffers or choices has the trunk executed here, and a card that is named for it refused."""
    name, model, tokens = next(long_prompts())
    with tempfile.TemporaryDirectory() as d:
        for flag, base in (("--dump", d + "/a"), ("--record-routes", d + "/b.npy")):
            args = ("eval", "-m", model, "--tokens", ",".join(map(str, tokens)), "--greedy", 1)
            p = conclave(*args, flag, base, "--cards", "emu:2")
            check(p.returncode == 0 and os.path.exists(base), "%s --cards emu:2: %s" % (flag, p.stderr[-200:]))
            p = conclave(*args, flag, base + "x", "--cards", "emu:2", "--trunk", 1)
            check(p.returncode == 1 and b"--trunk 1: " in p.stderr and not os.path.isfile(base + "x"),
                  "%s --trunk 1: %d %s" % (flag, p.returncode, p.stderr[-200:]))


def host_of(pid):
    """The present host's pid: the child of pid that was given the trunk's program (a segment of role 13); 0: none
    now."""
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            children = f.read().split()
    except OSError:
        return 0
    for c in children:
        try:
            with open("/proc/%s/cmdline" % c, "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"conclave-gpu") and any(w.startswith(b"13:0:") for w in words):
            return int(c)
    return 0


def run(cards):
    command = [build_folder() + "/bin/conclave", "run", "-m", MODEL, "-p", "Once upon a time", "-n", str(TOKENS),
               "--temp", "0"] + (["--cards", cards] if cards else [])
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                            bufsize=0)


def killed(check, quiet):
    opened = retired = deaths = runs = 0
    while deaths < KILLS and runs < 3 * KILLS:
        runs += 1
        p = run("emu:2")  # half of the experts on another card: calls are open
        first = p.stdout.read(1)  # the answer has begun: from now on steps follow each other
        time.sleep(0.0007 * runs)
        pid = host_of(p.pid)
        if pid:
            os.kill(pid, signal.SIGKILL)
        out, err = p.communicate(timeout=120)
        text = err.decode(errors="replace")
        lines = re.findall(r"(\d+) open calls? retired, pid \d+ goes on", text)
        check(p.returncode == 0, "killed %d: status %d: %s" % (runs, p.returncode, text[-300:]))
        check(first + out == quiet, "killed %d: another text" % runs)
        deaths += len(lines)
        opened += sum(int(n) > 0 for n in lines)
        retired += sum(map(int, lines))
    check(deaths >= KILLS, "only %d hosts died in a step, in %d runs" % (deaths, runs))
    print("%d hosts killed, %d with calls open, %d calls retired" % (deaths, opened, retired))


def stopped(check, quiet):
    """One that hangs gives no sign of life and is replaced."""
    p = run("emu:1")
    first = p.stdout.read(1)
    pid = host_of(p.pid)
    if check(pid, "there is no host"):
        os.kill(pid, signal.SIGSTOP)
    out, err = p.communicate(timeout=120)
    check(p.returncode == 0 and first + out == quiet, "a stopped host: another text")
    check(b"gave no sign of life" in err, "a stopped host: %s" % err[-300:])


check = Checks()
same_bytes(check)
hashes(check)
read_here(check)
p = run(None)
text = p.communicate(timeout=120)[0]
check(p.returncode == 0, "the quiet run failed")
killed(check, text)
stopped(check, text)
check.end()
