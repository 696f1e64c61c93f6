"""A file of tensors, read by the shortest program that can: what tierctl writes is not compared with its own reading."""
import array
import json
import struct
import zlib

SIZES = {"F32": 4, "BF16": 2, "F16": 2, "U8": 1}


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
            size = SIZES[entry["dtype"]]
            assert begin == at and begin % size == 0, (name, entry)
            elements = 1
            for rows in entry["shape"]:
                elements *= rows
            assert end - begin == elements * size, (name, entry)
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
