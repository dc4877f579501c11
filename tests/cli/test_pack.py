#!/usr/bin/env python3
"""Packs with the real programs: the same bytes as the original for every pair of node numbers; damage is
found, named and read from the original; an interrupted or refused pack leaves nothing under the final names
and is gone on with; the original is never touched."""
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from cli import STORY, SharedMemory, program, refused, start, wait_for  # noqa: E402
from conclave import DEMO, GOLDEN, Checks, Eval, conclave  # noqa: E402
from limit import Limit  # noqa: E402

MB = 1 << 20
MODELS = [GOLDEN + "/tiny/olmoe/model.gguf", GOLDEN + "/models/qwen3moe-iq/model.gguf",
          GOLDEN + "/models/qwen3moe-q4_k_m/model.gguf"]
SHAPE = ["--layers", "6", "--embd", "1024", "--ff", "512", "--experts", "54", "--used", "4", "--heads", "8",
         "--kv-heads", "2", "--head-dim", "64", "--vocab", "4096", "--type", "q4_k"]
TOKENS = [7, 100, 33, 5, 61, 2, 18, 90, 44, 3, 12, 77]
NAMES = ("dense.gguf", "experts.pack")
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
/* A slow disk, on a file system that sets nothing aside and may be full after some writes. */
static int left;
static useconds_t slow;
static ssize_t (*real)(int, const void *, size_t, off_t);
__attribute__((constructor)) static void begin(void)
{
    real = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    left = atoi(getenv("SHIM_WRITES"));
    slow = atoi(getenv("SHIM_US"));
}
int fallocate(int fd, int mode, off_t at, off_t n)
{
    (void)fd, (void)mode, (void)at, (void)n;
    errno = EOPNOTSUPP;
    return -1;
}
ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (at) /* else head and index, which are in place */
        usleep(slow);
    if (at && __atomic_fetch_sub(&left, 1, __ATOMIC_RELAXED) <= 0) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, p, n, at);
}
"""
check = Checks()
tmp = tempfile.mkdtemp(prefix="conclave-pack-", dir=os.environ.get("TMPDIR", "/var/tmp"))


def at(*names):
    return os.path.join(tmp, *names)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def flip(path, byte):
    with open(path, "r+b") as f:
        f.seek(byte)
        b = f.read(1)
        f.seek(byte)
        f.write(bytes([b[0] ^ 4]))


def read_again(r):
    return r.stats.get("residency", {}).get("read_again", -1)


class Index:
    """Where things lie in a pack (coordinator/pack/format.h)."""

    def __init__(self, folder, end=""):
        with open(os.path.join(folder, "experts.pack" + end), "rb") as f:
            self.data = f.read(4 * MB)
        self.nodes, self.layers, self.experts, self.tensors = struct.unpack_from("<12xIIII", self.data)
        self.blocks = 4096 + 128 * self.tensors + 56 * self.layers

    def block(self, layer, expert, node=0):
        """(byte in the file, bytes)"""
        n = (layer * self.experts + expert) * self.nodes + node
        return struct.unpack_from("<QQ", self.data, self.blocks + 24 * n)

    def checksum(self, n):
        return struct.unpack_from("<Q", self.data, self.blocks + 24 * n + 16)[0]


def pack(model, folder, *more, **popen):
    p = conclave("pack", "-m", model, "-o", folder, *more, **popen)
    check(p.returncode == 0, "pack %s %s: %s" % (model, more, p.stderr.decode()))
    return p


def same_bytes():
    for model in MODELS + [STORY]:
        bases = {n: Eval(model, TOKENS, "--nodes", n) for n in (1, 2, 3)}
        for packed in (1, 2, 3):
            folder = at("same%d" % packed)
            before = os.stat(model).st_mtime_ns, read(model)
            pack(model, folder, "--nodes", packed)
            check((os.stat(model).st_mtime_ns, read(model)) == before, "%s was touched" % model)
            for nodes in (1, 2, 3):
                base = bases[nodes]
                for ram in ([], ["--ram", max(base.stats["slab_bytes_all"] // 2, base.stats["slab_bytes_one"])]):
                    r = Eval(folder, TOKENS, "--nodes", nodes, *ram)
                    what = "%s for %d, run with %d %s" % (model, packed, nodes, ram)
                    check(r.ok and base.ok, "%s: %s" % (what, r.error()))
                    check(r.logits == base.logits and len(r.logits) > 0, "%s: other bytes" % what)
                    check((b"without checksums" in r.p.stderr) == (packed != nodes), "%s: %s" % (what, r.error()))
                    check(read_again(r) == 0, "%s: read again" % what)
            check(conclave("pack", "--verify", folder).returncode == 0, "%s: damaged?" % folder)
            shutil.rmtree(folder)


def one_place():
    """Every command that opens a model opens a pack, by its folder or its dense file."""
    folder = at("story")
    with open(at("text"), "wb") as f:
        f.write(read(DEMO + "/heldout.txt")[:2000])
    pack(STORY, folder, "--nodes", 1)
    for name in (folder, folder + "/dense.gguf"):
        for args in (["tokenize", "-p", "a busy hedgehog"], ["run", "-p", "One Sock", "-n", "8", "--temp", "0"],
                     ["perplexity", "-f", at("text"), "-c", "64"]):
            a, b = (conclave(args[0], "-m", m, *args[1:]) for m in (STORY, name))
            check(a.returncode == 0 and a.stdout and a.stdout == b.stdout, "%s %s: %s" % (name, args, b.stderr))
        p = conclave("inspect", name, "--json")
        j = json.loads(p.stdout) if p.returncode == 0 else {}
        check(j.get("pack", {}).get("nodes") == 1 and j["pack"]["originals"] == [os.path.realpath(STORY)],
              "inspect %s: %s %s" % (name, j.get("pack"), p.stderr))
        check(b"for 1 node" in conclave("inspect", name).stdout, "inspect %s says what it is" % name)
    again = pack(STORY, folder, "--nodes", 1)
    check(b"is there already" in again.stdout, "packed again: %s" % again.stdout)
    refused(check, conclave("pack", "-m", STORY, "-o", folder, "--nodes", 2), 1, "another number of nodes")
    refused(check, conclave("pack", "-m", folder, "-o", at("twice")), 1, "is a pack already")
    refused(check, conclave("pack", "--verify", STORY), 1, STORY, "is no pack")
    refused(check, conclave("eval", "-m", STORY, "--tokens", "1", "--greedy", "1", "--verify"), 1, "is no pack")
    refused(check, conclave("pack", "-m", STORY), 2, "-o DIR is missing")
    refused(check, conclave("pack", "-m", STORY, "--verify", folder), 2, "--verify")
    check(not os.path.exists(at("twice")), "a refused pack leaves a folder")
    refused(check, conclave("inspect", folder + "/experts.pack"), 1, "name the folder")
    os.rename(folder + "/dense.gguf", at("dense.gguf"))
    for p in (conclave("inspect", folder), conclave("pack", "-m", STORY, "-o", folder, "--nodes", 1)):
        refused(check, p, 1, folder, "without its dense.gguf")
    os.rename(at("dense.gguf"), folder + "/dense.gguf")


def one_heat():
    """The original and its pack learn together."""
    env = dict(os.environ, XDG_CACHE_HOME=at("cache"))
    for model in (STORY, at("story")):
        p = conclave("run", "-m", model, "-p", "One Sock", "-n", 8, "--temp", 0, "--ram", "1M", "--nodes", 1, env=env)
        check(p.returncode == 0, p.stderr.decode())
        heat = os.listdir(at("cache", "conclave"))
        check(len(heat) == 1, "heat files: %s" % heat)


def damage():
    model, folder = at("model.gguf"), at("damaged")
    shutil.copy(STORY, model)
    pack(model, folder, "--nodes", 1)
    index, experts, dense = Index(folder), at("damaged", "experts.pack"), at("damaged", "dense.gguf")
    base = Eval(model, TOKENS, "--nodes", 1)
    half = ["--ram", base.stats["slab_bytes_all"] // 2]
    off, n = index.block(1, 3)
    flip(experts, off + n // 2)
    refused(check, conclave("pack", "--verify", folder), 1, folder, "1 of its parts", lines=2)
    check(b"layer 1, expert 3, node 0" in conclave("pack", "--verify", folder).stderr, "verify names the expert")

    def again(times, *more):
        r = Eval(folder, TOKENS, "--nodes", 1, *more)
        check(r.ok and r.logits == base.logits, "read from the original %s: %s" % (more, r.error()))
        check(times(read_again(r)), "read again: %s %s" % (more, read_again(r)))
        return r.p.stderr
    said = again(lambda n: n == 1)
    check(b"layer 1, expert 3" in said and b"checksum" in said and os.path.realpath(model).encode() in said,
          "damage is told: %s" % said)
    again(lambda n: n == 1, "--verify")
    for x in range(index.experts):  # some of these are used, whatever the router says
        if x != 3:
            flip(experts, index.block(1, x)[0] + x)
    again(lambda n: n == index.experts)
    again(lambda n: n > 0, *half)
    again(lambda n: n > 0, *half, "--cache-policy", "lru")
    said = again(lambda n: n > index.experts, "--ram", base.stats["slab_bytes_one"], "--batch", 1)  # some come more than once
    check(0 < said.count(b"read from") <= index.experts, "told once an expert: %s" % said)
    # another number of nodes reads without checksums: --verify stands in
    refused(check, conclave("eval", "-m", folder, "--tokens", "1", "--greedy", "1", "--nodes", 2, "--verify"), 1,
            "parts of the pack are damaged", lines=40)
    before = read(experts)  # a result is not written over a pack
    for flag in ("--logits", "--stats", "--record-routes"):
        p = conclave("eval", "-m", model, "--tokens", "1", "--greedy", "1", flag, experts)
        refused(check, p, 1, experts, "is a model file")
    check(read(experts) == before, "a result was written over %s" % experts)
    shm = SharedMemory()
    os.rename(model, model + ".away")
    for more in ([], half):
        p = Eval(folder, TOKENS, "--nodes", 1, *more, want_stats=False).p
        refused(check, p, 1, "experts.pack", "layer 1, expert", "checksum", lines=4, what="no original %s" % more)
    refused(check, Eval(folder, TOKENS, "--nodes", 1, "--verify", want_stats=False).p, 1, "pack the model again", lines=40)
    os.rename(model + ".away", model)
    os.utime(model)  # another time of change: not to be trusted
    refused(check, Eval(folder, TOKENS, "--nodes", 1, want_stats=False).p, 1, "layer 1, expert", "checksum", lines=4, what="changed")
    check(not shm.left(), "left in /dev/shm: %s" % shm.left())

    pack(model, at("trunk"), "--nodes", 1)  # a tensor of the trunk
    dense = at("trunk", "dense.gguf")
    flip(dense, os.path.getsize(dense) - 6000)
    r = Eval(at("trunk"), TOKENS, "--nodes", 1)
    base = Eval(model, TOKENS, "--nodes", 1)
    check(r.ok and r.logits == base.logits and read_again(r) == 1, "damaged trunk: %s" % r.error())
    os.unlink(model)
    refused(check, Eval(at("trunk"), TOKENS, "--nodes", 1, want_stats=False).p, 1, "dense.gguf", "checksum", lines=2)
    flip(at("trunk", "experts.pack"), 5000)
    refused(check, Eval(at("trunk"), TOKENS, want_stats=False).p, 1, "the index is damaged")
    with open(experts, "r+b") as f:
        f.truncate(os.path.getsize(experts) - 4096)
    refused(check, Eval(folder, TOKENS, want_stats=False).p, 1, "experts.pack", "the file ends here")


def finals(folder):
    return [n for n in NAMES if os.path.exists(os.path.join(folder, n))]


def with_shim(writes, us):
    if not os.path.exists(at("shim.so")):
        with open(at("shim.c"), "w") as f:
            f.write(SHIM)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", at("shim.so"), at("shim.c"), "-ldl"], check=True)
    return dict(os.environ, LD_PRELOAD=at("shim.so"), SHIM_WRITES=str(writes), SHIM_US=str(us),
                ASAN_OPTIONS="verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", ""))


def saved(folder):
    """Blocks whose checksums an unfinished pack has; -1: there is no such file yet."""
    try:
        index = Index(folder, ".part")
    except (OSError, struct.error):
        return -1
    return sum(index.checksum(n) != 0 for n in range(index.layers * index.experts * index.nodes))


def interrupted(model, whole):
    """Killed at several moments, stopped by Ctrl-C, then gone on with: the same files."""
    folder, had = at("resumed"), -1
    slow = with_shim(1 << 30, 20000)
    for signo in (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGINT):
        p = start("pack", "-m", model, "-o", folder, "--nodes", 2, env=slow)
        check(wait_for(lambda: saved(folder) > had, 120), "nothing more than %d blocks is saved" % had)
        p.send_signal(signo)
        _, said = p.communicate()
        had = saved(folder)
        if signo == signal.SIGINT:
            check(p.returncode == 130 and b"goes on from here" in said, "Ctrl-C: %d %s" % (p.returncode, said))
        else:
            check(p.returncode == -signo, "it ended before it was killed: %s" % said)
        check(finals(folder) == [], "interrupted with %d blocks: %s" % (had, finals(folder)))
        refused(check, conclave("inspect", folder), 1, folder, "unfinished pack")
    refused(check, conclave("pack", "-m", model, "-o", folder, "--nodes", 1), 1, "another number of nodes")
    flip(os.path.join(folder, "experts.pack.part"), Index(folder, ".part").block(0, 0)[0])  # it is not believed
    done = pack(model, folder, "--nodes", 2)
    check(b"were there from an interrupted run" in done.stdout, "gone on: %s" % done.stdout)
    for n in NAMES:
        check(read(os.path.join(folder, n)) == read(os.path.join(whole, n)), "%s differs" % n)
    os.rename(os.path.join(folder, "experts.pack"), os.path.join(folder, "experts.pack.part"))
    p = pack(model, folder, "--nodes", 2)  # killed between the two names
    check(sorted(os.listdir(folder)) == sorted(NAMES), "%s" % os.listdir(folder))
    shutil.rmtree(folder)


def full_disk(model, whole):
    folder = at("full")
    size = sum(os.path.getsize(os.path.join(whole, n)) for n in NAMES)

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 4, size // 4))
    p = subprocess.run([program(), "pack", "-m", model, "-o", folder, "--nodes", "2"], capture_output=True,
                       preexec_fn=small_files)
    refused(check, p, 1, "no room", what="not enough room at the start")
    check(not os.path.exists(folder), "a pack that has no room leaves %s" % folder)
    p = conclave("pack", "-m", model, "-o", folder, "--nodes", 2, env=with_shim(60, 0))
    refused(check, p, 1, folder, "No space left", what="full in the middle")
    check(finals(folder) == [], "a full disk leaves %s" % finals(folder))
    done = pack(model, folder, "--nodes", 2)
    check(b"were there from an interrupted run" in done.stdout, "gone on after a full disk: %s" % done.stdout)
    for n in NAMES:
        check(read(os.path.join(folder, n)) == read(os.path.join(whole, n)), "%s differs" % n)
    shutil.rmtree(folder)


def small_memory(model, whole):
    with Limit(100 * MB) as g:
        if not g.dir:
            check.skipped += 1  # a machine without a writable memory cgroup cannot give it, in CI neither
            print("skipped: no memory limit can be set here (%s)" % g.why)
            return
        p = g.run([program(), "pack", "-m", model, "-o", at("limited"), "--nodes", "2"])
        check(p.returncode == 0, "pack in 100 MB: %s" % p.stderr)
        for n in NAMES:
            check(read(at("limited", n)) == read(os.path.join(whole, n)), "%s differs" % n)
        p = g.run([program(), "pack", "--verify", at("limited")])
        check(p.returncode == 0, "verify in 100 MB: %s" % p.stderr)
        check(g.kills() == 0, "the kernel killed %d" % g.kills())


try:
    same_bytes()
    one_place()
    one_heat()
    damage()
    big, packed = at("big.gguf"), at("packed")
    made = conclave("synth", "-o", big, *SHAPE)
    if check(made.returncode == 0, made.stderr.decode()):
        pack(big, packed, "--nodes", 2)
        interrupted(big, packed)
        full_disk(big, packed)
        small_memory(big, packed)
finally:
    shutil.rmtree(tmp)
check.end()
