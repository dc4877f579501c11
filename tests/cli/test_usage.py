#!/usr/bin/env python3
"""Command lines: help and version of every command, flags that are mistyped, out of range, or
llama.cpp's."""
import re
import sys

sys.path.insert(0, "tests/lib")
from cli import STORY, refused  # noqa: E402
from conclave import Checks, conclave  # noqa: E402

check = Checks()
VERSION = rb"conclave \d+\.\d+\.\d+ \(build [0-9a-f]{16}, compiled by (gcc|clang) .*\)\n"

p = conclave("--help")
verbs = re.findall(r"^  ([a-z]+) {2,}\S", p.stdout.decode(), re.M)
check(p.returncode == 0 and not p.stderr, "--help: %s" % p)
check({"run", "eval", "perplexity", "tokenize", "inspect"} <= set(verbs), "--help lists %s" % verbs)
check(conclave("help").stdout == p.stdout and conclave("-h").stdout == p.stdout, "help, -h and --help differ")
check(re.fullmatch(VERSION, conclave("--version").stdout), "--version: %s" % conclave("--version").stdout)
p = conclave()
check(p.returncode == 2 and not p.stdout and b"usage:" in p.stderr, "without a command: %s" % p)
refused(check, conclave("rnu"), 2, "no command rnu", "mean run")
refused(check, conclave("help", "xyzzy"), 2, "no command xyzzy")
refused(check, conclave("-m", "x"), 2, "the command comes first")

for verb in verbs:
    text = conclave(verb, "--help")
    check(text.returncode == 0 and not text.stderr and b"usage: conclave " + verb.encode() in text.stdout,
          "%s --help: %s" % (verb, text))
    check(conclave("help", verb).stdout == text.stdout, "help %s is not %s --help" % (verb, verb))
    check(conclave(verb, "-h").stdout == text.stdout, "%s -h" % verb)
    check(max(map(len, text.stdout.decode().splitlines())) <= 100, "%s --help has long lines" % verb)
    v = conclave(verb, "--version")
    check(v.returncode == 0 and re.fullmatch(VERSION, v.stdout), "%s --version: %s" % (verb, v))
    refused(check, conclave(verb, "--hepl"), 2, "no option --hepl", "mean --help")
    refused(check, conclave(verb, "-Z"), 2, "no option -Z")
    # every flag of the help is known: with nothing after it, it lacks its value, or the model is missing
    flags = re.findall(r"^ {2}(?:-\w,|   ) (--[a-z-]+)( [A-Z]\S*)?", text.stdout.decode(), re.M)
    check(len(flags) >= 3, "%s --help: no flags found" % verb)
    for flag, value in flags:
        if flag in ("--help", "--version"):
            continue
        p = conclave(verb, flag)
        want = (flag + " needs a value") if value else "missing"
        refused(check, p, 2, want)
for flag in ("-t", "--nodes", "--ram", "--batch"):
    text = " ".join(conclave("run", "--help").stdout.decode().split("\n\n")[-2].split())
    check(flag in text and "never a bit of the result" in text, "--help does not promise about %s" % flag)

M = ("run", "-m", STORY, "-p", "x")
for words, wanted in (
        (("-n", "-5"), ("-n -5", "-1")), (("-n-5",), ("-n -5", "-1")), (("--predict=-2",), ("--predict -2",)),
        (("-n",), ("-n needs a value",)), (("-n", "five"), ("-n five", "whole number")),
        (("--temp", "hot"), ("--temp hot", "number")), (("--temp", "nan"), ("--temp nan",)),
        (("--min-p", "2"), ("--min-p 2", "0 to 1")), (("--top-p", "-1"), ("--top-p -1",)),
        (("--repeat-penalty", "0"), ("--repeat-penalty 0", "above 0")), (("--batch", "0"), ("--batch 0", "1 to")),
        (("--nodes", "0"), ("--nodes 0", "1 to")), (("-t", "0"), ("-t 0", "1 to")), (("-t", "-1"), ("-t -1",)),
        (("--kv", "q8"), ("--kv q8", "f32|f16|bf16")), (("--ram", "lots"), ("--ram lots", "size")),
        (("--seed", "x"), ("--seed x",)), (("-c", "-1"), ("-c -1",)),
        (("--tmep", "1"), ("no option --tmep", "mean --temp")), (("stray",), ("what is 'stray'",)),
        (("-f", "file"), ("-p and -f exclude each other",)), (("--ignore-eos=1",), ("takes no value",))):
    refused(check, conclave(*M, *words), 2, *wanted)
