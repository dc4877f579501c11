#!/usr/bin/env python3
"""The page in a browser: an answer streams and can be stopped, the picture shows what computes, nothing is complained
about, on a phone and on a desk, with keys alone. Pictures of it lie in BUILD/page afterwards."""
import json
import os
import re
import sys
import time

sys.path.insert(0, "tests/lib")
from browser import Browser, find_browser  # noqa: E402
from conclave import Checks, build_folder  # noqa: E402
from server import Server  # noqa: E402

check = Checks()
CHAT = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
PROMPT = "Once upon a time there was a little fox"
SEED = 4  # of a long answer
SHOTS = os.path.join(build_folder(), "page")
TEXT = "(e => e ? e.textContent : '')(document.querySelector('article:last-of-type .text'))"
BUSY = "!!document.querySelector('article.busy')"
OVER = "(e => e && e.textContent)(document.querySelector('article:last-of-type .foot'))"
PIXELS = "document.getElementById('rings').toDataURL()"
# how many points of the picture have each tier's colour; drawn smaller, and read from there
LIT = ("(() => {const n = 200, c = Object.assign(document.createElement('canvas'), {width: n, height: n}),"
       "g = c.getContext('2d', {willReadFrequently: true}); g.drawImage(document.getElementById('rings'), 0, 0, n, n);"
       "const d = g.getImageData(0, 0, n, n).data, style = getComputedStyle(document.documentElement);"
       "return ['card', 'ram', 'disk'].map(tier => {const s = style.getPropertyValue('--' + tier).trim(),"
       "w = [1, 3, 5].map(i => parseInt(s.slice(i, i + 2), 16)); let k = 0;"
       "for (let i = 0; i < d.length; i += 4) k += d[i + 3] > 150 && w.every((v, j) => Math.abs(d[i + j] - v) < 24); return k})})()")
CONTRAST = ("((a, b) => {const l = c => [1, 3, 5].map(i => parseInt(getComputedStyle(document.documentElement)."
            "getPropertyValue(c).trim().slice(i, i + 2), 16) / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)."
            "reduce((s, v, k) => s + v * [0.2126, 0.7152, 0.0722][k], 0), [x, y] = [l(a), l(b)].sort((p, q) => q - p);"
            "return (x + 0.05) / (y + 0.05)})")


def quiet(page, what, but=()):
    rest = [p for p in page.problems if not any(b in p for b in but)]
    check(not rest, "%s: the console says %s" % (what, rest))


def say(page, text, enter=True, **fields):
    for name, value in fields.items():
        page.run("document.getElementById(%s).value = %s" % (json.dumps(name), json.dumps(str(value))))
    page.run("document.getElementById('message').focus()")
    page.type(text)
    if enter:
        page.key("Enter", text="\r")


def fits(page, what):
    wide = page.run("[document.documentElement.scrollWidth, innerWidth, document.documentElement.scrollHeight, innerHeight]")
    check(wide[0] <= wide[1] and wide[2] <= wide[3], "%s: %d by %d do not fit into %d by %d" % (what, wide[0], wide[2], wide[1], wide[3]))
    side = page.run("(a => a.hidden || a.scrollWidth <= a.clientWidth)(document.getElementById('picture'))")
    check(side, "%s: the picture's side is too wide" % what)
    low = page.run("(r => r.bottom <= innerHeight && r.top >= 0 && r.right <= innerWidth)(document.getElementById('send').getBoundingClientRect())")
    check(low, "%s: Send is not in sight" % what)


def named(page, what):
    """Whoever does not see the page hears a name for each thing that can be used."""
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    for n in nodes:
        role, name = n.get("role", {}).get("value"), n.get("name", {}).get("value", "")
        if role in ("button", "textbox", "combobox", "spinbutton", "img", "image", "log", "form", "complementary") and not n.get("ignored"):
            check(name.strip(), "%s: a %s without a name" % (what, role))
    roles = [n.get("role", {}).get("value") for n in nodes]
    check(all(r in roles for r in ("main", "banner", "log", "form", "complementary", "status")), "%s: landmarks: %s" % (what, set(roles)))


