"""A GGUF file as Python values, to be changed and written again: for tests of files that are a little wrong,
spelled differently or of other types."""
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
U32, F32, STRING, ARRAY = 4, 6, 8, 9
# values and bytes of a block
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
         "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "IQ4_NL": (20, 32, 18), "BF16": (30, 1, 2)}
BYTES = {number: (values, size) for number, values, size in TYPES.values()}


def text(s):
    s = s.encode()
    return struct.pack("<Q", len(s)) + s


class Tensor:
    def __init__(self, name, dims, kind, data):
        self.name, self.dims, self.kind, self.data = name, dims, kind, data

    def bytes(self):
        values, size = BYTES[self.kind]
        n = 1
        for d in self.dims:
            n *= d
        return n // values * size


class Gguf:
    """keys: name -> (kind, raw value), in order; tensors: list of Tensor."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.raw = f.read()
        self.at = 8
        n_tensors, n_keys = self.take("<QQ")
        self.keys = {}
        for _ in range(n_keys):
            name = self.string()
            kind, = self.take("<I")
            start = self.at
            self.skip(kind)
            self.keys[name] = (kind, self.raw[start:self.at])
        infos = []
        for _ in range(n_tensors):
            name = self.string()
            n_dims, = self.take("<I")
            dims = list(self.take("<%dQ" % n_dims))
            infos.append((name, dims) + self.take("<IQ"))
        base = self.at + -self.at % 32
        self.tensors = [Tensor(n, d, k, None) for n, d, k, _ in infos]
        for t, info in zip(self.tensors, infos):
            t.data = self.raw[base + info[3]:base + info[3] + t.bytes()]

    def take(self, form):
        v = struct.unpack_from(form, self.raw, self.at)
        self.at += struct.calcsize(form)
        return v

    def string(self):
        n, = self.take("<Q")
        self.at += n
        return self.raw[self.at - n:self.at].decode()

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            inner, n = self.take("<IQ")
            for _ in range(n):
                self.skip(inner)
        else:
            self.at += SIZES[kind]

    def u32(self, name, value):
        self.keys[name] = (U32, struct.pack("<I", value))

    def tensor(self, name):
        return next(t for t in self.tensors if t.name == name)

    def write(self, path):
        front = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))
        for name, (kind, value) in self.keys.items():
            front += text(name) + struct.pack("<I", kind) + value
        data = b""
        for t in self.tensors:
            data += b"\0" * (-len(data) % 32)
            front += text(t.name) + struct.pack("<I%dQIQ" % len(t.dims), len(t.dims), *t.dims, t.kind, len(data))
            data += t.data
        with open(path, "wb") as f:
            f.write(front + b"\0" * (-len(front) % 32) + data)
        return path
