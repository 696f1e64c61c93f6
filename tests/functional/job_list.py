#!/usr/bin/env python3
"""Makes a list of jobs one of a later format, as that would be: with its number, and the checksum of all before it."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "store"))
import read_store  # noqa: E402

MAGIC = b"tierdlst"

with open(sys.argv[1], "rb") as file:
    content = bytearray(file.read())
assert content[:8] == MAGIC and int.from_bytes(content[8:16], "little") == 1, content[:16]
assert read_store.checksum(bytes(content[:-8]), 0) == int.from_bytes(content[-8:], "little")
content[8] = 2
content[-8:] = read_store.checksum(bytes(content[:-8]), 0).to_bytes(8, "little")
with open(sys.argv[1], "wb") as file:
    file.write(content)