def colours(page, what):
    for a, b in (("--text", "--back"), ("--text", "--panel"), ("--quiet", "--back"), ("--quiet", "--panel"), ("--bad", "--back"),
                 ("--on-accent", "--accent"), ("--text", "--user"), ("--text", "--code")):
        c = page.run("%s(%s, %s)" % (CONTRAST, json.dumps(a), json.dumps(b)))
        check(c >= 4.5, "%s: contrast of %s on %s is %.2f" % (what, a, b, c))


def on_a_desk(browser, server):
    page = browser.page(1280, 800)
    page.go("http://127.0.0.1:%d/" % server.port)
    check(page.wait("document.getElementById('model').textContent") == "story-moe-q4_k_m", "the model's name")
    page.wait("!document.querySelector('#processes tbody tr')")
    check(page.wait("document.querySelectorAll('#processes tbody tr').length >= 4"), "memory of the processes")
    still = page.run(PIXELS)
    page.shot(os.path.join(SHOTS, "desk.png"))

    say(page, PROMPT, seed=SEED, **{"max-tokens": 400})
    seen, lit, pictures = set(), [0, 0, 0], set()
    check(page.wait(TEXT + ".length"), "an answer begins")
    for _ in range(100):
        busy, text, picture, points = page.run("[%s, %s.length, %s, %s]" % (BUSY, TEXT, PIXELS, LIT))
        if not busy:
            break
        seen.add(text)
        pictures.add(picture)
        lit = list(map(max, lit, points))
        if len(seen) == 3:
            page.shot(os.path.join(SHOTS, "desk-answering.png"))
        time.sleep(0.05)
    check(len(seen) > 3, "the answer streams: lengths %s" % sorted(seen))
    check(len(pictures - {still}) > 3, "the picture moves: %d" % len(pictures))
    check(all(lit), "points by where they were computed: %s" % lit)
    foot = page.wait(OVER)
    check(foot and "tokens/s" in foot, "what it took: %s" % foot)
    wanted = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 400, "seed": SEED})[1]
    text = page.run(TEXT)
    check(text.split() == re.sub(r"\n\n+", "", wanted["choices"][0]["message"]["content"]).split() and text,
          "the same answer: %r, %r" % (text, wanted))
    for tier in ("card", "ram", "disk"):
        check(page.wait("parseFloat(document.getElementById('%s-share').textContent) > 0" % tier), "%s: its share" % tier)
    check(page.wait("parseFloat(document.getElementById('rate-number').textContent) > 0"), "tokens a second")
    check(page.run("document.activeElement.id") == "message", "the message has the focus again")
    page.shot(os.path.join(SHOTS, "desk-answered.png"))

    # a second turn goes on with the first, and is stopped
    say(page, "And then?", **{"max-tokens": 900, "seed": 5})
    check(page.wait(TEXT + ".length > 20"), "a second answer begins")
    page.click("#stop")
    start = time.monotonic()
    foot = page.wait(OVER)
    check(foot and "stopped" in foot, "stopped: %s" % foot)
    length = page.run(TEXT + ".length")
    check(server.free(2) or server.metrics()["requests_processing"] == 0, "a slot is free after %.2f s" % (time.monotonic() - start))
    time.sleep(0.3)
    check(page.run(TEXT + ".length") == length and page.run("document.querySelectorAll('article').length") == 4, "nothing comes after it")
    page.click("#fresh")
    check(page.run("document.querySelectorAll('article').length == 0 && !document.getElementById('welcome').hidden"), "a new chat")

    fits(page, "a desk")
    named(page, "a desk")
    colours(page, "light")
    page.run("document.getElementById('theme').click()")
    check(page.run("document.documentElement.dataset.theme") == "dark", "dark when asked for")
    colours(page, "dark")
    page.click("#picture-toggle")
    check(page.run("document.getElementById('picture').hidden && document.getElementById('picture-toggle').getAttribute('aria-expanded')")
          == "false", "the picture can be put away")
    quiet(page, "a desk")
    page.run("localStorage.clear()")
    page.close()


