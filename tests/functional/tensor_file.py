"""A file of tensors, read by the shortest program that can: what tierctl writes is not compared with its own reading."""
import array
import json
import struct
import zlib

BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
        "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
        "U64": 64}


class TensorFile:
    def __init__(self, path):
        with open(path, "rb") as file:
            content = file.read()
        length = struct.unpack("<Q", content[:8])[0]
        assert length % 8 == 0, length
        self.entries = json.loads(content[8 : 8 + length])
        self.metadata = self.entries.pop("__metadata__")
        self.data = memoryview(content)[8 + length :]
        self.check()

    def check(self):
        """Everything lies side by side, aligned, and has the size of its shape."""
        at = 0
        for name, entry in sorted(self.entries.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = entry["data_offsets"]
            bits = BITS[entry["dtype"]]
            assert begin == at and begin % max(bits // 8, 1) == 0, (name, entry)
            elements = 1
            for rows in entry["shape"]:
                elements *= rows
            assert 8 * (end - begin) == elements * bits, (name, entry)
            at = end
        assert at == len(self.data), at

    def bytes(self, name):
        begin, end = self.entries[name]["data_offsets"]
        return self.data[begin:end]


def crc(data):
    return f"{zlib.crc32(data):08x}"


def narrowed(data, dtype):
    """The 16-bit values of which these fp32 ones are exact copies."""
    if dtype == "BF16":
        words = array.array("H", bytes(data))
        assert not any(words[0::2])
        return words[1::2].tobytes()
    floats = struct.unpack(f"<{len(data) // 4}f", data)
    return struct.pack(f"<{len(floats)}e", *floats)
