"""Helpers of the command-line tests: one clear line, live processes, what they leave behind."""
import os
import signal
import struct
import subprocess
import time

from conclave import DEMO, build_folder

STORY = DEMO + "/story-moe-q4_k_m.gguf"
SHORT = "One Sock\nVelvet was a busy hedgehog who lived in a snug den behind"


def program(folder=None):
    return os.path.join(folder or os.path.join(build_folder(), "bin"), "conclave")


def own_lines(p):
    return [x for x in p.stderr.decode(errors="replace").splitlines() if x.startswith("conclave: ")]


def refused(check, p, status, *words, lines=1, what=""):
    """Exit status, and as the last line one that holds all words; `lines` lines at most."""
    text = p.stderr.decode(errors="replace")
    last = text.splitlines()[-1] if text.strip() else ""
    ok = p.returncode == status and last.startswith("conclave: ") and text.endswith("\n")
    ok = ok and len(text.splitlines()) <= lines and all(str(w) in last for w in words)
    return check(ok, "%s: status %d (wanted %d), said %r (wanted %s in its last line of %d)" %
                 (what or " ".join(map(str, p.args[1:])), p.returncode, status, text, words, lines))


def with_metadata(data, edit, more_keys=0):
    """A GGUF file with other metadata: edit gets the bytes of all keys and returns new ones. The tensors'
    data moves to the next aligned byte."""
    n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
    first = min(data.find(struct.pack("<Q", len(x)) + x) % len(data) for x in
                (b"token_embd.weight", b"output.weight", b"output_norm.weight", b"blk.0.attn_norm.weight"))
    at = first
    for _ in range(n_tensors):  # name, number of dimensions, these, type, offset
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 12
    front = data[:16] + struct.pack("<Q", n_keys + more_keys) + edit(data[24:first]) + data[first:at]
    return front + b"\0" * (-len(front) % 32) + data[at + -at % 32:]


def string(text):
    """As GGUF writes it."""
    return struct.pack("<Q", len(text)) + text


def default_signals():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a test run in the background of a shell ignores it


def start(*args, folder=None, **more):
    """The program, running; its output is in pipes unless told otherwise."""
    more.setdefault("stdin", subprocess.DEVNULL)
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen([program(folder)] + [str(a) for a in args], preexec_fn=default_signals, **more)


def long_answer(*more, **popen):
    """A run that goes on for minutes unless it is stopped."""
    return start("run", "-m", STORY, "-p", SHORT, "-n", -1, "-c", 200000, "--ignore-eos", "--temp", 0, *more,
                 **popen)


def status_of(pid):
    """(parent, name, state), or None if there is no such process (any more)."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            text = f.read()
    except OSError:
        return None
    name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
    return int(rest[1]), name, rest[0]


def children(pid):
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            s = status_of(int(entry))
            if s and s[0] == pid:
                found[int(entry)] = s[1]
    return found


def wait_for(what, seconds=20):
    """True as soon as what() is."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def workers_up(p):
    """The worker processes of a running coordinator, {pid: name}, as soon as all are there."""
    wait_for(lambda: len(children(p.pid)) >= 2 or p.poll() is not None)
    return children(p.pid)


def gone(pids):
    """None of these is running; a zombie that nobody reaps in this container is not running."""
    def dead(pid):
        s = status_of(pid)
        return s is None or s[2] == "Z"
    return wait_for(lambda: all(dead(pid) for pid in pids), 10)


class SharedMemory:
    """What is in /dev/shm, so that leftovers can be told from what was there."""

    def __init__(self):
        self.before = set(os.listdir("/dev/shm"))

    def left(self):
        """New names that stay; other programs may have some for a moment."""
        wait_for(lambda: not set(os.listdir("/dev/shm")) - self.before, 3)
        return set(os.listdir("/dev/shm")) - self.before
