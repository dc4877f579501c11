#!/usr/bin/env python3
"""conclave doctor: a line for each thing, status 0 where runs work and 1 where they would not, with or without
cards (a probe in place of conclave-gpu's stands for them)."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from cli import STORY, SharedMemory, program, refused  # noqa: E402
from conclave import Checks, build_folder, conclave  # noqa: E402

check = Checks()
dir_ = tempfile.TemporaryDirectory()
shm = SharedMemory()
GIB = 1 << 30


def doctor(*args, status=0, folder=None, **env):
    """{about: [(word, text)]} of the lines."""
    p = subprocess.run([program(folder), "doctor", *args], capture_output=True, timeout=120, stdin=subprocess.DEVNULL,
                       env={**os.environ, **env})
    lines = p.stdout.decode().splitlines()
    check(p.returncode == status and not p.stderr, "doctor %s: status %d, %s %s" % (args, p.returncode, p.stdout, p.stderr))
    found = {}
    for line in lines[:-2]:
        m = re.match(r"(ok|note|BAD) +", line)
        if check(m and len(line) > 18, "no line of the doctor: %r" % line):
            found.setdefault(line[6:18].strip(), []).append((m.group(1), line[18:]))
    words = [w for x in found.values() for w, _ in x]
    check(lines[-2] == "" and lines[-1].startswith("runs would fail here" if "BAD" in words else "runs work here"),
          "the last line of %s" % lines)
    check((status == 1) == ("BAD" in words), "status %d with %s" % (status, words))
    return found


def says(found, about, word, *texts):
    """One of the lines about it."""
    check(any(w == word and all(t in x for t in texts) for w, x in found.get(about, [])),
          "%s: %s, wanted %s %s" % (about, found.get(about), word, texts))


def probe(text):
    path = os.path.join(dir_.name, "probe")
    with open(path, "w") as f:
        f.write("#!/bin/sh\n[ \"$*\" = --probe=measure ] || exit 9\ncat <<'END'\n%s\nEND\n" % text)
    os.chmod(path, 0o755)
    return path


def card(number, **more):
    return {"number": number, "name": "NVIDIA H200", "major": 9, "minor": 0, "pci": "0000:18:00.0", "numa": 1,
            "multiprocessors": 132, "total_bytes": 140 * GIB, "free_bytes": 139 * GIB, "runs": True, "registers": True,
            "registers_read_only": False, "peers": [1 - number], "problem": None,
            "measured": {"upload_bytes_per_s": 5.21e10, "upload_pageable_bytes_per_s": 4.2e9, "memory_bytes_per_s": 4.1e12,
                         "round_trip_us": 2.4, "handoff": [] if number else [{"card": 1, "mapped_us": 1.9,
                                                                              "peer_us": 1.1}]}, **more}


def told(cards, **more):
    return json.dumps({"build": "cuda", "archs": "80 90", "driver": 13010, "runtime": 13000, "problem": None,
                       "cards": cards, **more})


def without_cards():
    found = doctor(CONCLAVE_PROBE=probe(told([], driver=0, problem="no NVIDIA driver is installed: install one")))
    for about in ("programs", "kernel", "processor", "memory", "files", "/dev/shm", "io_uring", "huge pages"):
        check(about in found, "nothing about %s: %s" % (about, list(found)))
    says(found, "programs", "ok", "conclave-pager")
    says(found, "cards", "note", "no NVIDIA driver", "install one")
    check("model" not in found, found)
    found = doctor("-m", STORY)
    says(found, "model", "ok", "qwen3moe", "1024 tokens")
    check("O_DIRECT" in found and "cards" in found or "driver" in found, list(found))
    says(doctor(CONCLAVE_CPU="generic"), "processor", "note", "generic", "CONCLAVE_CPU")
    says(doctor(CONCLAVE_IO="threads"), "io_uring", "note", "CONCLAVE_IO=threads")


def with_cards():
    found = doctor(CONCLAVE_PROBE=probe(told([card(0), card(1, registers_read_only=True)])))
    says(found, "driver", "ok", "CUDA 13.1", "13.0")
    says(found, "card 0", "ok", "NVIDIA H200", "9.0", "132", "139 GiB of 140 GiB", "0000:18:00.0", "node 1")
    says(found, "card 0", "ok", "memory 4100 GB/s", "2.4 us")
    says(found, "card 0", "ok", "52.1 GB/s from registered", "4.2 GB/s")
    says(found, "card 0", "ok", "cannot be registered", "writable")
    says(found, "card 1", "ok", "read-only mappings can be registered")
    says(found, "link", "ok", "0 and 1", "1.1 us", "1.9")
    found = doctor(CONCLAVE_PROBE=probe(told([card(0, peers=[]), card(1, peers=[])])))
    says(found, "link", "note", "1.9 us", "topo")
    found = doctor(CONCLAVE_PROBE=probe(told([card(0, registers=False)])))
    says(found, "card 0", "note", "cannot be registered", "4.2 GB/s")
    found = doctor(CONCLAVE_PROBE=probe(told([card(0, name="P100", major=6, runs=False), card(1, problem="busy")])))
    says(found, "card 0", "note", "P100", "6.0", "8.0, 9.0", "CUDA_ARCH=60")
    says(found, "card 1", "note", "busy")


def would_fail():
    says(doctor(status=1, CONCLAVE_IO="nonsense"), "io_uring", "BAD", "nonsense", "threads")
    says(doctor("-m", "none.gguf", status=1), "model", "BAD", "none.gguf")
    folder = os.path.join(dir_.name, "bin")
    shutil.copytree(os.path.join(build_folder(), "bin"), folder)
    os.unlink(os.path.join(folder, "conclave-pager"))
    says(doctor(status=1, folder=folder), "programs", "BAD", "conclave-pager", "together")
    with open(os.path.join(folder, "conclave-pager"), "w") as f:
        f.write("#!/bin/sh\necho conclave-pager build 0123456789abcdef\n")
    os.chmod(os.path.join(folder, "conclave-pager"), 0o755)
    says(doctor(status=1, folder=folder), "programs", "BAD", "another build")


without_cards()
with_cards()
would_fail()
refused(check, conclave("doctor", "--stats", "x"), 2, "--stats")
with open("/dev/full", "w") as full:
    p = subprocess.run([program(), "doctor"], stdout=full, stderr=subprocess.PIPE)
refused(check, p, 1, "standard output")
check(not shm.left(), "something is left in /dev/shm")
check.end()
