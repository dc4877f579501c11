#!/usr/bin/env python3
"""conclave plan: the plan is the one that run makes, it stays within the memory there is, its hit rate is what
its words say, and nothing is left behind."""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from cli import STORY, program, refused  # noqa: E402
from conclave import Checks, conclave  # noqa: E402
from limit import Limit  # noqa: E402

check = Checks()
ROUTES = "tests/demo/story-moe-routing.npy"
RAM = "2M"


def plan(*flags, run=None, model=STORY):
    command = [program(), "plan", "-m", model, "--json", *flags]
    p = (run or subprocess.run)(command, **({} if run else {"capture_output": True}))
    check(p.returncode == 0, "plan %s: status %d, %s" % (" ".join(flags), p.returncode, p.stderr.decode()))
    return json.loads(p.stdout) if p.returncode == 0 else {}


def same_as_run():
    """Sizes of the plan are those of a run with the same flags."""
    for flags in (["--ram", RAM, "-c", "512"], ["-c", "300", "--nodes", "2"], ["--ram", "4M", "-c", "64", "--batch", "7"]):
        with tempfile.TemporaryDirectory() as d:
            stats = os.path.join(d, "stats")
            p = conclave("run", "-m", STORY, "-p", "a", "-n", "1", "--no-heat", "--stats", stats, *flags)
            check(p.returncode == 0, p.stderr.decode())
            s = json.load(open(stats))
        a = plan("--no-measure", *flags)
        for ours, theirs in (("n_ctx", s["n_ctx"]), ("n_slabs", s["n_slabs"]), ("threads", s["threads"])):
            check(a[ours] == theirs, "%s: %s is %s, run has %s" % (flags, ours, a[ours], theirs))
        check(a["bytes"]["trunk"] == s["trunk_bytes"] and a["bytes"]["experts"] == s["slab_bytes"]
              and a["bytes"]["context"] >= s["kv_bytes"], "%s: %s against %s" % (flags, a["bytes"], s["slab_bytes"]))
        check(sum(a["bytes"].values()) <= a["memory_left"], "%s: more than there is: %s" % (flags, a))
        check(sum(a["node_bytes"]) == a["bytes"]["experts"], "the nodes' parts add up: %s" % a["node_bytes"])
        check("measured" not in a and "expected" not in a, "--no-measure measures nothing")


def several():
    """Contexts of a server: each costs as much, and the report counts them."""
    one, four = (plan("--no-measure", "-c", "256", "--parallel", n)["bytes"]["context"] for n in ("1", "4"))
    two = plan("--no-measure", "-c", "256", "--parallel", "2")
    check(two["n_seqs"] == 2 and four - two["bytes"]["context"] == 2 * (two["bytes"]["context"] - one) > 0,
          "1, 2, 4 contexts: %s, %s, %s" % (one, two["bytes"]["context"], four))
    p = conclave("plan", "-m", STORY, "--no-measure", "-c", "256", "--parallel", "2")
    check("2 of 256 tokens" in p.stdout.decode() and "2 sequences with a context of 256 tokens" in p.stderr.decode(),
          "%r %r" % (p.stdout, p.stderr))


def expected():
    """Numbers follow from what was measured and from the hit rate."""
    a = plan("--ram", RAM, "--no-heat")
    m, x = a["measured"], a["expected"]
    check(abs(x["hit_rate"] - a["places"] / a["experts"]) < 1e-9 and "uniform" in x["hit_rate_from"],
          "uniform routing hits %s of %s: %s" % (a["places"], a["experts"], x))
    check(len(m["layer_ms_by_absent"]) == 4 and min(m["layer_ms_by_absent"]) > 0, "0 to 3 absent: %s" % m)
    check(m["trunk_ms"] > 0 and m["disk_bytes_per_s"] > 0 and m["experts_beside_reads_bytes_per_s"] > 0, m)
    check(abs(x["token_ms"] * x["tokens_per_s"] - 1000) < 1e-6, "ms a token and tokens/s: %s" % x)
    check(x["token_ms"] > m["trunk_ms"], "a token takes longer than its trunk: %s, %s" % (x, m))
    check(x["disk_bytes_a_token"] > 0 and x["tokens_per_s_nothing_read"] > 0, x)
    r = plan("--ram", RAM, "--routes", ROUTES)
    s = json.loads(conclave("simulate", "--routes", ROUTES, "--ram", str(r["places"]), "--json").stdout)
    heat = s["policies"]["heat"]
    check(abs(heat["rate"] - r["expected"]["hit_rate"]) < 1e-9, "the rate of simulate: %s, %s" % (heat, r["expected"]))
    check(ROUTES in r["expected"]["hit_rate_from"], "names the trace: %s" % r["expected"])
    whole = plan("-c", "64")
    check(whole["expected"]["hit_rate"] == 1 and whole["expected"]["disk_bytes_a_token"] == 0, whole["expected"])


