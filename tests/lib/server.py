"""A running `conclave serve` and clients of it: plain sockets and JSON, no library that would hide what is sent."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

from conclave import build_folder

STORY = "tests/demo/story-moe-q4_k_m.gguf"
PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"


class Server:
    """with Server(...) as s: started, ready, ended by SIGTERM; its standard error is in s.log afterwards."""

    def __init__(self, *args, model=STORY, template=PLAIN, ready=True, env=None, timeout=120, group=False):
        self.dir = tempfile.TemporaryDirectory()
        self.log_path = os.path.join(self.dir.name, "log")
        command = [os.path.join(build_folder(), "bin", "conclave"), "serve", "-m", model, "--port", "0"]
        if template is not None:
            path = os.path.join(self.dir.name, "template.jinja")
            with open(path, "w") as f:
                f.write(template)
            command += ["--chat-template", path]
        with open(self.log_path, "wb") as f:
            self.process = subprocess.Popen(command + [str(a) for a in args], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=f, env=dict(os.environ, **(env or {})),
                                            start_new_session=group)
        try:
            self.port = int(self.wait_for(r"listening on https?://\S*:(\d+)\n", timeout))
            if ready:
                self.wait_for(r"(ready): ", timeout)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def text(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def wait_for(self, pattern, timeout=60):
        end = time.time() + timeout
        while time.time() < end:
            found = re.search(pattern, self.text())
            if found:
                return found.group(1)
            if self.process.poll() is not None:
                raise RuntimeError("the server ended: " + self.text())
            time.sleep(0.01)
        raise RuntimeError("no '%s' in: %s" % (pattern, self.text()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self, sig=signal.SIGTERM, timeout=60):
        """Exit status; the log is kept. sig None: it was told before."""
        if self.process.poll() is None:
            if sig:
                self.process.send_signal(sig)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise RuntimeError("the server does not end: " + self.text())
        if self.dir:
            self.log = self.text()
            self.dir.cleanup()
            self.dir = None
        return self.process.returncode

    # ---- clients ----

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, headers=None):
        """(status, JSON or text, headers)"""
        c = self.connect()
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        c.request(method, path, data, headers or {})
        r = c.getresponse()
        text = r.read()
        c.close()
        try:
            return r.status, json.loads(text), dict(r.getheaders())
        except ValueError:
            return r.status, text.decode(errors="replace"), dict(r.getheaders())

    def post(self, path, body, **headers):
        return self.ask("POST", path, body, headers)[:2]

    def get(self, path):
        return self.ask("GET", path)[:2]

    def stream(self, path, body):
        """The events of a stream: (event name or None, JSON or "[DONE]")."""
        c = self.connect()
        c.request("POST", path, json.dumps(dict(body, stream=True)))
        r = c.getresponse()
        text = r.read().decode()
        c.close()
        assert r.status == 200, text
        events = []
        for part in text.split("\n\n"):
            name = data = None
            for line in part.split("\n"):
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    data = line[6:]
            if data is not None:
                events.append((name, data if data == "[DONE]" else json.loads(data)))
        return events

    def raw(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def metrics(self):
        return {k: float(v) for k, v in re.findall(r"^conclave:(\w+) (\S+)$", self.get("/metrics")[1], re.M)}

    def free(self, seconds=10):
        """1: within this time no slot and no request is in work."""
        end = time.time() + seconds
        while time.time() < end:
            m = self.metrics()
            if not m["requests_processing"] and not m["requests_deferred"] and m["http_requests"] == 1:
                return True
            time.sleep(0.02)
        return False
