#!/usr/bin/env python3
"""conclave chat: messages in, answers out, what stays in the conversation, Ctrl-C."""
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, "tests/lib")
from cli import STORY, default_signals, own_lines, program, refused, start, string, with_metadata  # noqa: E402
from conclave import DEMO, Checks, conclave  # noqa: E402

check = Checks()
dir_ = tempfile.TemporaryDirectory()
tmp = dir_.name

# The demo model goes on with stories: its messages are put one after another.
PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"
MARKED = ("{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}")


def file_of(name, text):
    path = os.path.join(tmp, name)
    with open(path, "w") as f:
        f.write(text)
    return path


plain, marked = file_of("plain.jinja", PLAIN), file_of("marked.jinja", MARKED)


def chat(text, *args, template=plain, model=STORY):
    more = ["--chat-template", template] if template else []
    return subprocess.run([program(), "chat", "-m", model, "--temp", "0", *more] + [str(a) for a in args],
                          input=text.encode(), capture_output=True, timeout=300)


def run(prompt, *args, model=STORY):
    p = conclave("run", "-m", model, "-p", prompt, "--temp", 0, "--no-display-prompt", *args)
    return p.stdout.decode()


# --- answers are those of run for the rendered prompt ------------------------------------------
first = run("Velvet was a busy hedgehog", "-n", 12)
p = chat("Velvet was a busy hedgehog\n", "-n", 12)
check(p.returncode == 0 and p.stdout.decode() == first + "\n", "one message: %r, wanted %r; %s" % (p.stdout, first, p.stderr))
second = run("Velvet was a busy hedgehog" + first + " The fox", "-n", 12)
p = chat("Velvet was a busy hedgehog\n The fox\n", "-n", 12)
check(p.stdout.decode() == first + "\n" + second + "\n", "two messages: %r, wanted %r" % (p.stdout, second))
known = [int(x) for x in re.findall(r"(\d+) of them known", p.stderr.decode())]
check(len(known) == 2 and known[0] == 0 and known[1] > 0, "the second turn reads all of the first again: %s" % known)
check(chat("Velvet was a busy hedgehog\n The fox\n", "-n", 12, "--batch", 3, "-t", 1, "--nodes", 2).stdout == p.stdout,
      "batch, threads or nodes change the conversation")
# a model with states that cannot be taken back to an earlier token goes on from one that was saved
glm = DEMO + "/story-glm5next-f16.gguf"
first = run("A fox ran", "-n", 8, model=glm)
second = run("A fox ran" + first + " home", "-n", 8, model=glm)
p = chat("A fox ran\n home\n", "-n", 8, model=glm)
check(p.stdout.decode() == first + "\n" + second + "\n", "states: %r, wanted %r, %r" % (p.stdout, first, second))
known = [int(x) for x in re.findall(r"(\d+) of them known", p.stderr.decode())]
check(len(known) == 2 and known[0] == 0 and known[1] > 8, "states: the second turn knows %s tokens" % known)
for args in (("--draft", 0), ("--draft", 4), ("--draft", 2, "--cards", "emu:1")):
    more = chat("A fox ran\n home\n", "-n", 8, *args, model=glm)
    check(more.stdout == p.stdout, "%s: another conversation" % (args,))
    knew = int(re.findall(r"(\d+) of them known", more.stderr.decode())[1])
    check(abs(knew - known[1]) < 2, "%s: knew %d tokens, not %d: the last one may not have been fed" % (args, knew, known[1]))
one = run("[system]Be kind.\n[user]A fox\n[assistant]", "-n", 5)
p = chat("A fox\n", "-n", 5, "-S", "Be kind.", template=marked)
check(p.stdout.decode() == one + "\n", "system message: %r, wanted %r" % (p.stdout, one))

# --- lines -------------------------------------------------------------------------------------
three = run("a\nb\nc", "-n", 4)
check(chat("a\\\nb\\\nc\n", "-n", 4).stdout.decode() == three + "\n", "lines that end with a backslash")
check(chat('"""\na\nb\nc\n"""\n', "-n", 4).stdout.decode() == three + "\n", "lines between quotes")
check(chat("a\\\nb\\\nc", "-n", 4).stdout.decode() == three + "\n", "the end without a newline")
p = chat("\n\n", "-n", 4)
check(p.returncode == 0 and not p.stdout, "empty lines are answered: %r" % p.stdout)
p = chat("A fox\n/new\nA fox\n/undo\nA fox\n/quit\nA fox\n", "-n", 4)
check(p.stdout.decode() == 3 * (run("A fox", "-n", 4) + "\n"), "/new, /undo, /quit: %r" % p.stdout)