def for_people():
    p = conclave("plan", "-m", STORY, "--ram", RAM, "--no-heat")
    text = p.stdout.decode()
    check(p.returncode == 0 and not p.stderr, p.stderr.decode())
    check(len(text.splitlines()) <= 32 and max(map(len, text.splitlines())) <= 132, "one screen: %r" % text)
    for word in ("trunk", "experts", "context", "left alone", "on disk", "measured", "hit rate", "uniform", "tokens/s"):
        check(word in text, "%s in the plan: %r" % (word, text))


def refusals():
    refused(check, conclave("plan"), 2, "-m FILE")
    refused(check, conclave("plan", "-m", "none.gguf"), 1, "none.gguf")
    refused(check, conclave("plan", "-m", STORY, "--ram", "1K"), 1, "--ram")
    refused(check, conclave("plan", "-m", STORY, "--ram", RAM, "--routes", STORY), 1, STORY)
    refused(check, conclave("plan", "-m", STORY, "--stats", "x"), 2, "--stats")
    for more in ([], ["--no-measure"]):
        refused(check, conclave("plan", "-m", STORY, *more, env={**os.environ, "CONCLAVE_IO": "nonsense"}), 1, "CONCLAVE_IO",
                "nonsense")


def limited():
    """In a group with a limit the plan says so, and measuring stays inside."""
    with Limit(96 << 20) as g:
        if not g.dir:
            check.skipped += 1
            print("skipped: no memory limit can be set here (%s)" % g.why)
            return
        a = plan("--ram", RAM, "--no-heat", run=g.run)
        check(a["memory_left"] <= 96 << 20 and sum(a["bytes"].values()) <= 96 << 20, a)
        check(g.kills() == 0, "killed while it measured")
        p = g.run([program(), "plan", "-m", STORY, "--no-measure"])
        check(b"cgroup v%d" % g.version in p.stdout and b"96.0" in p.stdout, p.stdout.decode())