refused(check, conclave("run", "-p", "x"), 2, "-m FILE is missing")
refused(check, conclave("eval", "-m", STORY, "--logits", "/dev/null"), 2, "--tokens LIST is missing")
refused(check, conclave("eval", "-m", STORY, "--tokens", "1"), 2, "nothing to do")
for tokens in ("", "1,x", "1,-2", "1;2", "99999999999"):
    refused(check, conclave("eval", "-m", STORY, "--tokens", tokens, "--greedy", 1), 2, "--tokens")
refused(check, conclave("perplexity", "-m", STORY), 2, "-f TEXT is missing")
refused(check, conclave("perplexity", "-m", STORY, "-f", "x", "-c", 3), 2, "-c 3", "4 to")

# llama.cpp's names: refused with the reason ...
for words, wanted in (
        (("-hf", "user/model:q4"), ("-hf user/model:q4", "nothing is downloaded", "-m FILE")),
        (("-ngl", "99"), ("-ngl 99", "CPU")), (("-ot", "exps=CPU"), ("-ot exps=CPU", "--ram")),
        (("-ts", "1,1"), ("-ts 1,1",)), (("--jinja",), ("--jinja", "chat template")), (("-cnv",), ("chat template",)),
        (("--chat-template", "chatml"), ("chat template",)), (("-st",), ("chat template",)),
        (("--samplers", "top_k"), ("order of the samplers",)), (("--mirostat", "2"), ("--mirostat 2",)),
        (("-jf", "x"), ("--json-schema-file",)), (("-j", "{}", "--grammar", "x"), ("exclude each other",)),
        (("--lora", "x"), ("adapters",)), (("-md", "x"), ("drafts",)),
        (("--port", "80"), ("conclave serve",)), (("-ctk", "q4_0"), ("-ctk q4_0", "f32|f16|bf16")),
        (("--rope-freq-base", "1"), ("file's own values",)), (("--load-mode", "x"), ("--load-mode x",)),
        (("-lm", "what"), ("never mapped",)), (("--no-mmap=1",), ("takes no value",))):
    refused(check, conclave(*M, *words), 2, *wanted)
p = conclave(*M, "-ctk", "f16", "-ctv", "f32")
refused(check, p, 2, "-ctv f32", "f16 before", lines=2)

# ... or translated, or accepted, with one line each, and the run is the same
base = conclave(*M, "-n", 4, "--temp", 0, "--kv", "f32", "--batch", 8)
check(base.returncode == 0, "run: %s" % base.stderr)
many = ("-ngl", 0, "-ctk", "f32", "-ctv", "f32", "-ub", 8, "-b", 8, "--mlock", "--no-mmap", "-lm", "none", "-lzm", "auto",
        "--numa", "distribute", "-tb", 4, "-fa", "on", "--no-warmup", "-no-cnv", "-cmoe", "-ncmoe", 3, "-fit", "on",
        "--color", "--typical", "1.0", "--mirostat", 0, "--no-context-shift")
p = conclave(*M, "--n-predict", 4, "--temperature", 0, *many)
check(p.returncode == 0 and p.stdout == base.stdout, "llama.cpp's names: %r, wanted %r; %s" %
      (p.stdout, base.stdout, p.stderr.decode()))
text = p.stderr.decode()
for flag in [x for x in many if str(x).startswith("-")]:
    check(len(re.findall(r"^conclave: %s[ :]" % re.escape(flag), text, re.M)) == 1, "%s: no line in %s" % (flag, text))
check("-ctk f32: taken as --kv f32" in text and "-ub 8: taken as --batch 8" in text, "no translation in " + text)
check.end()