# --- control tokens ----------------------------------------------------------------------------
# <|endoftext|> in a message: text, unless that is allowed
text = [x for x in own_lines(chat("a<|endoftext|>b\n", "-n", 1)) if "known" in x][0]
token = [x for x in own_lines(chat("a<|endoftext|>b\n", "-n", 1, "--allow-control-tokens")) if "known" in x][0]
n_text, n_token = (int(re.search(r"prompt (\d+) tokens", x).group(1)) for x in (text, token))
check(n_text > n_token, "a user's <|endoftext|> is a token by default: %d and %d tokens" % (n_text, n_token))

# --- the context's end -------------------------------------------------------------------------
p = chat("A fox and a hen and a dog and a cow\n/new\nA fox\n", "-n", 3, "-c", 10)
check(p.returncode == 0 and any("the context has 10" in x and "/new" in x for x in own_lines(p)) and p.stdout.count(b"\n") == 1,
      "a message that does not fit: %r %s" % (p.stdout, p.stderr))
p = chat("A fox\n", "-c", 10)
check(p.returncode == 0 and any("context of 10 tokens is full" in x for x in own_lines(p)), "a full context: %s" % p.stderr)

# --- templates ---------------------------------------------------------------------------------
raises = file_of("raises.jinja", "{% if messages | length > 1 %}{{ raise_exception('one message only') }}{% endif %}" + PLAIN)
p = chat("A fox\nAnother\n/new\nA fox\n", "-n", 4, template=raises)
check(p.returncode == 0 and p.stdout.decode() == 2 * (run("A fox", "-n", 4) + "\n"), "after a refused message: %r" % p.stdout)
check(any("one message only" in x for x in own_lines(p)), "what the template says: %s" % p.stderr)
refused(check, chat("", template=None), 1, "no chat template", "--chat-template FILE", STORY)
refused(check, chat("", template=file_of("bad.jinja", "x\n{% include 'y' %}")), 1, "bad.jinja", "line 2", "include")
refused(check, chat("", template=os.path.join(tmp, "none.jinja")), 1, "none.jinja", "No such file")
refused(check, chat("", "--chat-template-kwargs", "{"), 1, "--chat-template-kwargs", "not JSON")
refused(check, chat("", "--chat-template", "-"), 2, "--chat-template -", "standard input")
refused(check, chat("", "--reasoning", "maybe"), 2, "--reasoning", "auto|on|off")
with open(STORY, "rb") as f:
    data = f.read()
own = os.path.join(tmp, "own.gguf")
key = string(b"tokenizer.chat_template") + b"\x08\0\0\0" + string(MARKED.encode())
with open(own, "wb") as f:
    f.write(with_metadata(data, lambda keys: keys + key, 1))
p = chat("A fox\n", "-n", 5, template=None, model=own)
check(p.returncode == 0 and p.stdout.decode() == run("[user]A fox\n[assistant]", "-n", 5) + "\n", "the file's own template: %s" % p.stderr)
kw = file_of("kw.jinja", PLAIN + "{{ more }}{{ enable_thinking is false }}{{ reasoning_effort }}")
p = chat("A fox\n", "-n", 4, "--chat-template-kwargs", '{"more": " and"}', "--reasoning", "off", "--reasoning-effort", "low", template=kw)
check(p.stdout.decode() == run("A fox andTruelow", "-n", 4) + "\n", "variables: %r" % p.stdout)

# --- thoughts ----------------------------------------------------------------------------------
opens = file_of("opens.jinja", PLAIN + "{% if add_generation_prompt %}<think>{% endif %}")
p = chat("A fox\n", "-n", 6, template=opens)
thought = run("A fox<think>", "-n", 6)
check(p.returncode == 0 and p.stdout.strip() == b"" and thought.strip() in p.stderr.decode(), "a thought is no answer: %r %s" % (p.stdout, p.stderr))

