#!/usr/bin/env python3
"""A disk that fails under a whole run, in both forms of reading: what passes is tried again and the text
is the same; what stays ends the run with one line that names the file, the byte and the expert; nothing
is left. And what a kernel or a file system may refuse: io_uring, O_DIRECT. fault_io.c does it."""
import ctypes
import mmap
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from cli import STORY, SharedMemory, gone, program, refused, workers_up  # noqa: E402
from conclave import GOLDEN, Checks  # noqa: E402

TABLES = GOLDEN + "/tiny/qwen4exp/model.gguf"

check = Checks()
shm = SharedMemory()
SECONDS = 120  # within which everything here ends; it takes a second on an idle machine
PROMPT = "One Sock\nVelvet was a"
RAM = "600K"  # a few of the 48 experts: most calls wait for the disk
# a sanitizer's library would have to come first
ENV = dict(os.environ, ASAN_OPTIONS="verify_asan_link_order=0")


class Run:
    def __init__(self, model, env, *more, tokens=40):
        args = [program(), "run", "-m", model, "-p", PROMPT, "-n", str(tokens), "--ignore-eos", "--temp", "0",
                "--ram", RAM, "--no-heat", *more]
        p = subprocess.Popen(args, env=dict(ENV, **env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        self.workers = workers_up(p)
        try:
            out, err = p.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            check(False, "%s %s does not end" % (env, args))
        self.args, self.returncode, self.stdout, self.stderr = args, p.returncode, out, err
        check(gone(self.workers), "%s: still running: %s" % (env, self.workers))
        check(not shm.left(), "%s: left in /dev/shm: %s" % (env, shm.left()))

    def lines(self, word):
        return [x for x in self.stderr.decode(errors="replace").splitlines() if word in x]


def cached_pages(path):
    """Of the file, in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_WRITE,
                                          flags=mmap.MAP_PRIVATE) as m:
        n = (len(m) + 4095) // 4096
        seen = (ctypes.c_ubyte * n)()
        at = ctypes.addressof(ctypes.c_char.from_buffer(m))
        if libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(len(m)), seen):
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(x & 1 for x in seen)


def drop(path):
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def counts(path):
    with open(path) as f:
        return [int(x) for x in f.read().split()]


def passing(lib, tmp, text, total):
    """Faults that pass: the text is the same, and they did happen."""
    count = os.path.join(tmp, "count")
    for io in ("uring", "threads"):
        for fault in ("eio:3:1", "eio:%d:1" % (total // 2), "eio:%d:2" % (total // 2), "eagain:5:3", "short:0:9",
                      "short:%d:50" % (total // 2)):
            r = Run(STORY, {"LD_PRELOAD": lib, "FAULT_READ": fault, "FAULT_COUNT": count, "CONCLAVE_IO": io})
            check(r.returncode == 0 and r.stdout == text, "%s, %s: status %d, %r %r" %
                  (io, fault, r.returncode, r.stdout, r.stderr[-300:]))
            check(counts(count)[1] == int(fault.split(":")[2]), "%s, %s: %s reads and bad ones" %
                  (io, fault, counts(count)))


def lasting(lib, total):
    for io in ("uring", "threads"):
        for skip, what in ((0, "trunk tensor "), (total // 2, ", expert ")):
            r = Run(STORY, {"LD_PRELOAD": lib, "FAULT_READ": "eio:%d:0" % skip, "CONCLAVE_IO": io})
            refused(check, r, 1, "story-moe-q4_k_m.gguf: byte ", what, "Input/output error",
                    lines=3, what="%s, a disk that keeps failing after %d reads" % (io, skip))
            check(len(r.lines("cannot read")) == 1, "told more than once: %r" % r.stderr)


def rows(lib, tmp):
    """The same where all that is read in an answer are rows of look-up tables: the experts fit."""
    count = os.path.join(tmp, "count")
    paged = ("--table-ram", "4K", "--batch", "1")
    whole = Run(TABLES, {"LD_PRELOAD": lib, "FAULT_COUNT": count})
    at_start = counts(count)[0]
    r = Run(TABLES, {"LD_PRELOAD": lib, "FAULT_COUNT": count}, *paged)
    total = counts(count)[0]
    check(whole.returncode == 0 and r.stdout == whole.stdout and len(r.stdout) > 60 and total > at_start + 40,
          "rows: %d and %d reads, %r, %r" % (at_start, total, r.stdout, r.stderr))
    for io in ("uring", "threads"):
        env = {"LD_PRELOAD": lib, "CONCLAVE_IO": io}
        for fault in ("eio:%d:2" % (total - 40), "eagain:%d:3" % (total - 30), "short:%d:9" % (total - 20)):
            r = Run(TABLES, dict(env, FAULT_READ=fault, FAULT_COUNT=count), *paged)
            check(r.returncode == 0 and r.stdout == whole.stdout and counts(count)[1] == int(fault.split(":")[2]),
                  "rows, %s, %s: status %d, %r %r" % (io, fault, r.returncode, r.stdout, r.stderr[-300:]))
        r = Run(TABLES, dict(env, FAULT_READ="eio:%d:0" % (total - 20)), *paged)
        check(r.returncode == 1 and len(r.lines("cannot read")) == 1 and len(r.lines("Input/output error")) == 1 and
              "model.gguf: byte " in r.lines("cannot read")[0], "rows, %s, a disk that keeps failing: status %d, %r" %
              (io, r.returncode, r.stderr))


def shorter(tmp):
    """The file loses its end while an answer is being written."""
    path = os.path.join(tmp, "shrinks.gguf")
    for io in ("uring", "threads"):
        shutil.copy(STORY, path)
        p = subprocess.Popen([program(), "run", "-m", path, "-p", PROMPT, "-n", "-1", "-c", "100000",
                              "--ignore-eos", "--temp", "0", "--ram", RAM, "--no-heat"], env=dict(ENV, CONCLAVE_IO=io),
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        workers = workers_up(p)
        os.read(p.stdout.fileno(), 100)
        os.truncate(path, os.path.getsize(path) // 4)
        try:
            p.stdout_, p.stderr_ = p.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()
            check(False, "%s: goes on with a file that was cut" % io)
            continue
        err = p.stderr_.decode(errors="replace")
        last = err.splitlines()[-1] if err else ""
        check(p.returncode == 1 and "shrinks.gguf: byte " in last and ", expert " in last and
              "has become shorter" in last, "%s: cut while it runs: status %d, %r" % (io, p.returncode, err))
        check(gone(workers) and not shm.left(), "%s: something is left" % io)


def refusals(lib, tmp, text):
    path = os.path.join(tmp, "plain.gguf")
    shutil.copy(STORY, path)
    drop(path)
    for io in ("uring", "threads"):
        r = Run(path, {"LD_PRELOAD": lib, "FAULT_DIRECT": "1", "CONCLAVE_IO": io})
        check(r.returncode == 0 and r.stdout == text, "no O_DIRECT: status %d, %r" % (r.returncode, r.stderr))
        check(len(r.lines("O_DIRECT")) == 1, "no O_DIRECT: not said once: %r" % r.stderr)
        check(cached_pages(path) == 0, "%s without O_DIRECT: %d pages of the file stay in the page cache" %
              (io, cached_pages(path)))
    r = Run(path, {})
    check(r.returncode == 0 and r.stdout == text, "a copy: status %d" % r.returncode)
    check(cached_pages(path) == 0, "%d pages of the file stay in the page cache" % cached_pages(path))
    r = Run(STORY, {"LD_PRELOAD": lib, "FAULT_URING": "1"})
    check(r.returncode == 0 and r.stdout == text, "no io_uring: status %d, %r" % (r.returncode, r.stderr))
    said = r.lines("io_uring")
    check(len(said) == 1 and "threads instead" in said[0], "no io_uring: not said once: %r" % r.stderr)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d:
        shm.before.add(os.path.basename(d))
        path = os.path.join(d, "tmpfs.gguf")
        shutil.copy(STORY, path)
        r = Run(path, {})
        check(r.returncode == 0 and r.stdout == text, "tmpfs: status %d, %r" % (r.returncode, r.stderr))


def main():
    os.makedirs("build/tmp", exist_ok=True)
    with tempfile.TemporaryDirectory(dir="build/tmp") as tmp:  # on a disk, as /tmp may not be
        tmp = os.path.abspath(tmp)
        lib, count = os.path.join(tmp, "fault_io.so"), os.path.join(tmp, "count")
        subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", lib,
                        "tests/faults/fault_io.c", "-ldl"], check=True)
        r = Run(STORY, {})
        check(r.returncode == 0 and len(r.stdout) > 100, "status %d, %r" % (r.returncode, r.stderr))
        text = r.stdout
        r = Run(STORY, {"LD_PRELOAD": lib, "FAULT_COUNT": count})
        check(r.stdout == text, "without a fault: %r" % r.stdout)
        total, bad = counts(count)
        check(total > 100 and not bad, "%d reads, %d of them bad" % (total, bad))
        passing(lib, tmp, text, total)
        lasting(lib, total)
        rows(lib, tmp)
        shorter(tmp)
        refusals(lib, tmp, text)
    check.end()


main()
