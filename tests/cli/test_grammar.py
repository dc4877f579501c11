#!/usr/bin/env python3
"""Answers under a grammar: whatever the seed, they are texts of it; drafts, batches and the vocabulary's cutting of
texts do not change them."""
import json
import os
import re
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from cli import STORY, own_lines, refused  # noqa: E402
from conclave import DEMO, Checks, conclave  # noqa: E402

check = Checks()
dir_ = tempfile.TemporaryDirectory()
NEXTN = DEMO + "/story-glm5next-f16.gguf"
PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age", "friends"], "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 1, "maximum": 12},
    "friends": {"type": "array", "maxItems": 2, "items": {"enum": ["fox", "bear"]}}, "told": {"const": None}}}
WORDS = 'root ::= " there was " word (" " word){1,4} [.!] # a sentence\nword ::= [a-z]{1,8}'


def run(*args, model=STORY, **more):
    return conclave("run", "-m", model, "-p", "Once upon a time", "--no-display-prompt", *args, **more)


for seed in range(3):
    p = run("-j", json.dumps(PERSON), "--seed", seed)
    try:
        a = json.loads(p.stdout)
        check(set(a) >= {"name", "age", "friends"} and set(a) <= set(PERSON["properties"]) and len(a["name"]) <= 12 and
              1 <= a["age"] <= 12 and len(a["friends"]) <= 2 and set(a["friends"]) <= {"fox", "bear"}, "%r" % a)
    except ValueError as e:
        check(False, "seed %d: %s: %r %r" % (seed, e, p.stdout, p.stderr))
schema = os.path.join(dir_.name, "schema.json")
with open(schema, "w") as f:
    json.dump(PERSON, f)
check(p.returncode == 0 and run("--json-schema-file", schema, "--seed", 2).stdout == p.stdout, "a schema from a file")

base = run("--grammar", WORDS, "--seed", 5)
check(re.fullmatch(rb" there was [a-z]{1,8}( [a-z]{1,8}){1,4}[.!]", base.stdout), "%r %r" % (base.stdout, base.stderr))
grammar = os.path.join(dir_.name, "words.gbnf")
with open(grammar, "w") as f:
    f.write(WORDS)
check(run("--grammar-file", grammar, "--seed", 5, "--batch", 1).stdout == base.stdout, "from a file, a token at a time")
p = run("--grammar", 'root ::= "yes" | "no"', "--temp", 0, "--ignore-eos")
check(p.returncode == 0 and p.stdout in (b"yes", b"no"), "the grammar's end ends it: %r %r" % (p.stdout, p.stderr))
p = run("--grammar", 'root ::= "é" "\\u540d"', "--temp", 0)
check(p.stdout.decode() == "é名", "characters of several bytes: %r" % p.stdout)

without = run("--grammar", WORDS, "--temp", 0, "--draft", 0, model=NEXTN)
check(re.fullmatch(rb" there was [a-z]{1,8}( [a-z]{1,8}){1,4}[.!]", without.stdout), "%r %r" % (without.stdout, without.stderr))
p = run("--grammar", WORDS, "--temp", 0, "--draft", 3, model=NEXTN)
check(p.stdout == without.stdout and "drafts" in own_lines(p)[-1], "drafts: %r %r" % (p.stdout, p.stderr))

for args, wanted in ((("--grammar", "root ::= root"), ("rule 'root' begins with itself",)),
                     (("--grammar", "x ::= @"), ("line 1", "end of the rule")),
                     (("-j", "{"), ("--json-schema: byte 1",)), (("-j", '{"not": {}}'), ("schema: #: 'not' is not supported",)),
                     (("--grammar-file", dir_.name + "/none"), ("none", "No such file"))):
    refused(check, run(*args), 1, *wanted)
refused(check, run("-j", "{}", "--json-schema-file", schema), 2, "exclude each other")
check.end()
