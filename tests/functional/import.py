#!/usr/bin/env python3
"""tierctl import: import.py EXPORTED USER_JOB FOLDER SCRATCH trips|after

EXPORTED is exported.c, whose job is there to be exported; USER_JOB is user_job.c. FOLDER is on a disk that has O_DIRECT. after: another daemon has
found the jobs of the first one.
"""
import glob
import json
import os
import random
import signal
import struct
import subprocess
import sys

from programs import TIERCTL, Job, tierctl
from stuck import Stuck
from tensor_file import BITS, TensorFile, narrowed
from waiting import wait_until

program, user_job, folder, scratch, stage = sys.argv[1:]


def at(name):
    return os.path.join(folder, name)


def content(name):
    with open(at(name), "rb") as file:
        return file.read()


def imported(*arguments):
    return json.loads(tierctl("import", *arguments, "--json").splitlines()[-1])


def exported(job, name, *flags):
    done = json.loads(tierctl("export", job, "--output", at(name), "--force", "--json", *flags).splitlines()[-1])
    return [TensorFile(path) for path in done["files"]]


def drop(job):
    tierctl("drop", job, "--yes")


def jobs():
    return {job["name"]: job for job in json.loads(tierctl("jobs", "--json"))}


def values(files):
    """What tensors are, wherever they lie: name → dtype, shape, bytes."""
    return {name: (entry["dtype"], entry["shape"], bytes(file.bytes(name))) for file in files
            for name, entry in file.entries.items()}


