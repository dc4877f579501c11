"""Named buffers: a golden case's tensors, and what `eval --dump` writes in the same form."""
import array
import json
import os


def load(folder, index=None):
    """name -> (shape, numbers). index: one prompt's object; without it that of folder/index.json."""
    if index is None:
        with open(os.path.join(folder, "index.json")) as f:
            index = json.load(f)
    with open(os.path.join(folder, index["tensors_file"]), "rb") as f:
        blob = f.read()
    out = {}
    for t in index["tensors"]:
        n = 1
        for d in t["shape"]:
            n *= d
        a = array.array("f" if t["dtype"] == "f32" else "i")
        a.frombytes(blob[t["offset"]:t["offset"] + 4 * n])
        out[t["name"]] = (t["shape"], a)
    return out
