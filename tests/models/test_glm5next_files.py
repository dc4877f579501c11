#!/usr/bin/env python3
"""Files of glm5next as they are in circulation: the other spelling, early names, tensors more or fewer, a pool
size that is wrong, types mixed among the experts. A clear line, or the same bytes."""
import os
import random
import struct
import sys
import tempfile

sys.path.insert(0, "tests/lib")
from cli import refused  # noqa: E402
from conclave import GOLDEN, Checks, Eval, cases, conclave  # noqa: E402
from gguf_file import TYPES, Gguf, Tensor, text  # noqa: E402

MODEL = GOLDEN + "/tiny/glm5next/model.gguf"
# six types among the experts, Q8_0 and BF16 in the trunk (mix below): first 16 digits of SHA-256 over the
# logits and the NextN block's, --kv f32, prompt long, from a program that was written from the specification alone
MIXED = ("17a120456efbc782", "0153d6a1013c9e9a")
# a selection of 300 positions, more than one chunk of rule 29, over 420 tokens; from the same program
WIDE = ("2880257bf6a3dc73", "10390eb9cd70f498")
check = Checks()
tokens = next(p["tokens"] for _, _, _, p in cases(["tiny/glm5next"]) if p["name"] == "long")
base = Eval(MODEL, tokens, "--kv", "f32", nextn=True)
check(base.ok, base.error())
folder = tempfile.TemporaryDirectory()


def changed(edit):
    g = Gguf(MODEL)
    edit(g)
    return g.write(os.path.join(folder.name, "model.gguf"))


def same(what, edit, nextn=True, *words):
    r = Eval(changed(edit), tokens, "--kv", "f32", nextn=nextn)
    said = r.p.stderr.decode(errors="replace")
    check(r.ok and r.logits == base.logits and (not nextn or r.nextn == base.nextn), "%s: other bytes: %s" % (what, r.error()))
    check(all(w in said for w in words), "%s: said %r" % (what, said))


def bad(what, edit, *words):
    p = conclave("eval", "-m", changed(edit), "--tokens", "1,2", "--greedy", 1)
    refused(check, p, 1, *words, what=what)


def renamed(g):
    g.keys = {k.replace("glm5next.", "glm5-next."): v for k, v in g.keys.items()}
    g.keys["general.architecture"] = (8, text("glm5-next"))


def early(g):
    """Names of the first files: no suffix, other keys."""
    g.keys["glm5next.attention.indexer.block_size"] = g.keys.pop("glm5next.attention.indexer.kpool")
    g.keys["glm5next.ssm.state_size"] = g.keys.pop("glm5next.kda.head_dim")
    for t in g.tensors:
        if ".hc_" in t.name or "indexer_compressor" in t.name:
            t.name = t.name.replace(".weight", "")


def short_convolutions(g):
    for t in g.tensors:
        if "ssm_conv1d" in t.name:
            t.dims = t.dims[:3]


def no_nextn(g):
    g.tensors = [t for t in g.tensors if not t.name.startswith("blk.5.")]


def without(name):
    def edit(g):
        g.tensors = [t for t in g.tensors if t.name != name]
    return edit


def extra(g):
    g.tensors.append(Tensor("blk.3.attn_unheard_of.weight", [32, 2], 0, bytes(256)))


def kpool(n):
    return lambda g: g.u32("glm5next.attention.indexer.kpool", n)


