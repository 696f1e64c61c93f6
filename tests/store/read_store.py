#!/usr/bin/env python3
"""Reads a store as docs/store.md describes it, sharing nothing with the code that writes it.

usage: read_store.py [--stream [BLOCK:]LENGTH,…]… DEVICE…

Prints what was found as JSON. DEVICE: the files of the store, in any order. --stream: the lengths of the sections of
each stream, from stream 0 on, behind BLOCK: if its blocks have other than 262144 bytes; with it every extent's checksums
are verified. Exits with 1, and says why, if the store
is damaged; "repaired" counts nodes that only their second place had, and "is_lost" is a snapshot of whose map one is in
neither."""
import argparse
import ctypes
import ctypes.util
import json
import struct
import sys

MIB = 1 << 20
BLOCK = 256 * 1024
NODE = 4096
RECORD = 512
COPY_AT = (0, 262144, 524288, 786432)
NOWHERE = (1 << 64) - 1
NO_EXTENT = (1 << 32) - 1
TABLE = 256
LEAF_ENTRIES, POINTERS = 100, 168


class Damaged(Exception):
    pass


class NodeGone(Damaged):
    """In neither of its places."""


def load_xxhash():
    name = ctypes.util.find_library("xxhash")
    if not name:
        print("skipped: there is no libxxhash to load")
        sys.exit(77)
    library = ctypes.CDLL(name)
    library.XXH3_64bits_withSeed.restype = ctypes.c_uint64
    library.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
    return library


XXHASH = load_xxhash()


def checksum(data, seed=0):
    return XXHASH.XXH3_64bits_withSeed(data, len(data), seed)


def read_at(file, offset, length):
    file.seek(offset)
    data = file.read(length)
    return data + bytes(length - len(data))


# ---- Superblocks


def read_sector(record, copy):
    """None: it is not whole."""
    if record[:8] != b"tierd-sb" or struct.unpack_from("<Q", record, 504)[0] != checksum(record[:504], copy + 1):
        return None
    fields = struct.unpack_from("<IHH16sQQQ3Q3Q", record, 8)
    if fields[0] not in (1, 2):
        raise Damaged(f"it has format {fields[0]}, and this reads formats 1 and 2")
    names = ("format", "member", "members", "store", "generation", "epoch", "step")
    superblock = dict(zip(names, fields))
    superblock["root"] = fields[7:10]
    superblock["place"] = struct.unpack_from("<Q", record, 488)[0] if fields[0] == 2 else MIB
    if not MIB <= superblock["place"] <= 5 * MIB // 4 or superblock["place"] % 16384:
        raise Damaged(f"it cannot have places of {superblock['place']} bytes")
    if not 0 < superblock["members"] <= 16:
        raise Damaged(f"it cannot have {superblock['members']} members")
    superblock["devices"] = [struct.unpack_from("<QIII", record, 104 + 24 * i) for i in range(superblock["members"])]
    return superblock


def read_copy(file, copy):
    data = read_at(file, COPY_AT[copy], 4096)
    records = [read_sector(data[at : at + RECORD], copy) for at in range(0, 4096, RECORD)]
    return max((record for record in records if record), key=lambda record: record["generation"], default=None)


def choose(files):
    """The newest superblock, and the files in the order of the members."""
    copies = [[read_copy(file, copy) for copy in range(4)] for file in files]
    for pair in ((0, 1), (2, 3)):
        if not any(of_file[copy] for of_file in copies for copy in pair):
            raise Damaged(f"no copy of pair {pair[0] // 2} can be read")
    found = [copy for of_file in copies for copy in of_file if copy]
    newest = max(found, key=lambda copy: copy["generation"])
    if newest["members"] != len(files):
        raise Damaged(f"it has {newest['members']} devices, not {len(files)}")
    members = [None] * len(files)
    for file, of_file in zip(files, copies):
        own = max((copy for copy in of_file if copy), key=lambda copy: copy["generation"], default=None)
        if not own or own["store"] != newest["store"]:
            raise Damaged(f"{file.name} is no device of the store")
        number = own["member"]
        if number >= len(files) or members[number] or own["devices"][number][0] != newest["devices"][number][0]:
            raise Damaged(f"{file.name} is not the device that it says")
        if own["generation"] + 1 < newest["generation"]:
            raise Damaged(f"{file.name} was left behind")
        members[number] = file
    return newest, members


# ---- Nodes and extents


def read_record(record, jobs):
    """jobs: the numbers of those before."""
    kind, job, step, extents, _, *root = struct.unpack_from("<IIQQQ3Q", record)
    name = record[56:120].split(b"\0")[0].decode()
    if kind not in (1, 2) or (kind == 2) != (job in jobs):
        raise Damaged(f"a head of kind {kind} is of job {job}")
    head = {"kind": ("job", "snapshot")[kind - 1], "job": job, "name": name, "step": step, "extents": extents}
    if kind == 1:
        head["serial"], head["origin"] = struct.unpack_from("<2Q", record, 120)
    return head, tuple(root)


