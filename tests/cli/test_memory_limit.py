#!/usr/bin/env python3
"""A model twice as large as a memory limit: every process stays inside it with the page cache counted,
nobody waits for pages, and the bytes are those of a run with everything in memory."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from cli import program, refused  # noqa: E402
from conclave import Checks  # noqa: E402
from limit import Limit  # noqa: E402

MB = 1 << 20
LIMIT = 250 * MB
SHAPE = ["--layers", "12", "--embd", "1024", "--ff", "512", "--experts", "54", "--used", "4", "--heads", "8",
         "--kv-heads", "2", "--head-dim", "64", "--vocab", "4096", "--type", "q4_k"]
TOKENS = ",".join(str((i * 2654435761) % 4096) for i in range(24))
FAULTS = 4  # most page faults from the disk in 40 tokens, all processes: none comes from us
check = Checks()


def evaluate(run, model, out, *more):
    return run([program(), "eval", "-m", model, "--tokens", TOKENS, "--logits", out, "--greedy", "16", *more])


def plain(command):
    return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)


def limited(g, model, folder):
    a, b, stats = (os.path.join(folder, x) for x in ("all", "limited", "stats"))
    whole = evaluate(plain, model, a)
    check(whole.returncode == 0, "with everything in memory: %s" % whole.stderr.decode())
    p = evaluate(g.run, model, b)
    check(p.returncode == 0, "in %d MB: status %d, %s" % (LIMIT // MB, p.returncode, p.stderr.decode()))
    check(b"the rest is read as needed" in p.stderr, "not all experts fit: %r" % p.stderr)
    check(open(a, "rb").read() == open(b, "rb").read(), "the logits' bytes differ")
    check(whole.stdout == p.stdout, "the greedy tokens differ: %r, %r" % (whole.stdout, p.stdout))
    p = g.run([program(), "run", "-m", model, "-p", "x", "-n", "40", "--ignore-eos", "--no-heat", "--stats", stats])
    check(p.returncode == 0, "run: status %d, %s" % (p.returncode, p.stderr.decode()))
    answer = json.load(open(stats))
    faults = answer["answer"]["major_faults"]
    check(faults <= FAULTS, "%d page faults from the disk in the answer" % faults)
    check(answer["answer"]["disk_items"] > 0, "experts were read while it answered")
    check(len([1 for n, _ in g.majors.values() if n.startswith("conclave")]) >= 6,
          "all processes of two runs were seen inside: %s" % g.majors)
    seen = sum(n for name, n in g.majors.values())
    check(seen < 400, "%d page faults from the disk, starting included: %s" % (seen, g.majors))
    check(g.kills() == 0, "the kernel killed %d processes" % g.kills())
    peak = g.peak()
    check(peak is None or LIMIT // 2 < peak <= LIMIT, "peak %s of %d bytes" % (peak, LIMIT))
    print("limit %d MB (cgroup v%d): peak %.1f MB, limit met %d times, %d page faults from the disk in 40 tokens"
          % (LIMIT // MB, g.version, (peak or 0) / MB, g.refused(), faults))


def too_small(model):
    with Limit(24 * MB) as g:
        if g.dir:
            refused(check, g.run([program(), "run", "-m", model, "-p", "x", "-n", "1"]), 1, "the trunk takes",
                    "raise the limit", what="24 MB")
            check(g.kills() == 0, "killed in 24 MB")
    with Limit(LIMIT) as g:
        if g.dir:
            refused(check, g.run([program(), "run", "-m", model, "-p", "x", "-n", "1", "--ram", "1G"]), 1, "--ram",
                    "a smaller --ram", what="--ram beyond the limit")
            refused(check, g.run([program(), "run", "-m", model, "-p", "x", "-n", "1", "-c", "40000"]), 1,
                    "left for experts", "smaller -c", what="-c beyond the limit")


def at_once(model):
    """Two that fit alone, begun at the same moment: who sees too late that the other came is refused."""
    with Limit(LIMIT) as g:
        if not g.dir:
            return
        command = [program(), "eval", "-m", model, "--tokens", "1,2,3", "--greedy", "8", "--ram", "150M"]
        running = [g.start(command) for _ in range(2)]
        both = [subprocess.CompletedProcess(command, p.returncode, *text) for p, text in
                [(p, p.communicate()) for p in running]]
        check(g.kills() == 0, "two at once: the kernel killed %d processes" % g.kills())
        for p in both:
            check(p.returncode == 0 or refused(check, p, 1, "memory", what="two at once"), "two at once: %s" % p)


with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as d:
    path = os.path.join(d, "model.gguf")
    with Limit(LIMIT) as group:
        if not group.dir:
            # a machine without a writable memory cgroup cannot give it, in CI neither
            check.skipped += 1
            print("skipped: no memory limit can be set here (%s)" % group.why)
        else:
            made = plain([program(), "synth", "-o", path, *SHAPE])
            if check(made.returncode == 0, made.stderr.decode()):
                limited(group, path, d)
                too_small(path)
                at_once(path)
check.end()