def write(name, tensors, metadata=None, padding=0):
    """A file, with a header that need not be aligned."""
    header, place = {"__metadata__": metadata} if metadata else {}, 0
    for key, (dtype, shape, data) in tensors.items():
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + len(data)]}
        place += len(data)
    text = json.dumps(header).encode() + b" " * padding
    with open(at(name), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def train():
    Job(program, "trained", os.path.join(scratch, "diary"), 300001, 3).wait()


def job(name, **options):
    """A rank of user_job.c trains it; returns what its state is then."""
    words = [f"{key}={value}" for key, value in {"job": name, "digest": 1, **options}.items()]
    done = subprocess.run([user_job, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return done.stdout


def ranks(name, **options):
    """All of them, at once; what each says."""
    words = [f"{key}={value}" for key, value in {"job": name, "digest": 1, **options}.items()]
    processes = [subprocess.Popen([user_job, *words, f"rank={rank}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
                 for rank in range(options["world_size"])]
    said = [process.communicate()[0] for process in processes]
    assert all(process.returncode == 0 for process in processes), said
    return said


def refused(name, **options):
    words = [f"{key}={value}" for key, value in {"job": name, **options}.items()]
    done = subprocess.run([user_job, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done
    return done.stdout


def an_export_comes_back_bit_for_bit():
    train()
    before = exported("trained", "before")
    done = imported("copy", at("before"))
    assert done["tensors"] == len(before[0].entries) and done["bytes"] == len(before[0].data)
    after = exported("copy", "after")
    assert values(after) == values(before)
    # Tied ones are tied again.
    assert after[0].metadata["head"] == "embed"
    job = jobs()["copy"]
    assert job["step"] == 0 and job["is_durable"] and job["durable_step"] == 0, job
    # Under the same name every byte is the same, those of the header included.
    drop("copy")
    imported("copy", at("after"))
    exported("copy", "again")
    assert content("again") == content("after")


def shards_with_optimizer_come_back_too():
    flags = "--format", "fp32", "--with-optimizer", "--shard-size", "300KB"
    os.mkdir(at("shards"))
    before = exported("trained", "shards", *flags)
    assert len(before) > 2
    imported("whole", at("shards/model.safetensors.index.json"))
    after = exported("whole", "whole.safetensors")
    assert values(after) == values(before) and "embed.exp_avg_sq" in after[0].entries
    drop("whole")
    # A folder is what its index says.
    index = at("shards/model.safetensors.index.json")
    assert json.loads(tierctl("inspect", at("shards"), "--json")) == json.loads(tierctl("inspect", index, "--json"))
    imported("whole", at("shards"))
    assert values(exported("whole", "whole.safetensors")) == values(before)
    drop("whole")
    # Without what is not wanted.
    imported("whole", at("shards"), "--ignore", "*.exp_avg*")
    kept = {name: value for name, value in values(before).items() if ".exp_avg" not in name}
    assert values(exported("whole", "whole.safetensors")) == kept
    drop("whole")


def files_of_any_shape_come_back():
    generator = random.Random(3)
    tensors = {
        "model.layers.10.a": ("F32", [1500, 701], generator.randbytes(4 * 1500 * 701)),
        "model.layers.2.a": ("BF16", [3, 0], b""),
        "model.layers.2.b": ("F16", [], generator.randbytes(2)),
        "model.layers.10.b": ("BF16", [2049, 1025], generator.randbytes(2 * 2049 * 1025)),
        "lm_head.weight": ("F32", [5], generator.randbytes(20)),
        **{dtype: (dtype, [2, 4, 3], generator.randbytes(3 * bits)) for dtype, bits in BITS.items()},
        "a.scalar": ("I64", [], generator.randbytes(8)),
        "nothing": ("I32", [2, 0, 3], b""),
        "deep": ("I16", [1, 1, 1, 1, 1, 1, 2, 3], generator.randbytes(12)),
        "a \"quoted\" \\ näme": ("F64", [], generator.randbytes(8)),
        "x" * 128: ("U8", [1] * 8, b"1"),
    }
    # Elements lie anywhere, also across what is read at a time.
    for padding in range(4):
        write("any", tensors, padding=padding)
        imported("any", at("any"))
        assert values(exported("any", "found")) == tensors
        units = [unit["name"] for unit in json.loads(tierctl("units", "any", "--json"))]
        assert units == ["model.layers.10", "model.layers.2", "lm_head", *BITS, "a", "nothing", "deep", 'a "quoted" \\ näme',
                         "x" * 128], units
        drop("any")
    imported("any", at("any"))
    exported("any", "any.kept")


def a_unit_of_very_many_tensors_is_cut():
    write("many", {f"layer.0.expert.{i}": ("BF16", [1], struct.pack("<H", i)) for i in range(4500)})
    assert imported("many", at("many"))["units"] == 3
    found = values(exported("many", "found"))
    assert all(found[f"layer.0.expert.{i}"][2] == struct.pack("<H", i) for i in range(4500))
    drop("many")


def what_shall_be_trained_has_an_optimizer():
    files = exported("trained", "before")
    tierctl("import", "ready", at("before"), "--optimizer", "adamw")
    after = values(exported("ready", "after", "--with-optimizer"))
    assert {name: value for name, value in after.items() if ".exp_avg" not in name} == values(files)
    # Bytes and integers have none.
    assert "codes.exp_avg" not in after and not any(after["embed.exp_avg"][2])
    drop("ready")
    tierctl("import", "ready", at("after"), "--optimizer", "lion", "--ignore", "*.exp_avg*")
    assert values(exported("ready", "after")) == values(files)
    drop("ready")
    # Masters come back, and parameters are rounded from them as ever.
    masters = exported("trained", "masters", "--format", "fp32")
    tierctl("import", "rounded", at("masters"), "--optimizer", "adamw", "--format", "bf16")
    assert values(exported("rounded", "after", "--format", "fp32")) == values(masters)
    rounded = values(exported("rounded", "after"))
    assert rounded["whole"] == values(files)["whole"] and rounded["half"][0] == rounded["large"][0] == "BF16"
    drop("rounded")
    tierctl("import", "wide", at("before"), "--optimizer", "sgd", "--format", "fp32")
    wide = values(exported("wide", "after"))
    for name, (dtype, shape, data) in values(files).items():
        if dtype in ("BF16", "F16"):
            assert wide[name][:2] == ("F32", shape) and narrowed(wide[name][2], dtype) == data, name
        else:
            assert wide[name] == (dtype, shape, data), name
    drop("wide")
    assert "--optimizer" in tierctl("import", "wide", at("before"), "--format", "fp32", status=2)
    assert "bf16, fp16" in tierctl("import", "wide", at("before"), "--optimizer", "sgd", "--format", "fp8", status=2)
    assert "adamw, adam" in tierctl("import", "ready", at("after"), "--optimizer", "best", status=2)


def what_an_optimizer_kept_comes_back():
    """Everything that training goes on from: masters, moments, and how often they were updated."""
    flags = "--format", "fp32", "--with-optimizer"
    job("origin", steps=3)
    before = exported("origin", "state", *flags)
    done = imported("copied", at("state"), "--optimizer", "adamw")
    assert done["step"] == 3 and jobs()["copied"]["step"] == 3 and jobs()["copied"]["durable_step"] == 3
    exported("copied", "again", *flags)
    assert values([TensorFile(at("again"))]) == values(before)
    assert TensorFile(at("again")).metadata["tierd.step"] == "3"
    # From here on every bit is the same, with trainers that define it as they always did.
    assert job("copied", mode="resume", steps=5) == job("origin", mode="resume", steps=5)
    for name in "origin", "copied":
        drop(name)


def trainers_begin_with_what_was_imported():
    """In a job of their own, which takes the values of a frozen one, or in the job itself: with the same bits."""
    job("origin", steps=3)
    exported("origin", "state")
    imported("frozen", at("state"))
    imported("bare", at("state"), "--optimizer", "adamw")
    taken = job("taken", source="frozen", steps=2)
    assert taken == job("bare", mode="resume", steps=2) != job("anew", steps=2)
    for name in "origin", "frozen", "bare", "taken", "anew":
        drop(name)


def a_job_is_made_with_what_its_trainers_want():
    """They could not join it otherwise; and they train it to the bits of a job that they have made themselves."""
    job("origin", steps=1)
    exported("origin", "state")
    imported("frozen", at("state"))
    wanted = {"world_size": 2, "stage": 2, "parameters": "host", "optimizer": "host", "host_budget": 64 << 20,
              "nvme_budget": 300 << 20, "snapshots": 2, "every": 1, "keep": 1}
    done = imported("wanted", at("state"), "--optimizer", "adamw", "--world-size", "2", "--stage", "2", "--parameters-on",
                    "host", "--optimizer-on", "host", "--host-budget", "64M", "--nvme-budget", "300m", "--snapshots", "2",
                    "--snapshot-every", "1", "--snapshot-keep", "1")
    assert (done["world_size"], done["stage"], done["is_durable"]) == (2, 2, True), done
    assert jobs()["wanted"]["durable_step"] == 0
    assert ranks("wanted", mode="resume", steps=2, **wanted) == ranks("taken", source="frozen", steps=2, **wanted)
    assert list(json.loads(tierctl("snapshots", "wanted", "--json"))) == list(json.loads(tierctl("snapshots", "taken", "--json")))
    for name in "origin", "wanted", "taken":
        drop(name)
    for flags, message in (
        (("--clip", "1.5"), "clip_norm is 0 here, 1.5 in the job"),
        (("--blobs", "1M"), "blob_bytes is 0 here, 1048576 in the job"),
        (("--group", "weight_decay=0.5,beta1=0.8"), "parameter group 0: beta1 is 0.9 here, 0.8 in the job"),
        (("--group", "moments=bf16"), "parameter group 0 has moments in fp32 here, in bf16 in the job"),
        (("--durability", "600"), "durability is default here, 600 in the job"),
        (("--durability", "step"), "durability is default here, step in the job"),
        (("--gradients-on", "nvme"), "gradient placement is default here, nvme in the job"),
        (("--snapshots", "1", "--snapshot-every", "7"), "snapshot_every is 0 here, 7 in the job"),
        (("--parameters-on", "auto"), "parameter placement is nvme here, auto in the job"),
    ):
        imported("other", at("state"), "--optimizer", "adamw", *flags)
        text = refused("other", mode="resume", steps=1)
        assert message in text, (message, text)
        drop("other")
    drop("frozen")


def flags_that_make_no_sense_are_refused():
    for flags, message in (
        (("--clip", "1"), "--clip is of what is trained"),
        (("--optimizer-on", "host"), "--optimizer-on is of what is trained"),
        (("--optimizer", "adamw", "--clip", "nan"), "it takes a norm"),
        (("--optimizer", "adamw", "--group", "beta3=1"), "they are learning_rate, beta1"),
        (("--optimizer", "adamw", "--group", "beta1=0.5,"), "they are learning_rate, beta1"),
        (("--optimizer", "adamw", "--group", "beta1=x"), "they are learning_rate, beta1"),
        (("--optimizer", "adamw", "--group", "moments=int4"), "they are learning_rate, beta1"),
        (("--stage", "4"), "it takes 0, 1, 2 or 3"),
        (("--world-size", "0"), "a number from 1 to 1024"),
        (("--durability", "0"), "seconds from 1 to 86400"),
        (("--host-budget", "much"), "it takes a size"),
        (("--snapshots", "15"), "a number from 0 to 14"),
        (("--optimizer", "adamw", "--gradients-on", "auto"), "it takes host or nvme"),
    ):
        text = tierctl("import", "refused", at("state"), *flags, status=2)
        assert message in text, (message, text)
    for flags, message in (
        (("--stage", "2", "--parameters-on", "nvme"), "only stage 3 partitions parameters"),
        (("--snapshot-every", "5"), "there is room for no snapshot"),
        (("--optimizer", "lion", "--group", "beta1=2"), "parameter group 0"),
        # The last one counts, alone.
        (("--optimizer", "lion", "--group", "beta3=1", "--group", "beta1=2"), "parameter group 0"),
        (("--optimizer", "sgd", "--group", "momentum=0.9", "--group", "nesterov"), "parameter group 0"),
    ):
        text = tierctl("import", "refused", at("state"), *flags, status=1)
        assert message in text, (message, text)
    assert "refused" not in jobs()


def a_momentum_comes_back_where_the_group_has_one():
    tensors = {"a": ("F32", [2], struct.pack("<2f", 1.5, -2)), "a.momentum_buffer": ("F32", [2], struct.pack("<2f", 0.25, 3))}
    write("momentum", tensors, {"tierd.step": "5"})
    text = tierctl("import", "moved", at("momentum"), "--optimizer", "sgd", status=1)
    assert '1 tensor of an optimizer, which the named one does not keep: "a.momentum_buffer"' in text, text
    for moments in "fp32", "bf16", "int8":
        done = imported("moved", at("momentum"), "--optimizer", "sgd", "--group", f"momentum=0.9,nesterov,moments={moments}")
        assert done["step"] == 5
        found = values(exported("moved", "again", "--with-optimizer"))
        # The nearest codes, which lie an eighth of a power of two apart.
        for written, kept in zip((0.25, 3), struct.unpack("<2f", found["a.momentum_buffer"][2]), strict=True):
            assert abs(kept - written) <= (written / 16 if moments == "int8" else 0), (moments, kept)
        assert found["a"] == tensors["a"] and len(found) == len(tensors)
        drop("moved")


def what_ends_with_the_daemon_is_said_to():
    done = imported("passing", at("state"), "--durability", "none")
    assert not done["is_durable"] and not jobs()["passing"]["is_durable"]
    assert "not durable, and ends with the daemon" in tierctl("import", "passing", at("state"), "--durability", "none", "--replace")


def moments_of_every_format_and_of_slices_come_back():
    before = exported("trained", "state", "--with-optimizer")
    imported("state", at("state"), "--optimizer", "adamw")
    assert values(exported("state", "again", "--with-optimizer")) == values(before)
    steps = {name: jobs()[name]["step"] for name in ("state", "trained")}
    assert steps["state"] == steps["trained"] > 0, steps
    drop("state")
    tierctl("import", "state", at("state"), "--optimizer", "adam", "--step", "1000000000000")
    assert jobs()["state"]["step"] == 1000000000000
    drop("state")


def moments_that_are_none_are_refused():
    good = {"a": ("BF16", [2], bytes(4)), "a.exp_avg": ("F32", [2], bytes(8)), "a.exp_avg_sq": ("F32", [2], bytes(8)),
            "b": ("U8", [1], b"1"), "c": ("F16", [0], b"")}
    step = {"tierd.step": "7"}
    write("none", {"a": good["a"], "b": good["b"]}, {})
    for flags in (("--optimizer", "adamw"), ()):
        text = tierctl("import", "refused", at("none"), *flags, "--step", "7", status=1)
        assert "--step says when an optimizer kept what the files have, and nothing of that is imported" in text, text
    for change, metadata, optimizer, message in (
        ({}, {}, "adamw", "after how many steps"),
        ({}, {"tierd.step": "7x"}, "adamw", "no number of a step"),
        ({}, step, "lion", '1 tensor of an optimizer, which the named one does not keep: "a.exp_avg_sq"'),
        ({}, step, "none", "2 tensors of an optimizer, which the named one does not keep"),
        ({"a.momentum_buffer": ("F32", [2], bytes(8))}, step, "sgd", "3 tensors of an optimizer, which the named one does not keep"),
        ({"a.exp_avg": ("F32", [1, 2], bytes(8))}, step, "adamw", "in the shape of a trainable tensor"),
        ({"a.exp_avg": ("BF16", [2], bytes(4))}, step, "adamw", "in the shape of a trainable tensor"),
        ({"b.exp_avg": ("F32", [1], bytes(4))}, step, "adamw", "in the shape of a trainable tensor"),
        ({"d": ("F32", [0], b""), "d.exp_avg": ("F32", [0], b"")}, step, "adamw",
         'without all that the optimizer keeps cannot be trained on: "d"'),
    ):
        write("moments", {**good, **change}, metadata)
        text = tierctl("import", "refused", at("moments"), "--optimizer", optimizer, status=1)
        assert message in text, (message, text)
        assert "refused" not in jobs()
    write("moments", {**good, "a.m": good["a.exp_avg"]}, step)
    text = tierctl("import", "refused", at("moments"), "--optimizer", "adamw", status=1)
    assert "1 tensor of what the optimizer keeps of a tensor, which is there under its other name, too" in text, text
    # Under tierd's own names, too.
    moments = {"a.exp_avg": ("F32", [2], b"12345678"), "a.exp_avg_sq": ("F32", [2], b"abcdefgh")}
    write("moments", {"a": good["a"], "a.m": moments["a.exp_avg"], "a.v": moments["a.exp_avg_sq"]}, step)
    imported("moments", at("moments"), "--optimizer", "adamw")
    assert values(exported("moments", "again", "--with-optimizer")) == {"a": good["a"], **moments}
    for names, value in (("m", "exp_avg"), b"12345678"), (("v", "exp_avg_sq"), b"abcdefgh"):
        for name in names:
            tierctl("read", "moments", "a", "--state", name, "--output", at("values"))
            assert content("values") == value, name
    assert 'no state "momentum_buffer" with adamw; there are: parameter, master, m, v' in tierctl(
        "read", "moments", "a", "--state", "momentum_buffer", status=1)
    drop("moments")
    write("moments", good, step)
    assert imported("moments", at("moments"), "--optimizer", "adamw")["step"] == 7
    # What it has left alone is frozen, and stays what it is.
    assert set(values(exported("moments", "again", "--format", "fp32", "--with-optimizer"))) == set(good)
    units = json.loads(tierctl("units", "moments", "--json"))
    assert [unit["name"] for unit in units if unit["is_frozen"]] == ["b", "c"], units
    drop("moments")
    # A single number has a shape of no dimensions.
    write("single", {f"a{suffix}": ("F32", [], bytes(4)) for suffix in ("", ".exp_avg", ".exp_avg_sq")}, step)
    assert imported("moments", at("single"), "--optimizer", "adamw")["step"] == 7
    drop("moments")


def what_cannot_be_imported_leaves_no_job():
    before = set(jobs())
    write("long", {"n" * 129: ("U8", [1], b"1"), "good": ("U8", [1], b"1"), "": ("U8", [1], b"1")})
    write("deep", {"deep": ("U8", [1] * 9, b"1")})
    write("none", {})
    write("torn", {"torn": ("F32", [2], bytes(7))})
    os.mkdir(at("empty"))
    os.mkdir(at("both"))
    for name in "both/a.safetensors", "both/b.safetensors":
        write(name, {"a": ("U8", [1], b"1")})
    for name, message in (
        ("long", "2 tensors cannot be named so in a job, where names have 1 to 128 bytes"),
        ("deep", "of more than 8 dimensions"),
        ("none", "no tensors to import"),
        ("torn", "8 bytes by its shape"),
        ("nowhere", "No such file"),
        ("empty", "has no file of tensors"),
        ("both", "has 2 files; name the one that is meant"),
    ):
        text = tierctl("import", "refused", at(name), status=1)
        assert message in text and at(name) in text or name in ("long", "deep", "none"), text
    write("good", {"a": ("U8", [1], b"1")})
    assert "no tensors to import" in tierctl("import", "refused", at("good"), "--ignore", "*", status=1)
    text = tierctl("import", "copy", at("good"), status=1)
    assert "job copy exists" in text and "another name" in text and "--replace" in text and "tierctl drop copy" in text, text
    assert "name" in tierctl("import", "A B", at("good"), status=1)
    assert set(jobs()) == before


def hostile_files_leave_no_job():
    """Those of the fuzzer's corpus: a byte, two of how much data there is, and a header."""
    before = set(jobs())
    corpus = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../fuzz/corpus/safetensors")
    paths = sorted(glob.glob(os.path.join(corpus, "header*")))
    assert len(paths) > 5
    refused = 0
    for path in paths:
        with open(path, "rb") as file:
            seed = file.read()
        with open(at("hostile"), "wb") as file:
            file.write(struct.pack("<Q", len(seed) - 3) + seed[3:] + bytes(seed[1] + 256 * seed[2]))
        done = subprocess.run([TIERCTL, "import", "hostile", at("hostile")], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1) and (at("hostile") in done.stderr or done.returncode == 0), done
        refused += done.returncode
        if done.returncode == 0:
            drop("hostile")
        assert set(jobs()) == before
    assert refused > 3


def large(name, layers=6, mib=8):
    """Of which nothing takes room on the disk."""
    size = mib << 20
    text = json.dumps({f"layer.{i}.weight": {"dtype": "F32", "shape": [size // 4], "data_offsets": [i * size, (i + 1) * size]}
                       for i in range(layers)}).encode()
    with open(at(name), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + layers * size)


def stuck_import(name):
    return Stuck("import", "stuck", at(name), has_begun=lambda: jobs().get("stuck", {}).get("status") == "filling")


def await_end(name):
    wait_until(lambda: name not in jobs())


def an_importer_that_ends_leaves_no_job():
    large("large")
    for number in signal.SIGKILL, signal.SIGINT, signal.SIGTERM:
        stuck = stuck_import("large")
        stuck.end(number)
        await_end("stuck")
    # And is in nobody's way.
    imported("stuck", at("large"))
    drop("stuck")


def an_old_job_gives_way_to_a_complete_one():
    imported("stuck", at("before"))
    old = values(exported("stuck", "old"))
    stuck = Stuck("import", "stuck", at("large"), "--replace",
                  has_begun=lambda: jobs().get("stuck", {}).get("status") == "filling")
    stuck.end(signal.SIGKILL)
    # It comes back when the new one, which will never be one, has gone.
    while jobs().get("stuck", {}).get("status") in (None, "filling"):
        pass
    assert values(exported("stuck", "old")) == old
    imported("stuck", at("large"), "--replace")
    assert set(values(exported("stuck", "new"))) == {f"layer.{i}.weight" for i in range(6)}
    drop("stuck")


def a_file_that_shrinks_meanwhile_is_noticed():
    stuck = stuck_import("large")
    os.truncate(at("large"), 30 << 20)
    status, _, message = stuck.go_on()
    assert status == 1 and "shorter than its header says" in message and at("large") in message, (status, message)
    await_end("stuck")


def a_terminal_shows_how_far_it_is():
    terminal, its_end = os.openpty()
    subprocess.run([TIERCTL, "import", "shown", at("before")], stdout=subprocess.PIPE, stderr=its_end, check=True)
    os.close(its_end)
    assert b" %, " in os.read(terminal, 4096)
    os.close(terminal)
    drop("shown")


def what_was_imported_outlives_the_daemon():
    exported("copy", "again")
    assert content("again") == content("after.kept")
    exported("any", "again")
    assert content("again") == content("any.kept")


def what_does_not_fit_is_refused_before_anything_is_written():
    for layers, mib, message in (200, 8, "are left there"), (1, 512, "of host memory"):
        large("huge", layers, mib)
        text = tierctl("import", "huge", at("huge"), status=1)
        assert "job huge: it needs" in text and message in text, text
        await_end("huge")


def what_was_not_durable_is_gone():
    assert "passing" not in jobs()


def keep():
    os.rename(at("again"), at("after.kept"))


STAGES = {
    "trips": (
        an_export_comes_back_bit_for_bit,
        keep,
        shards_with_optimizer_come_back_too,
        files_of_any_shape_come_back,
        a_unit_of_very_many_tensors_is_cut,
        what_shall_be_trained_has_an_optimizer,
        what_an_optimizer_kept_comes_back,
        trainers_begin_with_what_was_imported,
        a_job_is_made_with_what_its_trainers_want,
        flags_that_make_no_sense_are_refused,
        a_momentum_comes_back_where_the_group_has_one,
        what_ends_with_the_daemon_is_said_to,
        moments_of_every_format_and_of_slices_come_back,
        moments_that_are_none_are_refused,
        what_cannot_be_imported_leaves_no_job,
        hostile_files_leave_no_job,
        an_importer_that_ends_leaves_no_job,
        an_old_job_gives_way_to_a_complete_one,
        a_file_that_shrinks_meanwhile_is_noticed,
        what_does_not_fit_is_refused_before_anything_is_written,
        a_terminal_shows_how_far_it_is,
    ),
    "after": (what_was_imported_outlives_the_daemon, what_was_not_durable_is_gone),
}
for test in STAGES[stage]:
    print(test.__name__, flush=True)
    test()