class Store:
    def __init__(self, files):
        self.superblock, self.devices = choose(files)
        self.repaired = 0

    def node(self, pointer, level, counts, index):
        for copy, place in enumerate(pointer[:2]):
            device, number = place >> 48, place & ((1 << 48) - 1)
            if device >= len(self.devices) or number >= self.superblock["devices"][device][2]:
                raise Damaged(f"place {place} of a node is on no device")
            data = read_at(self.devices[device], MIB + number * NODE, NODE)
            magic, found_level, count, found_index = struct.unpack_from("<8sIIQ", data)
            if (
                checksum(data) == pointer[2]
                and (magic, found_level, found_index) == (b"tierd-nd", level, index)
                and count in counts
            ):
                self.repaired += copy
                return data
        raise NodeGone(f"node {index} of level {level} is in neither of its places")

    def heads(self):
        if self.superblock["root"][0] == NOWHERE:
            return
        table = self.node(self.superblock["root"], TABLE, range(1, 16), 0)
        jobs = set()
        for number in range(struct.unpack_from("<I", table, 12)[0]):
            head, root = read_record(table[64 + 256 * number : 320 + 256 * number], jobs)
            jobs.add(head["job"])
            yield head, root

    def map(self, root, extents):
        """(extent, device, place, checksums) of each that was written."""
        counts = [max(1, -(-extents // LEAF_ENTRIES))]
        while counts[-1] > 1:
            counts.append(-(-counts[-1] // POINTERS))
        yield from self.below(root, len(counts) - 1, 0, [extents] + counts)

    def below(self, pointer, level, index, items):
        if pointer[0] == NOWHERE:
            return
        capacity = POINTERS if level else LEAF_ENTRIES
        count = min(capacity, items[level] - index * capacity)
        data = self.node(pointer, level, (count,), index)
        for i in range(count):
            if level:
                child = struct.unpack_from("<3Q", data, 64 + 24 * i)
                yield from self.below(child, level - 1, index * POINTERS + i, items)
            else:
                place, device, *checksums = struct.unpack_from("<IH2x4Q", data, 64 + 40 * i)
                if place != NO_EXTENT:
                    yield index * LEAF_ENTRIES + i, device, place, checksums

    def extent(self, device, place):
        if device >= len(self.devices) or place >= self.superblock["devices"][device][1]:
            raise Damaged(f"place {place} of device {device} is none")
        nodes = self.superblock["devices"][device][2] * NODE
        size = self.superblock["place"]
        return read_at(self.devices[device], MIB + -(-nodes // MIB) * MIB + place * size, size)


def positions(streams):
    """(stream, first block, bytes of a block, bytes in use) of each extent."""
    for stream, (size, sections) in enumerate(streams):
        extent = 0
        for length in sections:
            for at in range(0, length, 4 * size):
                yield stream, 4 * extent, size, min(4 * size, length - at)
                extent += 1


def verify(data, checksums, position):
    stream, first, size, used = position
    for block in range(-(-used // size)):
        part = data[block * size : min(used, (block + 1) * size)]
        if checksum(part, (stream << 48) + first + block) != checksums[block]:
            raise Damaged(f"block {first + block} of stream {stream} is not what was written")


def count_written(store, head, root, where):
    places = set()
    for extent, device, place, checksums in store.map(root, head["extents"]):
        if (device, place) in places:
            raise Damaged(f"two extents lie at place {place} of device {device}")
        places.add((device, place))
        data = store.extent(device, place)
        if where:
            verify(data, checksums, where[extent])
    return len(places)


def describe(store, streams):
    heads, where = [], list(positions(streams))
    for head, root in store.heads():
        try:
            heads.append({**head, "written": count_written(store, head, root, where)})
        except NodeGone:
            if not heads:
                raise
            heads.append({**head, "is_lost": True})
    superblock = store.superblock
    return {
        "store": superblock["store"].hex(),
        **{name: superblock[name] for name in ("format", "place", "generation", "epoch", "step", "members")},
        "heads": heads,
        "repaired": store.repaired,
    }


def parse_stream(text):
    size, _, lengths = text.rpartition(":")
    return int(size or BLOCK), [int(length) for length in lengths.split(",")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stream", action="append", default=[])
    parser.add_argument("device", nargs="+")
    arguments = parser.parse_args()
    streams = [parse_stream(stream) for stream in arguments.stream]
    try:
        store = Store([open(path, "rb") for path in arguments.device])
        print(json.dumps(describe(store, streams)))
    except Damaged as damage:
        sys.exit(f"damaged: {damage}")


if __name__ == "__main__":
    main()