def on_a_phone(browser, server):
    page = browser.page(390, 844, phone=True, dark=True)
    page.go("http://127.0.0.1:%d/" % server.port)
    check(page.wait("document.getElementById('model').textContent") and page.run("document.documentElement.dataset.theme") == "dark",
          "dark as the system")
    page.run("window.still = " + PIXELS)
    say(page, PROMPT, enter=False, seed=SEED, **{"max-tokens": 900})
    page.click("#send")
    check(page.wait(TEXT + ".length > 20 && " + BUSY), "an answer begins on a phone")
    check(page.wait("window.still != " + PIXELS, 5), "the picture moves on a phone")
    fits(page, "a phone")
    page.shot(os.path.join(SHOTS, "phone-answering.png"))
    page.key("Escape")
    check("stopped" in (page.wait(OVER) or ""), "Escape stops it")
    page.call("Emulation.setDeviceMetricsOverride", width=320, height=568, deviceScaleFactor=2, mobile=True)
    page.wait("innerWidth == 320")
    fits(page, "a small phone")
    named(page, "a phone")
    page.shot(os.path.join(SHOTS, "phone.png"))
    quiet(page, "a phone")
    page.close()


def with_keys_alone(browser, server):
    """Tab from the top reaches all, in the order of the page."""
    page = browser.page(1280, 800, still=True)
    page.go("http://127.0.0.1:%d/" % server.port)
    page.wait("document.getElementById('model').textContent")
    page.run("document.querySelector('.skip').focus()")
    check(page.run("document.querySelector('.skip').getBoundingClientRect().left >= 0"), "the way past the top is in sight")
    way = []
    for _ in range(12):
        page.key("Tab")
        way.append(page.run("document.activeElement.id || document.activeElement.className || document.activeElement.tagName"))
    wanted = ["picture-toggle", "theme", "fresh", "log", "message", "send"]
    check([w for w in way[:9] if w in wanted] == wanted, "Tab goes %s" % way)
    page.run("document.getElementById('message').focus()")
    check(page.run("(s => s.outlineStyle != 'none' && parseFloat(s.outlineWidth) >= 2)(getComputedStyle(document.activeElement))"),
          "one sees where the focus is")
    quiet(page, "keys")
    page.close()


def with_a_key(browser):
    with Server("--api-key", "sesame", "-c", 512, template=CHAT) as s:
        page = browser.page(1000, 700)
        page.go("http://127.0.0.1:%d/" % s.port)
        page.wait("document.readyState == 'complete'")
        say(page, PROMPT, **{"max-tokens": 8, "seed": 1})
        check("API key" in (page.wait("(e => e && e.textContent)(document.querySelector('article.error'))") or ""), "a key is asked for")
        check(page.wait("document.activeElement.id == 'key'"), "where it goes")
        page.type("sesame")
        page.run("document.getElementById('key').dispatchEvent(new Event('change'))")
        say(page, PROMPT)
        check(page.wait("document.querySelectorAll('article.assistant:not(.error) .foot').length == 1 && " + TEXT + ".length"), "with it, an answer")
        check(page.wait("document.querySelectorAll('#processes tbody tr').length >= 3"), "and the picture")
        quiet(page, "a key", but=("401",))
        # a page that watches does not hold up the end
        start = time.monotonic()
        check(s.end() == 0 and time.monotonic() - start < 10, "the end with a page open: %.1f s" % (time.monotonic() - start))
        page.close()


def main():
    program = find_browser()
    if not program:
        check.skip("no Chromium here (Debian: chromium-headless-shell)")
        check.end()
    os.makedirs(SHOTS, exist_ok=True)
    with Browser(program) as browser:
        with Server("-c", 1024, "--parallel", 2, "--cards", "emu:1:1M", "--trunk", "cpu", "--ram", "3M", template=CHAT) as s:
            code, _, headers = s.ask("GET", "/")
            policy = headers.get("Content-Security-Policy", "")
            check(code == 200 and "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy, "policy: %s" % policy)
            on_a_desk(browser, s)
            on_a_phone(browser, s)
            with_keys_alone(browser, s)
        check("error" not in s.log.replace("log-level", ""), "the server's log: %s" % s.log)
        with_a_key(browser)
    check.end()


main()