# --- Ctrl-C ------------------------------------------------------------------------------------
LONG = ["chat", "-m", STORY, "--temp", "0", "-c", "200000", "--chat-template", plain, "--repeat-penalty", "1.3"]


class Screen:
    """What a terminal shows; each wait goes on behind what the one before found."""

    def __init__(self, fd):
        self.fd, self.seen = fd, b""

    def wait(self, what, seconds=60):
        end = time.monotonic() + seconds
        while what not in self.seen and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    break
        found, what_, self.seen = self.seen.partition(what)
        return what_ == what


master, slave = pty.openpty()
screen = Screen(master)
p = subprocess.Popen([program()] + LONG, stdin=slave, stdout=subprocess.PIPE, stderr=slave, preexec_fn=default_signals)
os.close(slave)
check(screen.wait(b"> "), "no prompt in a terminal")
os.write(master, b"A fox\n")
check(p.stdout.read(1) != b"", "no answer begins")
p.send_signal(signal.SIGINT)
check(screen.wait(b"stopped"), "Ctrl-C does not stop the answer")
check(p.poll() is None, "Ctrl-C stopped the program")
os.write(master, b"/new\n/quit\n")
try:
    p.communicate(timeout=60)
except subprocess.TimeoutExpired:
    p.kill()
    p.communicate()
check(p.returncode == 0, "after a stopped answer: status %s" % p.returncode)
os.close(master)
# --- a terminal: earlier lines, keys, its mode afterwards --------------------------------------
master, slave = pty.openpty()
screen = Screen(master)
mode = termios.tcgetattr(slave)
p = subprocess.Popen([program(), "chat", "-m", STORY, "--temp", "0", "-n", "4", "--chat-template", plain], stdin=slave,
                     stdout=subprocess.PIPE, stderr=slave, preexec_fn=default_signals, env=dict(os.environ, TERM="xterm"))
check(screen.wait(b"> "), "no prompt")
os.write(master, b"A foxy\177\r")
screen.wait(b"answer 4 tokens")
screen.wait(b"> ")
os.write(master, b"/new\r")
screen.wait(b"> ")
os.write(master, b"\033[A\033[A\r\033[200~a\rb\033[201~\\\rc\r")  # the message before; then a pasted one that goes on
screen.wait(b"answer 4 tokens")
screen.wait(b"answer 4 tokens")
screen.wait(b"> ")
check(termios.tcgetattr(slave)[3] != mode[3], "the prompt does not edit")
os.write(master, b"x\003\003")  # the first one empties the line, the second one leaves
try:
    out, _ = p.communicate(timeout=60)
except subprocess.TimeoutExpired:
    p.kill()
    out, _ = p.communicate()
fox = run("A fox", "-n", 4)
check(out.decode() == 2 * (fox + "\n") + run("A fox" + fox + "a\nb\nc", "-n", 4) + "\n", "typed in a terminal: %r" % out)
check(p.returncode == 130, "Ctrl-C at the prompt: status %s" % p.returncode)
check(termios.tcgetattr(slave) == mode, "the terminal's mode is not as it was")
os.close(master)
os.close(slave)
master, slave = pty.openpty()
screen = Screen(master)
p = subprocess.Popen([program(), "chat", "-m", STORY, "--chat-template", plain], stdin=slave, stdout=subprocess.PIPE, stderr=slave,
                     preexec_fn=default_signals, env=dict(os.environ, TERM="xterm"))
check(screen.wait(b"> "), "no prompt before SIGTERM")
p.send_signal(signal.SIGTERM)
p.communicate(timeout=60)
check(p.returncode == 128 + signal.SIGTERM and termios.tcgetattr(slave) == mode,
      "SIGTERM leaves the terminal in another mode: status %s" % p.returncode)
os.close(master)
os.close(slave)

p = start(*LONG, stdin=subprocess.PIPE)
p.stdin.write(b"A fox\nA hen\n")
p.stdin.flush()
p.stdout.read(1)
p.send_signal(signal.SIGTERM)
try:
    p.communicate(timeout=60)
except subprocess.TimeoutExpired:
    p.kill()
    p.communicate()
check(p.returncode == 128 + signal.SIGTERM, "SIGTERM ends the program: status %s" % p.returncode)
check.end()
