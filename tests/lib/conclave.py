"""What the Python tests share: counting checks, running the programs, reading golden data.

A test is a program: first argument the build folder, last line "N passed, N failed, N skipped", working
directory the repository's root.
"""
import array
import atexit
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from buffers import read_data

GOLDEN = "tests/golden"
DEMO = "tests/demo"


# heat files of the tests' models are nobody's
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="conclave-test-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], True)


def no_cards():
    """Cards of the machine are used where a test asks for them, not where one happens to be there: a probe that
    finds none."""
    path = os.path.join(os.environ["XDG_CACHE_HOME"], "probe")
    with open(path, "w") as f:
        f.write("#!/bin/sh\necho '%s'\n" % json.dumps({"archs": "", "driver": 0, "runtime": 0, "cards": [],
                                                      "problem": "tests use no cards but those that they name"}))
    os.chmod(path, 0o755)
    os.environ.setdefault("CONCLAVE_PROBE", path)


no_cards()


class Checks:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def __call__(self, ok, text):
        if ok:
            self.passed += 1
        else:
            self.failed += 1
            print("FAILED: " + text, flush=True)
        return ok

    def skip(self, text):
        if os.environ.get("CI") == "true":
            return self(False, "must not be skipped in CI: " + text)
        self.skipped += 1
        print("skipped: " + text, flush=True)

    def end(self):
        print("%d passed, %d failed, %d skipped" % (self.passed, self.failed, self.skipped))
        sys.exit(self.failed != 0)


def build_folder():
    return sys.argv[1] if len(sys.argv) > 1 else "build"


def conclave(*args, timeout=300, **more):
    """Runs build/bin/conclave; the finished process, output as bytes."""
    command = [os.path.join(build_folder(), "bin", "conclave")] + [str(a) for a in args]
    return subprocess.run(command, capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL, **more)


class Eval:
    """One `conclave eval`: logits' bytes, the NextN block's if wanted, statistics, the process."""

    def __init__(self, model, tokens, *args, want_stats=True, nextn=False, timeout=300):
        with tempfile.TemporaryDirectory() as d:
            out, stats, rows = os.path.join(d, "logits"), os.path.join(d, "stats"), os.path.join(d, "nextn")
            more = ["--stats", stats] if want_stats else []
            more += ["--nextn", rows] if nextn else []
            self.p = conclave("eval", "-m", model, "--tokens", ",".join(map(str, tokens)), "--logits", out,
                              *more, *args, timeout=timeout)
            self.logits = open(out, "rb").read() if os.path.exists(out) else b""
            self.nextn = open(rows, "rb").read() if os.path.exists(rows) else b""
            self.stats = json.load(open(stats)) if os.path.exists(stats) else {}
        self.ok = self.p.returncode == 0

    def hash(self, nextn=False):
        return hashlib.sha256(self.nextn if nextn else self.logits).hexdigest()[:16]

    def error(self):
        return self.p.stderr.decode(errors="replace").strip()[-400:]


def floats(data):
    a = array.array("f")
    a.frombytes(data)
    return a


def read_floats(path):
    return floats(read_data(path))


def cases(names):
    """(name, model file, case folder, prompt) of golden models."""
    for name in names:
        folder = os.path.join(GOLDEN, name)
        with open(os.path.join(folder, "case.json")) as f:
            for prompt in json.load(f)["prompts"]:
                yield name, os.path.join(folder, "model.gguf"), folder, prompt


def whole_model_hashes():
    """The table "Whole models" of ARITHMETIC.md: (case, prompt) -> {"f32": ..., "f16": ..., "nextn f32": ...,
    "nextn f16": ...}."""
    table = {}
    with open("kernels/ARITHMETIC.md") as f:
        for line in f:
            cells = [c.strip() for c in line.strip().strip("|").split("|")]
            if len(cells) >= 5 and re.match(r"(tiny|models|demo)/", cells[0]):
                cells += [""] * 2
                table[cells[0], cells[1]] = {"f32": cells[3], "f16": cells[4], "nextn f32": cells[5],
                                             "nextn f16": cells[6]}
    return table


# golden models whose architecture is built
BUILT = ["tiny/olmoe", "tiny/qwen3moe", "tiny/qwen35moe", "tiny/qwen4exp", "tiny/glm5next", "models/olmoe-q8_0",
         "models/qwen3moe-q4_k_m", "models/qwen3moe-iq", "models/qwen35moe-q4_k_m", "models/qwen4exp-q8_0-iq4_xs"]


def long_prompts():
    """(name, model file, tokens) of every built golden model's long prompts and of one of each demo model."""
    for name, model, _, prompt in cases(BUILT):
        if prompt["name"] not in ("short", "eos"):  # the long one runs the same code on more tokens
            yield name, model, prompt["tokens"]
    for case, prompt in (("case", 0), ("story-moe", -1)):
        with open("%s/ref/%s.json" % (DEMO, case)) as f:
            d = json.load(f)
        model = os.path.normpath(os.path.join(DEMO, "ref", d["model"]))
        yield os.path.basename(model), model, d["prompts"][prompt]["tokens"]
