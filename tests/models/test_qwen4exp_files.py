#!/usr/bin/env python3
"""Files of qwen4exp as they are in circulation: block sizes that are all 0, a draft block, other shapes of the same
values; what makes no sense is refused with a line. And look-up tables whose rows stay in the file: the same bytes
with every budget, form of reading, place of the trunk, from a pack; a token table of its own, with drafts."""
import json
import os
import struct
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from cli import refused  # noqa: E402
from conclave import GOLDEN, Checks, Eval, cases, conclave  # noqa: E402
from gguf_file import ARRAY, Gguf, Tensor  # noqa: E402

MODEL = GOLDEN + "/tiny/qwen4exp/model.gguf"
check = Checks()
prompts = {p["name"]: p["tokens"] for _, _, _, p in cases(["tiny/qwen4exp"])}
tokens = prompts["long"]
base = Eval(MODEL, tokens, "--kv", "f32")
check(base.ok, base.error())
folder = tempfile.TemporaryDirectory()


def changed(edit, name="model.gguf"):
    g = Gguf(MODEL)
    edit(g)
    return g.write(os.path.join(folder.name, name))


def same(what, edit, *words):
    r = Eval(changed(edit), tokens, "--kv", "f32")
    said = r.p.stderr.decode(errors="replace")
    check(r.ok and r.logits == base.logits, "%s: other bytes: %s" % (what, r.error()))
    check(all(w in said for w in words) and len(said.splitlines()) == bool(words), "%s: said %r" % (what, said))


def bad(what, edit, *words):
    p = conclave("eval", "-m", changed(edit), "--tokens", "1,2", "--greedy", 1)
    refused(check, p, 1, *words, what=what)


def key(name, kind, form, *values):
    """An array of numbers."""
    def edit(g):
        g.keys["qwen4exp." + name] = (ARRAY, struct.pack("<IQ%d%s" % (len(values), form), kind, len(values), *values))
    return edit


def u64s(name, at, value):
    """One number of an array."""
    def edit(g):
        kind, raw = g.keys["qwen4exp." + name]
        g.keys["qwen4exp." + name] = (kind, raw[:12 + 8 * at] + struct.pack("<Q", value) + raw[20 + 8 * at:])
    return edit


def without(name):
    def edit(g):
        g.tensors = [t for t in g.tensors if t.name != name]
    return edit


def draft_block(g):
    g.u32("qwen4exp.block_count", 4)
    g.u32("qwen4exp.nextn_predict_layers", 1)
    g.tensors.append(Tensor("blk.3.nextn.eh_proj.weight", [64, 32], 0, bytes(8192)))
    g.tensors.append(Tensor("blk.3.nextn.enorm.weight", [32], 0, bytes(128)))


def norms_by_stream(g):
    for t in g.tensors:
        if t.name.endswith("_norm.weight") and "hc_" in t.name:
            t.dims = [32, 4]


def files():
    # whole blocks that are all chosen, and no selection: one list of keys
    wide = Eval(changed(lambda g: g.u32("qwen4exp.attention.indexer.top_k", 64)), tokens, "--kv", "f32")
    zero = Eval(changed(key("attention.compress_ratios", 5, "i", 0, 0, 0)), tokens, "--kv", "f32")
    check(wide.ok and zero.ok and zero.logits == wide.logits != base.logits, "ratios 0: %s%s" %
          (wide.error(), zero.error()))
    said = zero.p.stderr.decode()
    check("1 layer with an index attends to every position" in said and len(said.splitlines()) == 1, "ratios 0: %r" % said)
    same("a draft block", draft_block, "draft block", "blk.3", "not used")
    same("norms by stream", norms_by_stream)
    bad("no mixer", without("blk.1.hc_ffn_inject.weight"), "blk.1.hc_ffn_inject.weight", "missing")
    bad("no table", without("per_layer_token_embd.weight"), "per_layer_token_embd.weight")
    bad("no index", without("blk.1.indexer.k_norm.weight"), "blk.1.indexer.k_norm.weight", "missing")
    bad("blocks of 300", key("attention.compress_ratios", 5, "i", 0, 300, 0), "compress_ratios")
    bad("a negative block", key("attention.compress_ratios", 5, "i", 0, -1, 0), "compress_ratios")
    bad("a selection below a block", lambda g: g.u32("qwen4exp.attention.indexer.top_k", 3), "top_k", "block of 4")
    bad("two n-gram layers", key("ple.layers", 5, "i", 1, 2), "ple.layers")
    bad("an n-gram layer behind the last", key("ple.layers", 5, "i", 3), "ple.layers")
    bad("rows behind the table", u64s("ple.head_offsets", 7, 559), "head_vocab_sizes", "head 7")
    bad("no rows", u64s("ple.head_vocab_sizes", 0, 0), "head_vocab_sizes", "head 0")
    bad("rows of another width", lambda g: g.u32("qwen4exp.embedding_length_per_layer_input", 8),
        "embedding_length_per_layer_input", "embedding_length")
    bad("too few factors", key("ple.layer_multipliers", 10, "Q", 1, 3), "layer_multipliers", "3 integers")