def packed():
    """A pack is planned and its own file is read to measure, also cut for another number of nodes."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "pack")
        p = conclave("pack", "-m", STORY, "-o", path, "--nodes", "1")
        check(p.returncode == 0, p.stderr.decode())
        for flags in ([], ["--nodes", "2"]):
            a = plan("--ram", RAM, "--no-heat", *flags, model=path)
            check(a["measured"]["disk_beside_compute_bytes_per_s"] > 0 and a["expected"]["disk_bytes_a_token"] > 0, a)


def probe(folder, cards, problem=None):
    """A program that says what these cards are; rates only when it is asked to measure, and for which shape."""
    told = json.dumps({"build": "cuda", "archs": "90", "driver": 13000 if cards else 0, "runtime": 13000, "problem": problem,
                       "cards": cards})
    path = os.path.join(folder, "probe")
    with open(path, "w") as f:
        f.write("#!/bin/sh\necho \"$*\" >>%s/asked\ncat <<'END'\n%s\nEND\n" % (folder, told))
    os.chmod(path, 0o755)
    return path


def card(number, **measured):
    rates = {"upload_bytes_per_s": 5.3e10, "upload_pageable_bytes_per_s": 6e9, "memory_bytes_per_s": 4.4e12,
             "experts_bytes_per_s": 2e12, "experts_layer_us": 0.7, "node_us": 0.7, "round_trip_us": 3.0, "handoff": [], **measured}
    return {"number": number, "name": "NVIDIA H200", "major": 9, "minor": 0, "pci": "0000:00:06.0", "numa": -1,
            "multiprocessors": 132, "total_bytes": 140 << 30, "free_bytes": 139 << 30, "runs": True, "registers": True,
            "registers_read_only": True, "peers": [], "problem": None, "measured": rates}


def emulated():
    """Slots of emulated cards are those of the run; nothing is expected of their speed."""
    for flags in (["--cards", "emu:2:1M", "--ram", RAM], ["--cards", "emu:1", "--trunk", "cpu"], ["--cards", "emu:3:2M"]):
        with tempfile.TemporaryDirectory() as d:
            stats = os.path.join(d, "stats")
            p = conclave("run", "-m", STORY, "-p", "a", "-n", "1", "--no-heat", "-c", "64", "--stats", stats, *flags)
            check(p.returncode == 0, p.stderr.decode())
            s = json.load(open(stats))
        a = plan("-c", "64", "--no-heat", *flags)
        workers = [w for w in s["workers"] if "card" in w]
        check(a["card_slots"] == s["card_slots"] == sum(c["slots"] for c in a["cards"]) and len(a["cards"]) == len(workers),
              "%s: %s, run has %d slots" % (flags, a["cards"], s["card_slots"]))
        check(all(c["name"] == "emulated" and c["device"] is None and c["pool_bytes"] > 0 for c in a["cards"]), a["cards"])
        check(sum(c["trunk"] for c in a["cards"]) == ("cpu" not in flags), "%s: the trunk's card: %s" % (flags, a["cards"]))
        check(sum(a["bytes"].values()) <= a["memory_left"], "%s: more than there is" % flags)
        x = a["expected"]
        want = min(1, a["card_slots"] / a["experts"])
        check(abs(x["card_hit_rate"] - want) < 1e-9 and x["card_bytes_a_token"] == 0, "%s: %s" % (flags, x))
        if "--ram" in flags:
            want = min(1, (a["card_slots"] + a["places"]) / a["experts"])
            check(abs(x["hit_rate"] - want) < 1e-9, "cards and memory hold different experts: %s" % x)
    text = conclave("plan", "-m", STORY, "--cards", "emu:2:1M", "--ram", RAM).stdout.decode()
    for word in ("card 0", "card 1", "slots for", "and the trunk", "emulated"):
        check(word in text, "%s in %r" % (word, text))


def real():
    """Real cards, as a probe tells them: measured with the model's own shape, and reckoned with."""
    with tempfile.TemporaryDirectory() as d:
        usual = os.environ["CONCLAVE_PROBE"]
        os.environ["CONCLAVE_PROBE"] = probe(d, [card(0), card(1, experts_bytes_per_s=1e12)])
        try:
            listed = "0:2M,1:1M"
            a = plan("--cards", listed, "--trunk", "cpu", "--ram", RAM, "--no-heat")
            sizes = plan("--cards", listed, "--trunk", "cpu", "--ram", RAM, "--no-measure")
            text = conclave("plan", "-m", STORY, "--cards", listed, "--trunk", "cpu", "--ram", RAM).stdout.decode()
            whole = plan("--cards", "0", "--trunk", "cpu")
        finally:
            os.environ["CONCLAVE_PROBE"] = usual
        with open(os.path.join(d, "asked")) as f:
            asked = f.read().splitlines()
        none = plan("--cards", "none", "--ram", RAM, "--no-heat")
        os.environ["CONCLAVE_PROBE"] = probe(d, [], "no NVIDIA driver is installed")
        try:
            without = plan("--ram", RAM, "--no-measure")
            line = conclave("plan", "-m", STORY, "--no-measure").stdout.decode()
        finally:
            os.environ["CONCLAVE_PROBE"] = usual
    check(asked[0] == "--probe" and re.fullmatch(r"--probe=measure \d+:\d+:\d+:\d+:256:3", asked[1]) and asked[2] == "--probe"
          and not asked[2:].count("--probe=measure"), "the probe was asked %s" % asked)
    check([c["device"] for c in a["cards"]] == [0, 1] and a["cards"][0]["slots"] > a["cards"][1]["slots"] > 0, a["cards"])
    check([c["slots"] for c in sizes["cards"]] == [c["slots"] for c in a["cards"]] and "expected" not in sizes, sizes["cards"])
    x = a["expected"]
    parts = [c["part_of_uses"] for c in a["cards"]]
    check(all(abs(p - c["slots"] / a["experts"]) < 1e-9 for p, c in zip(parts, a["cards"])),
          "fast cards compute all that they have: %s" % a["cards"])
    check(abs(x["card_hit_rate"] - sum(parts)) < 1e-9 and abs(x["hit_rate"] - (a["card_slots"] + a["places"]) / a["experts"])
          < 1e-9 and x["card_bytes_a_token"] > 0, x)
    total = x["card_bytes_a_token"] + x["memory_bytes_a_token"]
    check(abs(x["card_bytes_a_token"] / total - sum(parts) / x["hit_rate"]) < 1e-6, "bytes by tier: %s" % x)
    check(x["disk_bytes_a_token"] < none["expected"]["disk_bytes_a_token"], "cards save reads: %s, %s" % (x, none["expected"]))
    check(whole["expected"]["hit_rate"] == 1 and whole["cards"][0]["part_of_uses"] > 0.5, whole)
    for word in ("card 0", "card 1", "NVIDIA H200", "139 GiB free", "2000.0 GB/s of weights", "uploads 53.0 GB/s", "by card 0",
                 "from cards"):
        check(word in text, "%s in %r" % (word, text))
    check(not without["cards"] and "no NVIDIA driver" in without["cards_not_used"], without)
    check("no NVIDIA driver" in line and "none" in line, line)


before = set(os.listdir("/dev/shm"))
same_as_run()
several()
expected()
for_people()
refusals()
limited()
packed()
emulated()
real()
check(set(os.listdir("/dev/shm")) <= before | {x for x in os.listdir("/dev/shm") if "conclave" not in x},
      "something is left in /dev/shm")
check.end()
