#!/usr/bin/env python3
"""Bad input: one clear line each, and the exit status."""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from cli import SHORT, STORY, program, refused, string, with_metadata  # noqa: E402
from conclave import Checks, build_folder, conclave  # noqa: E402

check = Checks()
dir_ = tempfile.TemporaryDirectory()
tmp = dir_.name
with open(STORY, "rb") as f:
    model = f.read()


def file_of(name, data):
    path = os.path.join(tmp, name)
    with open(path, "wb") as out:
        out.write(data)
    return path


def run(path, *args, **more):
    return conclave("run", "-m", path, "-p", SHORT, "-n", 4, "--temp", 0, *args, **more)


# --- files -------------------------------------------------------------------------------------
for verb in (("run", "-p", "x"), ("eval", "--tokens", "1", "--greedy", "1"), ("tokenize", "-p", "x"),
             ("perplexity", "-f", "tests/demo/heldout.txt")):
    path = os.path.join(tmp, "none.gguf")
    refused(check, conclave(verb[0], "-m", path, *verb[1:]), 1, path, "No such file")
    refused(check, conclave(verb[0], "-m", tmp, *verb[1:]), 1, tmp, "directory")
refused(check, conclave("inspect", os.path.join(tmp, "none.gguf")), 1, "none.gguf", "No such file")
data_at = len(model) * 99 // 100
for n in (0, 3, 8, 20, 24, 1000, 20000, 60000, len(model) // 2, len(model) - 1):
    path = file_of("cut-%d.gguf" % n, model[:n])
    refused(check, run(path), 1, path, what="truncated to %d bytes" % n)
    refused(check, conclave("inspect", path), 1, path, what="inspect, truncated to %d bytes" % n)
path = file_of("magic.gguf", b"GGML" + model[4:])
refused(check, run(path), 1, path, "byte 0", "GGUF")
path = file_of("text.gguf", b"Once upon a time there was a text file, which was no model.\n" * 100)
refused(check, run(path), 1, path)


def with_architecture(name):
    return with_metadata(model, lambda keys: keys.replace(string(b"qwen3moe"), string(name), 1))


path = file_of("unknown.gguf", with_architecture(b"qwen-nine-moe"))
refused(check, run(path), 1, path, "qwen-nine-moe", "olmoe", "qwen3moe")
path = file_of("dense.gguf", with_architecture(b"llama").replace(b"_exps.weight", b"_mats.weight"))
refused(check, run(path), 1, path, "llama", "dense", "llama.cpp")


def swapped(name):
    """The model with the two dimensions of a matrix exchanged: as many bytes, another shape."""
    at = model.index(struct.pack("<Q", len(name)) + name) + 8 + len(name)
    n_dims, a, b = struct.unpack_from("<IQQ", model, at)
    assert n_dims == 2 and a != b
    return model[:at] + struct.pack("<IQQ", 2, b, a) + model[at + 20:]


path = file_of("shape.gguf", swapped(b"blk.1.ffn_gate_inp.weight"))
refused(check, run(path), 1, path, "blk.1.ffn_gate_inp.weight", "256")

# --- sizes -------------------------------------------------------------------------------------
refused(check, run(STORY, "-c", 8), 1, "the prompt has 20 tokens", "8")
long_text = file_of("long.txt", b"Velvet was a busy hedgehog. " * 400)
refused(check, conclave("run", "-m", STORY, "-f", long_text), 1, "tokens", "1024")
refused(check, run(STORY, "--ram", "1K"), 1, "--ram", "1024", what="--ram too small")
refused(check, conclave("eval", "-m", STORY, "--tokens", "1,2,3,4", "-c", 3, "--greedy", 1), 1, "4 tokens", "3")
refused(check, conclave("eval", "-m", STORY, "--tokens", "1,2,2048", "--greedy", 1), 1, "entry 3", "2048")
refused(check, conclave("perplexity", "-m", STORY, "-f", file_of("short.txt", b"A cat.")), 1, "tokens", "512")
refused(check, conclave("perplexity", "-m", STORY, "-f", os.path.join(tmp, "no.txt")), 1, "no.txt", "No such file")
refused(check, conclave("run", "-m", STORY, "-f", os.path.join(tmp, "no.txt")), 1, "no.txt", "No such file")
refused(check, conclave("run", "-m", STORY, "-f", tmp), 1, tmp, "directory")
refused(check, conclave("run", "-m", STORY, "-p", ""), 1, "prompt is empty", "BOS")
refused(check, conclave("run", "-m", STORY), 1, "prompt is empty", what="nothing on standard input")

for ids, why in (("1,,2", "between two commas"), ("1,2,", "after the last comma"), ("1 , ,2", "between two commas")):
    refused(check, conclave("eval", "-m", STORY, "--greedy", 1, "--tokens", ids), 2, why, what="--tokens %s" % ids)
refused(check, conclave("run", "--fo\no\x1b[31m"), 2, "--fo?o?[31m", what="an option with a newline")

# --- outputs -----------------------------------------------------------------------------------
bad = os.path.join(tmp, "no", "out")
EVAL = ("eval", "-m", STORY, "--tokens", "1,2,3")
refused(check, conclave(*EVAL, "--logits", bad), 1, bad, "No such file")
refused(check, conclave(*EVAL, "--logits", tmp), 1, tmp, "directory")
refused(check, conclave(*EVAL, "--logits", "/dev/full"), 1, "/dev/full", "No space")
refused(check, conclave(*EVAL, "--greedy", 1, "--stats", bad), 1, bad)
refused(check, conclave(*EVAL, "--dump", bad), 1, bad)
refused(check, conclave(*EVAL, "--dump", long_text), 1, long_text, "no folder")
refused(check, run(STORY, "--stats", bad), 1, bad)
# found before the work begins, and nothing is left of a file that got nothing
path = os.path.join(tmp, "out.f32")
p = conclave("eval", "-m", file_of("cut.gguf", model[:60000]), "--tokens", "1", "--logits", path)
check(p.returncode == 1 and not os.path.exists(path), "an empty file is left after an error")
keep = file_of("keep.f32", b"before")
p = conclave(*EVAL, "--logits", keep, "--ram", "1K")
check(p.returncode == 1 and open(keep, "rb").read() == b"before", "an error has cost the old file")
p = conclave(*EVAL, "--logits", keep)
check(p.returncode == 0 and os.path.getsize(keep) == 3 * 2048 * 4, "eval to a file: %s" % p.stderr)
p = subprocess.run("%s eval -m %s --tokens 1,2,3 --logits /dev/stdout | wc -c" % (program(), STORY), shell=True,
                   capture_output=True)
check(p.stdout.strip() == b"24576", "--logits into a pipe: %s" % p)

twice = os.path.join(tmp, "twice")
other = os.path.join(tmp, "..", os.path.basename(tmp), "twice")
refused(check, run(STORY, "--stats", twice, "--record-routes", twice), 1, twice, "--stats", "--record-routes")
refused(check, run(STORY, "--stats", twice, "--record-routes", other), 1, "--stats", "--record-routes")
refused(check, conclave(*EVAL, "--logits", twice, "--stats", other), 1, "--logits", "--stats")
check(not os.path.exists(twice), "a result that was refused is left")
check(conclave(*EVAL, "--logits", "/dev/null", "--stats", "/dev/null").returncode == 0, "two results into /dev/null")
copy = file_of("self.gguf", model)
refused(check, conclave("eval", "-m", copy, "--tokens", "1", "--logits", copy), 1, copy, "model file")
refused(check, run(copy, "--stats", copy), 1, copy, "model file")
check(open(copy, "rb").read() == model, "a model that was named as output is not touched")
limited = subprocess.run(["prlimit", "--fsize=1000000", program(), "run", "-m", STORY, "-p", SHORT, "-n", "2"],
                         capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
refused(check, limited, 1, "File too large", what="a limit of file sizes")
limited = subprocess.run(["prlimit", "--nofile=12", program(), "run", "-m", STORY, "-p", SHORT, "-n", "2"],
                         capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
refused(check, limited, 1, what="few descriptors")

# --- standard output ---------------------------------------------------------------------------
def shell(tail):
    """bash, so that the program's own status comes back, and its messages."""
    p = subprocess.run(["bash", "-c", "'%s' run -m '%s' -p '%s' -n 200 --ignore-eos %s" %
                        (program(), STORY, SHORT, tail)], capture_output=True, timeout=120)
    p.stderr, first = b"\n".join(p.stderr.splitlines()[1:]) + b"\n", p.stderr.splitlines()[:1]
    check(first and first[0].startswith(b"conclave: kv"), "the settings come first: %s" % first)
    return p


p = shell("| head -c 10; exit ${PIPESTATUS[0]}")
refused(check, p, 1, "standard output", "closed", what="| head -c 10")
check(p.stdout == SHORT.encode()[:10], "head got %r" % p.stdout)
refused(check, shell(">/dev/full"), 1, "standard output", "No space", what=">/dev/full")
refused(check, shell(">&-"), 1, "standard output", what=">&-")
for verb in (("tokenize", "-m", STORY, "-p", "x"), ("inspect", STORY), ("--help",), ("run", "--help"), ("--version",),
             EVAL + ("--greedy", 2)):
    with open("/dev/full", "w") as full:
        p = subprocess.run([program(), *map(str, verb)], stdout=full, stderr=subprocess.PIPE)
    refused(check, p, 1, "standard output", what="%s >/dev/full" % " ".join(map(str, verb)))

# --- the other programs ------------------------------------------------------------------------
def installed(name):
    folder = os.path.join(tmp, name)
    shutil.copytree(os.path.join(build_folder(), "bin"), folder)
    return folder


def run_in(folder):
    return subprocess.run([program(folder), "run", "-m", STORY, "-p", SHORT, "-n", "4", "--temp", "0"],
                          capture_output=True, timeout=120, stdin=subprocess.DEVNULL)


for worker in ("conclave-cpu", "conclave-pager"):
    folder = installed("as-they-are-" + worker)
    good = run_in(folder)
    check(good.returncode == 0, "a copy of the programs runs: %s" % good.stderr)
    there = os.path.join(folder, worker)
    with open(there, "rb") as f:
        binary = f.read()
    build = subprocess.run([program(folder), "--version"], capture_output=True).stdout.split(b"build ")[1][:16]
    check(build in binary, "%s has the build's id" % worker)
    other = bytes([build[0] ^ 1]) + build[1:]
    with open(there, "wb") as f:
        f.write(binary.replace(build, other))
    refused(check, run_in(folder), 1, there, other.decode(), build.decode(), "together", what=worker + " of another build")
    for text, what in (("#!/bin/sh\nexit 0\n", "says nothing"), ("#!/bin/sh\nkill -9 $$\n", "is killed"),
                       ("#!/bin/sh\nexit 3\n", "exits with 3"), ("no program\n", "is text")):
        with open(there, "w") as f:
            f.write(text)
        refused(check, run_in(folder), 1, there, what="%s %s" % (worker, what))
    os.chmod(there, 0o644)
    refused(check, run_in(folder), 1, there, "ermission", what=worker + " is not executable")
    os.unlink(there)
    refused(check, run_in(folder), 1, there, "No such file", what=worker + " is missing")
check.end()
