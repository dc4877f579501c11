"""A memory limit of one's own: a control group, v1 or v2, made below the one this process lives in."""
import os
import subprocess
import threading
import time


def _mounts():
    """(type, mount point, its root in the hierarchy, options) of the cgroup file systems."""
    with open("/proc/self/mountinfo") as f:
        for line in f:
            left, _, right = line.partition(" - ")
            kind, _, options = (right.split() + ["", "", ""])[:3]
            if kind in ("cgroup", "cgroup2"):
                yield kind, left.split()[4], left.split()[3], options.split(",")


def _own(kind):
    """This process's path in the hierarchy; None: there is none."""
    with open("/proc/self/cgroup") as f:
        for line in f:
            _, names, path = line.rstrip("\n").split(":", 2)
            if (names == "") if kind == "cgroup2" else ("memory" in names.split(",")):
                return path
    return None


def _parents():
    """(version, folder) in which a group with a memory limit might be made, the nearest first."""
    for kind, mount, root, options in _mounts():
        path = _own(kind)
        if path is None or (kind == "cgroup" and "memory" not in options):
            continue
        if root != "/" and path.startswith(root):
            path = path[len(root):] or "/"
        while True:
            folder = mount + path.rstrip("/")
            if kind == "cgroup":
                yield 1, folder
            else:
                try:
                    with open(folder + "/cgroup.subtree_control") as f:
                        if "memory" in f.read().split():
                            yield 2, folder
                except OSError:
                    pass
            if path in ("/", ""):
                break
            path = os.path.dirname(path)


class Limit:
    """with Limit(bytes) as g: g.run([...]). g.why: why there is none (then g.dir is None)."""

    def __init__(self, limit):
        self.limit, self.dir, self.why = limit, None, "no memory cgroup is mounted"
        self.majors = {}  # pid -> (name, major faults), as last seen

    def _write(self, name, text):
        with open(os.path.join(self.dir, name), "w") as f:
            f.write(str(text))

    def _read(self, name):
        with open(os.path.join(self.dir, name)) as f:
            return f.read()

    def __enter__(self):
        for self.version, parent in _parents():
            self.dir = os.path.join(parent, "conclave-test-%d" % os.getpid())
            try:
                os.mkdir(self.dir)
                self._write("memory.max" if self.version == 2 else "memory.limit_in_bytes", self.limit)
                if self.version == 2 and os.path.exists(self.dir + "/memory.swap.max"):
                    self._write("memory.swap.max", 0)
                p = subprocess.run(["true"], preexec_fn=self._enter)
                if p.returncode == 0:
                    return self
                self.why = "a process cannot be put into %s" % self.dir
            except (OSError, subprocess.SubprocessError) as e:
                self.why = "%s: %s" % (self.dir, e)
            self._remove()
        return self

    def _remove(self):
        for _ in range(100):
            try:
                os.rmdir(self.dir)
                break
            except FileNotFoundError:
                break
            except OSError:  # its last process is still going
                time.sleep(0.05)
        self.dir = None

    def __exit__(self, *_):
        if self.dir:
            self._remove()

    def _enter(self):
        self._write("cgroup.procs", os.getpid())

    def _watch(self, end):
        while not end.wait(0.02):
            for pid in self._read("cgroup.procs").split():
                try:
                    with open("/proc/%s/stat" % pid) as f:
                        name, _, rest = f.read().partition(" (")[2].rpartition(") ")
                    self.majors[int(pid)] = name, int(rest.split()[9])
                except (OSError, IndexError):
                    pass  # it has just gone

    def start(self, command):
        """Starts a command inside; its output is in pipes."""
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                preexec_fn=self._enter)

    def run(self, command, **more):
        """Runs a command inside; the finished process, output as bytes."""
        end = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(end,))
        watcher.start()
        try:
            return subprocess.run(command, stdin=subprocess.DEVNULL, preexec_fn=self._enter,
                                  **({"capture_output": True} | more))
        finally:
            end.set()
            watcher.join()

    def peak(self):
        """The most bytes that were in use, pages of files included; None: this kernel does not say."""
        name = "memory.peak" if self.version == 2 else "memory.max_usage_in_bytes"
        return int(self._read(name)) if os.path.exists(os.path.join(self.dir, name)) else None

    def _number(self, name, key):
        for line in self._read(name).splitlines():
            if line.split()[0] == key:
                return int(line.split()[1])
        return 0

    def kills(self):
        """Processes that the kernel killed for want of memory."""
        return self._number("memory.events" if self.version == 2 else "memory.oom_control", "oom_kill")

    def refused(self):
        """How often the limit was met: pages had to be taken from somebody."""
        return self._number("memory.events", "max") if self.version == 2 else int(self._read("memory.failcnt"))