def paged(what, model, ids, wanted, *args, nextn=False, env=None):
    """An evaluation that reads rows: the bytes of the one that has the table in memory."""
    os.environ.update(env or {})
    r = Eval(model, ids, "--kv", "f32", *args, nextn=nextn)
    for k in env or {}:
        del os.environ[k]
    if not check(r.ok and r.logits == wanted.logits and (not nextn or r.nextn == wanted.nextn),
                 "%s %s: other bytes: %s" % (what, args, r.error())):
        return {}
    t = r.stats["tables"]
    check(not t["whole"] and 0 < t["reads"] <= t["rows"] and t["bytes_read"] >= 4096 * t["reads"] and
          r.stats["net_finds"] == 0, "%s %s: %s" % (what, args, t))
    return t


def tables():
    small = paged("one token's rows", MODEL, tokens, base, "--table-ram", "1K", "--batch", 1)
    large = paged("most rows", MODEL, tokens, base, "--table-ram", "16K", "--batch", 1)
    check(small["hits"] < large["hits"] and small["reads"] > large["reads"], "a larger cache: %s, %s" % (small, large))
    paged("passes", MODEL, tokens, base, "--table-ram", "4K", "--batch", 7, "--nodes", 2, "--ram", "60K")
    paged("threads that read", MODEL, tokens, base, "--table-ram", "1K", "--batch", 3, env={"CONCLAVE_IO": "threads"})
    paged("the trunk on a card", MODEL, tokens, base, "--table-ram", "1K", "--batch", 1, "--cards", "emu:1")
    paged("a host that dies", MODEL, tokens, base, "--table-ram", "1K", "--batch", 3, "--cards", "emu:1",
          env={"CONCLAVE_DIE": "sum:20:0"})
    pack = os.path.join(folder.name, "pack")
    p = conclave("pack", "-m", MODEL, "-o", pack)
    check(p.returncode == 0, "pack: %s" % p.stderr)
    paged("a pack", pack, tokens, base, "--table-ram", "1K", "--batch", 2)
    r = Eval(pack, tokens, "--kv", "f32", "--verify")
    check(r.ok and r.logits == base.logits and r.stats["tables"]["whole"], "a pack: %s" % r.error())
    check(large["rows"] == 9 * len(tokens), "two tables: %d rows" % large["rows"])  # eight of n-grams, the token's
    # a token table of its own, in the trunk's pass and in the draft block's
    for name, model, _, prompt in cases(["tiny/qwen35moe"]):
        whole = Eval(model, prompt["tokens"], "--kv", "f32", nextn=True)
        check("tables" not in whole.stats, "%s: tables without being asked" % name)
        for batch in (1, 5):
            paged(name, model, prompt["tokens"], whole, "--table-ram", "16K", "--batch", batch, nextn=True)
        args = ("run", "-m", model, "-p", prompt["text"], "-n", 30, "--ignore-eos", "--temp", 0, "--draft", 2)
        texts = {conclave(*args, *more).stdout for more in
                 ((), ("--table-ram", "8K", "--batch", 4), ("--table-ram", "8K", "--cards", "emu:1"))}
        check(len(texts) == 1 and len(texts.pop()) > 0, "%s: drafts with a paged table: %s" % (name, texts))


def told():
    """What inspect and plan say of states and tables is what a run takes."""
    look = json.loads(conclave("inspect", "-m", MODEL, "--json").stdout)["kv_bytes_per_token"]
    words = conclave("inspect", "-m", MODEL).stdout.decode()
    check("state of a token  f16 144 bytes, f32 272 bytes" in words and "of a sequence" in words, "inspect: %s" % words)
    stats = os.path.join(folder.name, "stats")
    for kv in ("f16", "f32"):
        p = conclave("run", "-m", MODEL, "-p", "A still is", "-n", 4, "-c", 64, "--kv", kv, "--stats", stats)
        with open(stats) as f:
            s = json.load(f)
        check(p.returncode == 0 and s["kv_bytes"] == 64 * look[kv] + look["fixed"], "--kv %s: %d bytes of state, %s" %
              (kv, s["kv_bytes"], look))
    for args, words in (((), ("look-up tables, whole; a token reads",)),
                        (("--table-ram", "1K", "--batch", 1), ("rows and those on their way of 59.75 KiB on the disk",))):
        p = conclave("plan", "-m", MODEL, "--no-measure", *args)
        line = next((x for x in p.stdout.decode().splitlines() if x.split()[:1] == ["tables"]), "")
        check(p.returncode == 0 and all(w in line for w in words), "plan %s: %r" % (args, line))


files()
tables()
told()
check.end()
