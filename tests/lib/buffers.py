"""Named buffers: a golden case's tensors, and what `eval --dump` writes in the same form."""
import array
import json
import lzma
import os


def read_data(path):
    """The bytes of a reference file, which may be packed: PATH.xz."""
    if os.path.exists(path):
        with open(path, "rb") as f:
            return f.read()
    with lzma.open(path + ".xz") as f:
        return f.read()


def load(folder, index=None):
    """name -> (shape, numbers). index: one prompt's object; without it that of folder/index.json."""
    if index is None:
        with open(os.path.join(folder, "index.json")) as f:
            index = json.load(f)
    blob = read_data(os.path.join(folder, index["tensors_file"]))
    out = {}
    for t in index["tensors"]:
        n = 1
        for d in t["shape"]:
            n *= d
        a = array.array("f" if t["dtype"] == "f32" else "i")
        a.frombytes(blob[t["offset"]:t["offset"] + 4 * n])
        out[t["name"]] = (t["shape"], a)
    return out
