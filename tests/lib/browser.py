"""A headless Chromium, driven through DevTools over a pair of pipes (no package is needed for that).

    with Browser(find_browser()) as b:
        page = b.page(390, 844, phone=True)
        page.go("http://127.0.0.1:8080/")
        page.wait("document.title == 'Conclave'")
        page.problems   # what the console and the network complained about
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_browser():
    """A program, or None."""
    return next((p for p in map(shutil.which, NAMES) if p), None)


class Browser:
    def __init__(self, program):
        self.dir = tempfile.TemporaryDirectory(prefix="conclave-browser-")
        to_child, self.to = os.pipe()
        self.back, from_child = os.pipe()

        def pipes():  # DevTools reads 3 and writes 4
            a, b = os.dup(to_child), os.dup(from_child)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.log = open(os.path.join(self.dir.name, "log"), "w+")
        self.process = subprocess.Popen(
            [program, "--headless", "--remote-debugging-pipe", "--no-first-run", "--hide-scrollbars", "--disable-gpu",
             "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--force-color-profile=srgb",
             "--user-data-dir=" + os.path.join(self.dir.name, "data")] + (["--no-sandbox"] if os.getuid() == 0 else []),
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=pipes, close_fds=False)
        os.close(to_child)
        os.close(from_child)
        self.rest, self.number, self.answers, self.pages = b"", 0, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close", seconds=5)
        except (OSError, TimeoutError):
            pass
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.log.close()
        self.dir.cleanup()

    def read(self, seconds):
        """Takes what has come, for `seconds` at most."""
        if not select.select([self.back], [], [], max(0, seconds))[0]:
            return
        more = os.read(self.back, 1 << 20)
        if not more:
            self.log.seek(0)
            raise OSError("the browser has ended: " + self.log.read()[-2000:])
        *messages, self.rest = (self.rest + more).split(b"\0")
        for text in messages:
            m = json.loads(text)
            if "id" in m:
                self.answers[m["id"]] = m
            elif m.get("sessionId") in self.pages:
                self.pages[m["sessionId"]].event(m["method"], m.get("params", {}))

    def call(self, method, session=None, seconds=20, **params):
        self.number += 1
        n, end = self.number, time.monotonic() + seconds
        m = {"id": n, "method": method, "params": params}
        if session:
            m["sessionId"] = session
        os.write(self.to, json.dumps(m).encode() + b"\0")
        while n not in self.answers:
            if time.monotonic() > end:
                raise TimeoutError(method)
            self.read(end - time.monotonic())
        answer = self.answers.pop(n)
        if "error" in answer:
            raise RuntimeError("%s: %s" % (method, answer["error"].get("message")))
        return answer["result"]

    def page(self, width, height, phone=False, dark=False, still=False):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(domain + ".enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        page.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"}])
        return page


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target, self.problems = browser, session, target, []

    def event(self, method, p):
        if method == "Runtime.exceptionThrown":
            d = p["exceptionDetails"]
            self.problems.append("exception: " + d.get("exception", {}).get("description", d.get("text", "")))
        elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            self.problems.append("console: " + " ".join(str(a.get("value", a.get("description"))) for a in p["args"]))
        elif method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            self.problems.append("log: %s %s" % (p["entry"]["text"], p["entry"].get("url", "")))

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def go(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState == 'complete' && location.href != 'about:blank'")

    def run(self, code):
        """The value of an expression (a promise is awaited)."""
        r = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in r:
            raise RuntimeError("%s: %s" % (code, r["exceptionDetails"].get("exception", {}).get("description")))
        return r["result"].get("value")

    def wait(self, code, seconds=20):
        """Until the expression is true; its value, or None after so long."""
        end = time.monotonic() + seconds
        while True:
            try:
                value = self.run(code)
            except RuntimeError:  # between two documents
                value = None
            if value or time.monotonic() > end:
                return value or None
            self.browser.read(0.02)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, code=None, text=None, modifiers=0):
        keys = {"Enter": 13, "Escape": 27, "Tab": 9, " ": 32}
        common = dict(key=name, code=code or name, windowsVirtualKeyCode=keys[name], modifiers=modifiers)
        more = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **common, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def click(self, selector):
        x, y = self.run("(r => [r.left + r.width / 2, r.top + r.height / 2])(document.querySelector(%s).getBoundingClientRect())" %
                        json.dumps(selector))
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def shot(self, path):
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        with open(path, "wb") as f:
            f.write(data)
        return data

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