def mix(g):
    """Random blocks with scales of the size of the weights'."""
    r = random.Random(20261130)
    kinds = ["Q4_0", "Q5_1", "Q8_0", "IQ4_NL", "F16", "BF16"]
    picked = 0
    for t in g.tensors:
        trunk = t.name.endswith(("attn_q.weight", "attn_output.weight", "attn_q_b.weight", "attn_k_b.weight",
                                 "attn_v_b.weight", "ffn_down_shexp.weight", "nextn.eh_proj.weight"))
        if not trunk and "_exps." not in t.name:
            continue
        if t.dims[0] % 32:  # attn_k_b: rows of 16
            kind = "BF16"
        else:
            kind = "Q8_0" if trunk else kinds[picked % len(kinds)]
            picked += not trunk
        number, values, size = TYPES[kind]
        numbers = struct.unpack("<%df" % (len(t.data) // 4), t.data)
        if kind == "F16":
            t.data = struct.pack("<%de" % len(numbers), *numbers)
        elif kind == "BF16":
            t.data = b"".join(struct.pack("<f", x)[2:] for x in numbers)
        else:
            out = bytearray()
            for _ in range(len(numbers) // values):
                block = bytearray(r.randrange(256) for _ in range(size))
                block[0:2] = struct.pack("<e", 0.002 if kind in ("Q8_0", "IQ4_NL") else 0.03)
                if kind == "Q5_1":
                    block[2:4] = struct.pack("<e", -0.45)
                out += block
            t.data = bytes(out)
        t.kind = number


same("glm5-next", renamed)
same("early names", early)
same("convolutions of three dimensions", short_convolutions)
same("an unknown tensor", extra, True, "blk.3.attn_unheard_of.weight", "not used")
same("no NextN block", no_nextn, False)
p = conclave("eval", "-m", changed(no_nextn), "--tokens", "1,2", "--nextn", os.path.join(folder.name, "rows"))
refused(check, p, 1, "--nextn", "no NextN block", what="--nextn without the block")
bad("half a NextN block", without("blk.5.nextn.enorm.weight"), "blk.5.nextn.enorm.weight", "missing")
bad("an index without its norm", without("blk.3.indexer.k_norm.bias"), "blk.3.indexer.k_norm.bias", "missing")
bad("no mixer", without("blk.1.hc_ffn_base.weight"), "blk.1.hc_ffn_base.weight", "missing")
bad("pools of 2", kpool(2), "indexer_compressor_ape", "{16, 4}", "{16, 2}")
bad("pools of 0", kpool(0), "kpool", "integer")
bad("pools of 300", kpool(300), "kpool", "integer")
bad("selection below a pool", lambda g: g.u32("glm5next.attention.indexer.top_k", 3), "top_k", "integer")
bad("no pool size", lambda g: g.keys.pop("glm5next.attention.indexer.kpool"), "attention.indexer.kpool")
bad("two NextN blocks", lambda g: g.u32("glm5next.nextn_predict_layers", 2), "nextn_predict_layers")
bad("rotated heads", lambda g: g.u32("glm5next.rope.dimension_count", 8), "rope.dimension_count")
bad("expert groups", lambda g: g.u32("glm5next.expert_group_count", 2), "expert_group_count")
bad("softmax routing", lambda g: g.u32("glm5next.expert_gating_func", 1), "expert_gating_func")
path = changed(mix)
mixed = Eval(path, tokens, "--kv", "f32", nextn=True)
check(mixed.ok and (mixed.hash(), mixed.hash(True)) == MIXED, "mixed types: hashes %s %s %s" %
      (mixed.hash(), mixed.hash(True), mixed.error()))
for args in (("--batch", 1, "-t", 1), ("--batch", 7, "--nodes", 2), ("--ram", "40K")):
    r = Eval(path, tokens, "--kv", "f32", *args, nextn=True)
    check(r.ok and r.logits == mixed.logits and r.nextn == mixed.nextn, "mixed types %s: %s" % (args, r.error()))
path = changed(lambda g: g.u32("glm5next.attention.indexer.top_k", 300))
many = [(i * i * 7 + i * 13) % 257 for i in range(420)]
for args in (("--batch", 100, "--nodes", 2), ("--batch", 1, "-t", 1), ()):
    r = Eval(path, many, "--kv", "f32", *args, nextn=True)
    check(r.ok and (r.hash(), r.hash(True)) == WIDE, "two chunks %s: hashes %s %s %s" %
          (args, r.hash(), r.hash(True), r.error()))
# a pack, whose first layers have no blocks; routes of the layers that choose
pack = os.path.join(folder.name, "pack")
p = conclave("pack", "-m", MODEL, "-o", pack, "--nodes", 2)
check(p.returncode == 0, "pack: %s" % p.stderr)
for nodes in (1, 2):
    r = Eval(pack, tokens, "--kv", "f32", "--nodes", nodes, "--verify", nextn=True)
    check(r.ok and r.logits == base.logits and r.nextn == base.nextn, "pack, %d nodes: %s" % (nodes, r.error()))
routes = os.path.join(folder.name, "routes.npy")
p = conclave("eval", "-m", MODEL, "--tokens", ",".join(map(str, tokens)), "--record-routes", routes)
check(p.returncode == 0, "routes: %s" % p.stderr)
with open(routes, "rb") as f:
    check(b"'shape': (%d, 3, 2)" % len(tokens) in f.read(128), "routes: another shape")
check.end()
