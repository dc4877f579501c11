#!/usr/bin/env python3
"""Ctrl-C, kill -9, a worker that dies: the exit status, and nothing left: no process, no name in
/dev/shm."""
import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, "tests/lib")
from cli import (SHORT, STORY, SharedMemory, children, default_signals, gone, long_answer, program,  # noqa: E402
                 start, wait_for, workers_up)
from conclave import Checks, conclave  # noqa: E402

check = Checks()
shm = SharedMemory()
SECONDS = 60  # within which everything here ends; it takes milliseconds on an idle machine


def nothing_left(what, workers):
    check(len(workers) >= 2, "%s: only %s ran" % (what, workers))
    check(gone(workers), "%s: still running: %s" % (what, [x for x in workers if not gone([x])]))
    left = shm.left()
    check(not left, "%s: left in /dev/shm: %s" % (what, left))


def begun(p):
    """The answer is being written."""
    first = os.read(p.stdout.fileno(), len(SHORT) + 20)
    while len(first) < len(SHORT) + 10:
        more = os.read(p.stdout.fileno(), 100)
        if not more:
            break
        first += more
    return first


def finish(p):
    try:
        out, err = p.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        p.kill()
        out, err = p.communicate()
        check(False, "%s does not end" % p.args)
    return out, err.decode(errors="replace")


# a normal end
p = start("run", "-m", STORY, "-p", SHORT, "-n", 300, "--ignore-eos")
workers = workers_up(p)
finish(p)
check(p.returncode == 0, "normal end: status %d" % p.returncode)
check(sorted(workers.values()) == ["conclave-cpu", "conclave-pager"], "workers: %s" % workers)
nothing_left("normal end", workers)

# asked once: the answer ends, with its closing line
for sig, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
    p = long_answer()
    begun(p)
    workers = children(p.pid)
    p.send_signal(sig)
    _, err = finish(p)
    check(p.returncode == status, "%s: status %d, %s" % (sig, p.returncode, err))
    check(re.search(r"answer \d+ tokens", err.splitlines()[-1]), "%s: no closing line: %s" % (sig, err))
    nothing_left(str(sig), workers)

# asked twice while it cannot write: leaves at once
p = long_answer()
fcntl.fcntl(p.stdout.fileno(), fcntl.F_SETPIPE_SZ, 4096)
begun(p)
workers = children(p.pid)


def idle():
    """No processor time is used for a while: the pipe is full."""
    def ticks():
        with open("/proc/%d/stat" % p.pid) as f:
            return f.read().rsplit(")", 1)[1].split()[11:13]
    before = ticks()
    time.sleep(0.3)
    return before == ticks()


wait_for(idle, SECONDS)
p.send_signal(signal.SIGINT)
time.sleep(0.3)
check(p.poll() is None, "the first Ctrl-C waits for the write")
p.send_signal(signal.SIGINT)
check(wait_for(lambda: p.poll() is not None, 5), "the second Ctrl-C does not end it")
check(p.returncode == 130, "Ctrl-C twice: status %s" % p.returncode)
finish(p)
nothing_left("Ctrl-C twice", workers)

# before there is an answer once is enough
p = start("run", "-m", STORY, stdin=subprocess.PIPE)
time.sleep(0.3)  # it waits for the prompt
p.send_signal(signal.SIGINT)
_, err = finish(p)
check(p.returncode == 130 and not err, "Ctrl-C before the prompt: %d %s" % (p.returncode, err))

# on a terminal Ctrl-C goes to all processes at once; the workers leave it to the coordinator
pid, master = pty.fork()
if pid == 0:
    default_signals()
    os.execv(program(), [program(), "run", "-m", STORY, "-p", SHORT, "-n", "-1", "-c", "200000", "--ignore-eos"])
seen = b""
while b"snug den behind" not in seen:
    seen += os.read(master, 1000)
seen += os.read(master, 1000)
workers = children(pid)
os.write(master, b"\x03")
try:
    while True:
        more = os.read(master, 1000)
        if not more:
            break
        seen += more
except OSError:  # the terminal's end after its last user has gone
    pass
status = os.waitpid(pid, 0)[1]
check(os.WIFEXITED(status) and os.WEXITSTATUS(status) == 130, "Ctrl-C on a terminal: status %x" % status)
text = seen.decode(errors="replace")
check(re.search(r"answer \d+ tokens.*seed \d+", text), "no closing line on a terminal: %r" % text[-400:])
check("\x1b[2m" in text and "\x1b[0m" in text, "the closing line is dim on a terminal")
os.close(master)
nothing_left("Ctrl-C on a terminal", workers)

# the coordinator is killed
p = long_answer("--nodes", 3)
begun(p)
workers = children(p.pid)
check(len(workers) == 4, "three nodes: %s" % workers)
p.kill()
finish(p)
check(p.returncode == -9, "kill -9: %d" % p.returncode)
nothing_left("kill -9 of the coordinator", workers)

# a worker is stopped for good: one SIGTERM is enough all the same
p = long_answer()
begun(p)
workers = children(p.pid)
os.kill([x for x in workers if workers[x] == "conclave-cpu"][0], signal.SIGSTOP)
p.send_signal(signal.SIGTERM)
finish(p)
check(p.returncode == 143, "SIGTERM with a stopped worker: status %d" % p.returncode)
nothing_left("SIGTERM with a stopped worker", workers)

# a worker dies: one line, status 1
for name in ("conclave-cpu", "conclave-pager"):
    p = long_answer()
    begun(p)
    workers = children(p.pid)
    victim = [x for x in workers if workers[x] == name][0]
    os.kill(victim, signal.SIGKILL)
    _, err = finish(p)
    lines = err.splitlines()
    check(p.returncode == 1 and "killed by signal 9" in lines[-1] and len(lines) == 3,
          "%s is killed: status %d, %s" % (name, p.returncode, err))
    nothing_left("%s killed" % name, workers)

# errors leave nothing either
p = conclave("run", "-m", STORY, "-p", SHORT, "--ram", "1K")
check(p.returncode == 1 and not shm.left(), "an error leaves something in /dev/shm")
check.end()
