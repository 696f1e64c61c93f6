"""The reference library and tierctl read each other's files: safetensors_reference.py PROGRAM FOLDER SCRATCH

PROGRAM is exported.c.
"""
import json
import os
import random
import struct
import subprocess
import sys

import numpy
import safetensors
import safetensors.numpy

from programs import TIERCTL, Job, tierctl
from tensor_file import crc, narrowed

program, folder, scratch = sys.argv[1:]
FORMATS = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def at(name):
    return os.path.join(folder, name)


def read(path):
    """By the reference: name → dtype, shape, bytes."""
    with open(path, "rb") as file:
        return {name: (entry["dtype"], list(entry["shape"]), bytes(entry["data"])) for name, entry in
                safetensors.deserialize(file.read())}


def export(*arguments):
    return json.loads(tierctl("export", "job", "--json", *arguments).splitlines()[-1])


def inspect(path):
    done = subprocess.run([TIERCTL, "inspect", "--json", path], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None, done.stderr


def train():
    diary = os.path.join(scratch, "diary")
    Job(program, "job", diary, 5000, 3).wait()
    with open(diary, encoding="utf-8") as lines:
        return {tuple(line.split()[:3]): line.split()[3] for line in lines}


def ours_load_there(sums):
    done = export("--output", at("ours.safetensors"))
    tensors = read(at("ours.safetensors"))
    kinds = {"embed": "BF16", "half": "F16", "full": "F32", "scale": "F32", "none": "BF16", "odd": "BF16",
             "ice": "BF16", "frost": "F16", "codes": "U8", "large": "F32"}
    assert set(tensors) == {*kinds, "whole"}
    for name, dtype in kinds.items():
        assert tensors[name][0] == dtype
        assert crc(tensors[name][2]) == sums[str(done["step"]), "parameter", name], name
    assert tensors["scale"][1] == [] and tensors["none"][1] == [0, 5] and tensors["whole"][1] == [300, 64]
    # What numpy has a format for, also as it is used.
    with safetensors.safe_open(at("ours.safetensors"), framework="np") as file:
        assert file.metadata()["head"] == "embed" and file.metadata()["format"] == "pt"
        assert file.get_tensor("full").tobytes() == tensors["full"][2]
        assert file.get_tensor("frost").dtype == numpy.float16
        assert file.get_tensor("scale").shape == ()


def ours_in_shards_load_there(sums):
    done = export("--format", "fp32", "--with-optimizer", "--shard-size", "300KB", "--output", folder)
    with open(done["index"], encoding="utf-8") as file:
        index = json.load(file)
    assert index["metadata"]["total_size"] > 0 and len(done["files"]) > 2
    loaded = {path: safetensors.numpy.load_file(path) for path in done["files"]}
    assert {name for file in loaded.values() for name in file} == set(index["weight_map"])
    for name, place in index["weight_map"].items():
        base, _, slot = name.partition(".")
        kind = {"": "master", "exp_avg": "m", "exp_avg_sq": "v"}[slot]
        values = loaded[at(place)][name]
        if base in ("ice", "frost"):
            data = narrowed(values.tobytes(), "BF16" if base == "ice" else "F16")
            assert crc(data) == sums[str(done["step"]), "parameter", base]
        elif base not in ("whole", "codes"):
            assert values.dtype == numpy.float32
            assert crc(values.tobytes()) == sums[str(done["step"]), kind, base], name


def compare(path, tensors):
    """tierctl finds in the file what the reference has put there."""
    found, message = inspect(path)
    assert found, message
    assert {entry["name"] for entry in found["tensors"]} == set(tensors)
    for entry in found["tensors"]:
        dtype, shape, data = tensors[entry["name"]]
        assert (entry["dtype"], entry["shape"], entry["bytes"]) == (dtype, shape, len(data)), entry
        with open(entry["file"], "rb") as file:
            file.seek(entry["offset"])
            assert file.read(len(data)) == data, entry
    return found


def theirs_load_here():
    generator = numpy.random.default_rng(1)
    arrays = {"scalar": numpy.array(1.5, numpy.float16), "empty": numpy.zeros((3, 0), numpy.int64),
              "a \"quoted\" \\ näme": numpy.arange(5, dtype=numpy.uint8), "flags": numpy.array([True, False])}
    for dtype in ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16"):
        arrays[dtype] = (generator.standard_normal((7, 3)) * 100).astype(dtype)
    safetensors.numpy.save_file(arrays, at("theirs.safetensors"), metadata={"a\n": "\"ü\\"})
    found = compare(at("theirs.safetensors"), read(at("theirs.safetensors")))
    assert found["files"][0]["metadata"] == {"a\n": "\"ü\\"}
    # Formats that numpy lacks, as the reference's own reading of a file shows.
    for dtype, size in (("BF16", 2), ("F8_E4M3", 1), ("F8_E5M2", 1), ("F8_E8M0", 1), ("C64", 8)):
        put("one.safetensors", {"t": {"dtype": dtype, "shape": [3, 1], "data_offsets": [0, 3 * size]}}, 3 * size)
        compare(at("one.safetensors"), read(at("one.safetensors")))


def theirs_in_shards_load_here():
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    shards = [{"b": numpy.ones(3, numpy.float32), "a": numpy.ones((2, 2), numpy.float16)}, {"c": numpy.ones(5)}]
    os.mkdir(at("sharded"))
    tensors, index = {}, {"metadata": {"total_size": 12 + 8 + 40, "total_parameters": 12}, "weight_map": {}}
    for name, arrays in zip(names, shards):
        path = at("sharded/" + name)
        safetensors.numpy.save_file(arrays, path, metadata={"format": "pt"})
        tensors.update(read(path))
        index["weight_map"].update({key: name for key in arrays})
    with open(at("sharded/model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump(index, file, indent=2, sort_keys=True)
    found = compare(file.name, tensors)
    assert found["bytes"] == found["total_size"] and len(found["files"]) == 2


def put(name, header, size, padding=b""):
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(at(name), "wb") as file:
        file.write(struct.pack("<Q", len(content + padding)) + content + padding + bytes(random.randbytes(size)))


def theirs_go_through_a_job():
    """Imported, exported, and read by the reference again: the same."""
    for source in "theirs.safetensors", "sharded", "ours.safetensors":
        tierctl("import", "theirs", at(source))
        tierctl("export", "theirs", "--force", "--output", at("back.safetensors"))
        tierctl("drop", "theirs", "--yes")
        paths = [os.path.join(at(source), name) for name in os.listdir(at(source)) if name.endswith(".safetensors")] \
            if os.path.isdir(at(source)) else [at(source)]
        before = {name: value for path in paths for name, value in read(path).items()}
        after = read(at("back.safetensors"))
        assert after == before


def what_the_reference_refuses_is_refused_here():
    """Small changes of a good header: we are at least as strict."""
    random.seed(7)
    good = json.dumps({"__metadata__": {"key": "a value that may change"}, "a": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]},
                       "b": {"dtype": "U8", "shape": [], "data_offsets": [12, 13]}}).encode()
    counts = {"both": 0, "here": 0, "neither": 0}
    for _ in range(300):
        changed = bytearray(good)
        changed[random.randrange(len(changed))] = random.choice(b'0123{}[]",:-. _\\\xff')
        put("changed.safetensors", bytes(changed), 13)
        try:
            read(at("changed.safetensors"))
            is_refused = False
        except safetensors.SafetensorError:
            is_refused = True
        found, message = inspect(at("changed.safetensors"))
        assert not (is_refused and found), bytes(changed)
        assert found or at("changed.safetensors") in message, message
        counts["both" if is_refused else "neither" if found else "here"] += 1
    assert counts["both"] > 50 and counts["neither"] > 10, counts


sums_of_steps = train()
ours_load_there(sums_of_steps)
ours_in_shards_load_there(sums_of_steps)
theirs_load_here()
theirs_in_shards_load_here()
theirs_go_through_a_job()
what_the_reference_refuses_is_refused_here()
