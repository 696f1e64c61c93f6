#!/usr/bin/env python3
"""tierctl export beside a rank that writes down what its state was (exported.c): export.py PROGRAM FOLDER SCRATCH WHAT

FOLDER is on a disk that has O_DIRECT. WHAT: wide; narrow, kept, before_a_kill, after_a_kill: the daemon has no room in memory for
what an export would keep.
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys

from programs import TIERCTL, Job, tierctl
from stuck import Stuck
from tensor_file import TensorFile, crc, narrowed
from waiting import wait_until

program, folder, scratch = sys.argv[1:4]
TRAINABLE = ["embed", "half", "full", "scale", "none", "odd", "large"]
SLICES = [("first", 0), ("middle", 100), ("last", 200)]
SLICE_BYTES = 100 * 64
FROZEN = {"ice": "BF16", "frost": "F16", "codes": "U8"}
DTYPES = {"half": "F16", "full": "F32", "scale": "F32", "large": "F32"}
SHAPES = {"embed": [701, 431], "full": [33, 7], "scale": [], "none": [0, 5], "whole": [300, 64]}
SLOTS = {"exp_avg": "m", "exp_avg_sq": "v"}


def diary(job):
    return os.path.join(scratch, job + ".diary")


def sums_of(job):
    with open(diary(job), encoding="utf-8") as lines:
        return {tuple(line.split()[:3]): line.split()[3] for line in lines if line.endswith("\n")}


def steps_of(job):
    """The last that is written down in full, or in part."""
    return max(int(step) for step, _, _ in sums_of(job))


def begin(name, large, *wrong):
    """A rank that trains until it is stopped."""
    return Job(program, name, diary(name), large, 1000000, *wrong)


def at(name):
    return os.path.join(folder, name)


def export(*arguments, status=0, within=(), **options):
    done = subprocess.run(
        [*within, TIERCTL, "export", *arguments], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


def exported(*arguments):
    """What was done, by its last line."""
    return json.loads(export(*arguments, "--json").splitlines()[-1])


def check(files, sums, step, state="parameter", slots=()):
    """The files have what the job had at that step, and nothing else."""
    tensors = {name: file for file in files for name in file.entries}
    names = {*TRAINABLE, "whole"}
    expected = names | set(FROZEN) | {f"{name}.{slot}" for name in names for slot in slots}
    assert set(tensors) == expected, set(tensors) ^ expected

    def compare(exported_name, kind, name, dtype, begin=0, end=None):
        file = tensors[exported_name]
        assert file.entries[exported_name]["dtype"] == dtype, exported_name
        data = file.bytes(exported_name)[begin:end]
        assert crc(data) == sums[str(step), kind, name], f"{kind} of {exported_name}, step {step}"

    for suffix, kind in [("", state)] + [("." + slot, SLOTS[slot]) for slot in slots]:
        is_wide = kind != "parameter"
        for name in TRAINABLE:
            compare(name + suffix, kind, name, "F32" if is_wide else DTYPES.get(name, "BF16"))
            if name in SHAPES:
                assert tensors[name + suffix].entries[name + suffix]["shape"] == SHAPES[name]
        size = SLICE_BYTES * (4 if is_wide else 2)
        for name, row in SLICES:
            begin = row // 100 * size
            compare("whole" + suffix, kind, name, "F32" if is_wide else "BF16", begin, begin + size)
        assert tensors["whole" + suffix].entries["whole" + suffix]["shape"] == SHAPES["whole"]
    for name, dtype in FROZEN.items():
        if state == "parameter" or dtype == "U8":
            compare(name, "parameter", name, dtype)
        else:
            data = narrowed(tensors[name].bytes(name), dtype)
            assert crc(data) == sums[str(step), "parameter", name], name
    for file in files:
        assert file.metadata["format"] == "pt" and file.metadata["tierd.step"] == str(step)
        assert file.metadata.get("head", "embed") == "embed"
    assert sum("head" in file.metadata for file in files) == 1


def shards(done):
    with open(done["index"], encoding="utf-8") as file:
        index = json.load(file)
    files = {os.path.basename(path): TensorFile(path) for path in done["files"]}
    for name, place in index["weight_map"].items():
        assert name in files[place].entries
    assert sum(len(file.entries) for file in files.values()) == len(index["weight_map"])
    assert sum(len(file.data) for file in files.values()) == index["metadata"]["total_size"]
    return list(files.values())


def each_export_of_a_trained_job_is_of_one_step():
    job = begin("trained", 1200001)
    done = []
    for number in range(3):
        plain = at(f"plain-{number}.safetensors")
        done.append((exported("trained", "--output", plain), "parameter", ()))
        wide = at(f"wide-{number}.safetensors")
        flags = "--format", "fp32", "--with-optimizer", "--shard-size", "5MB"
        done.append((exported("trained", *flags, "--output", wide), "master", tuple(SLOTS)))
    job.stop()
    sums = sums_of("trained")
    for result, state, slots in done:
        is_sharded = "index" in result
        assert is_sharded == bool(slots)
        files = shards(result) if is_sharded else [TensorFile(path) for path in result["files"]]
        check(files, sums, result["step"], state, slots)
        assert result["tensors"] == sum(len(file.entries) for file in files)
        # A file has one tensor that is larger, or no more than was asked for.
        assert not is_sharded or all(len(file.data) <= 5e6 or len(file.entries) == 1 for file in files)


def an_idle_job_is_exported_without_keeping_it():
    result = exported("trained", "--output", folder, "--with-optimizer")
    assert result["files"] == [at("model.safetensors")]
    known = sums_of("trained")
    check([TensorFile(result["files"][0])], known, result["step"], slots=tuple(SLOTS))
    # Where nothing else is said.
    export("trained", cwd=folder)
    check([TensorFile(at("trained.safetensors"))], known, result["step"])
    listed = subprocess.run([TIERCTL, "inspect", "--json", at("trained.safetensors")], capture_output=True, check=True)
    assert len(json.loads(listed.stdout)["tensors"]) == len(TensorFile(at("trained.safetensors")).entries)


def a_terminal_shows_how_far_it_is():
    terminal, its_end = os.openpty()
    subprocess.run([TIERCTL, "export", "trained", "-o", at("shown")], stdout=subprocess.PIPE, stderr=its_end, check=True)
    os.close(its_end)
    assert b" %, " in os.read(terminal, 4096)
    os.close(terminal)
    done = subprocess.run([TIERCTL, "export", "trained", "-oshown"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "unknown flag -oshown" in done.stderr


def wrong_words_are_refused():
    assert "has no snapshot best" in export("trained@best", status=1)
    assert "no job nobody" in export("nobody", status=1)
    for size in "5X", "-1", "0", "5GBB", "99999999999999999999", "99999999T", "":
        export("trained", f"--shard-size={size}", status=2)
    assert "parameter or fp32" in export("trained", "--format", "bf16", status=2)


def jobs_that_make_no_file_are_refused():
    for wrong, message in (
        ("missing", '"whole" has 400 rows, and no tensor of the job has those from 300 on'),
        ("twice", 'tensor "last" of the job has rows of "whole" that another one has, too'),
        ("unlike", 'tensors "first" and "middle" of the job are both (of) "whole", and not alike'),
        ("whole", "are both (of) "),
        ("alias", 'two metadata have the name "format"'),
        ("name", "no tensor can have the name __metadata__"),
    ):
        begin("wrong", 100, wrong).stop()
        text = export("wrong", "-o", at("wrong"), status=1)
        assert message in text, text
        assert not os.path.exists(at("wrong")) and not partials()
        tierctl("drop", "wrong", "--yes")


def content(path):
    with open(path, "rb") as file:
        return file.read()


def partials():
    return [name for name in os.listdir(folder) if name.endswith(".partial")]


def what_is_there_is_replaced_only_by_force():
    path = at("there.safetensors")
    with open(path, "w", encoding="utf-8") as file:
        file.write("mine")
    assert "exists" in export("trained", "--output", path, status=1)
    assert content(path) == b"mine" and not partials()
    export("trained", "--output", path, "--force")
    assert content(path) == content(at("trained.safetensors"))
    # Of several files, each.
    shard = at("cut-00002-of-00002.safetensors")
    with open(shard, "w", encoding="utf-8") as file:
        file.write("mine")
    flags = "--shard-size", "5MB", "--output", at("cut.safetensors")
    assert "cut-00002-of-00002.safetensors exists" in export("trained", *flags, status=1)
    assert not os.path.exists(at("cut-00001-of-00002.safetensors"))
    shards(exported("trained", *flags, "--force"))
    shards(exported("trained", *flags, "--force"))
    assert "exists" in export("trained", *flags, status=1)


def a_file_is_where_a_link_leads_to():
    for target in ("led.safetensors", at("led.safetensors")):
        os.symlink(target, at("link"))
        export("trained", "--output", at("link"))
        assert "link exists" in export("trained", "--output", at("link"), status=1)
        export("trained", "--output", at("link"), "--force")
        assert os.readlink(at("link")) == target and not partials()
        assert content(at("led.safetensors")) == content(at("trained.safetensors"))
        os.remove(at("link"))
        os.remove(at("led.safetensors"))
    os.mkfifo(at("pipe"))
    assert "pipe is no regular file; name another" in export("trained", "--output", at("pipe"), "--force", status=1)
    assert "goes to files, and not to the standard output" in export("trained", "--output", "-", status=2)


def beginning_with(name):
    return sorted(one for one in os.listdir(folder) if one.startswith(name))


def force_leaves_nothing_of_an_earlier_export():
    """More shards, fewer, one file: what is there is always one export, whole."""
    output = "--output", at("again.safetensors"), "--force"
    many = exported("trained", "--shard-size", "500KB", *output)
    assert len(many["files"]) > 2, many
    assert beginning_with("again") == sorted(map(os.path.basename, many["files"] + [many["index"]]))
    # What is not named as its shards are is nobody's to remove, whatever an index says.
    with open(many["index"], encoding="utf-8") as file:
        index = json.load(file)
    others = "again-mine.safetensors", "other-00001-of-00009.safetensors"
    for name in others:
        index["weight_map"][name] = name
        with open(at(name), "w", encoding="utf-8") as file:
            file.write("mine")
    with open(many["index"], "w", encoding="utf-8") as file:
        json.dump(index, file)
    few = exported("trained", "--shard-size", "5MB", *output)
    assert 1 < len(few["files"]) < len(many["files"]), few
    assert beginning_with("again") == sorted(["again-mine.safetensors", *map(os.path.basename, few["files"] + [few["index"]])])
    assert all(content(at(name)) == b"mine" for name in others)
    os.unlink(at("again-mine.safetensors"))
    shards(few)
    exported("trained", *output)
    assert beginning_with("again") == ["again.safetensors"]
    shards(exported("trained", "--shard-size", "5MB", *output))
    assert beginning_with("again") == sorted(map(os.path.basename, few["files"] + [few["index"]]))


def places_that_cannot_be_written_are_named():
    os.mkdir(at("closed"), 0o555)
    within = ("setpriv", "--bounding-set", "-dac_override") if os.geteuid() == 0 else ()
    path = at("closed/model.safetensors")
    # Root may write there, unless it can give that right away.
    if not within or subprocess.run([*within, "true"], capture_output=True, check=False).returncode == 0:
        text = export("trained", "--output", path, status=1, within=within)
        assert path in text and "Permission denied" in text, text
    else:
        print("root cannot give rights away here: no folder that it may not write to")
    assert "No such file" in export("trained", "--output", at("nowhere/model"), status=1)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    text = export("trained", "--output", at("limited"), status=1, preexec_fn=limit)
    assert "File too large" in text and "--shard-size" in text, text
    assert not partials() and not os.path.exists(at("limited"))


def a_full_disk_is_found_before_anything_is_written():
    disk = at("disk")
    os.mkdir(disk)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk]
    can_mount = os.geteuid() == 0 and shutil.which("mount")
    if not can_mount or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        print("a disk of its own cannot be mounted here: no full one")
        return
    try:
        text = export("trained", "--output", disk, status=1)
        assert "make room" in text and "1.00 MiB" in text, text
        assert not os.listdir(disk)
    finally:
        subprocess.run(["umount", disk], check=True)


def stuck_export(path, *flags, may_end=False):
    return Stuck("export", "trained", "--output", path, *flags, may_end=may_end,
                 has_begun=lambda: os.path.exists(path + ".partial"))


def what_comes_meanwhile_stays():
    path = at("meanwhile")
    stuck = stuck_export(path)
    with open(path, "w", encoding="utf-8") as file:
        file.write("mine")
    status, _, message = stuck.go_on()
    assert status == 1 and "File exists" in message, (status, message)
    assert content(path) == b"mine" and not partials()


def an_idle_job_that_somebody_trains_is_exported_as_a_trained_one():
    stuck = stuck_export(at("overtaken"))
    before = steps_of("trained")
    job = begin("trained", 1200001)
    status, last, message = stuck.go_on()
    assert status == 0, message
    job.stop()
    step = json.loads(last)["step"]
    assert step > before
    check([TensorFile(at("overtaken"))], sums_of("trained"), step)


LARGE = 6000001
ALL = "--format", "fp32", "--with-optimizer"


def goes_on(job, steps=2):
    before = steps_of("trained")
    wait_until(lambda: steps_of("trained") >= before + steps or job.process.poll() is not None)
    assert job.process.poll() is None


def is_all_of_one_step(path, step):
    check([TensorFile(path)], sums_of("trained"), step, "master", tuple(SLOTS))


def without_room_to_keep_it_a_trained_job_is_not_exported():
    job = begin("trained", LARGE)
    # The step may have been too short for it to get stuck.
    stuck = stuck_export(at("unkept"), *ALL, may_end=True)
    goes_on(job)
    is_refused(stuck, "job trained has no room for snapshots; make some (tierctl reserve)")
    assert not os.listdir(folder)
    job.stop()
    # While nobody trains it there is no need to.
    done = exported("trained", *ALL, "--output", at("idle"))
    is_all_of_one_step(at("idle"), done["step"])


def is_refused(stuck, *reasons):
    """It was neither kept on the devices, for these reasons, nor in memory."""
    status, _, message = stuck.go_on()
    assert status == 1, message
    for reason in "has moved on from step", "could not be kept", "tierctl reserve", *reasons:
        assert reason in message, message


# ---- Kept where it lies ----


def kept():
    """The steps that the job keeps for readers."""
    return sorted(one["step"] for one in json.loads(tierctl("snapshots", "trained", "--json"))["readers"])


def has_all_its_room():
    wait_until(lambda: not kept())
    tierctl("snapshot", "trained", "probe")
    assert "until it ends" not in tierctl("snapshots", "trained")
    tierctl("snapshot", "trained", "probe", "--delete")


def a_trained_job_keeps_what_is_exported():
    job = begin("trained", LARGE)
    tierctl("reserve", "trained", "1")
    stuck = stuck_export(at("kept"), *ALL)
    (step,) = kept()
    assert f"(a reader of user {os.getuid()})" in tierctl("snapshots", "trained")
    goes_on(job)
    assert kept() == [step]
    # It takes the room of a snapshot meanwhile; the job is refused nothing.
    refusal = tierctl("snapshot", "trained", "mine", status=1)
    assert "is used" in refusal and "wait for the end of 1 reader" in refusal and "none" not in refusal, refusal
    another = stuck_export(at("unkept"), *ALL, may_end=True)
    goes_on(job)
    is_refused(another, "the room of job trained for 1 snapshot is used", "wait for the end of 1 reader")
    status, last, message = stuck.go_on()
    assert status == 0 and json.loads(last)["step"] == step, message
    has_all_its_room()
    job.stop()
    is_all_of_one_step(at("kept"), step)
    assert sorted(os.listdir(folder)) == ["kept"]


def two_exports_at_once_have_each_their_step():
    job = begin("trained", LARGE)
    tierctl("reserve", "trained", "2")
    exports = []
    for name in "one", "two":
        exports.append((at(name), stuck_export(at(name), *ALL)))
        goes_on(job)
    steps = kept()
    assert len(set(steps)) == 2, steps
    for (path, stuck), step in zip(exports, steps):
        status, last, message = stuck.go_on()
        assert status == 0 and json.loads(last)["step"] == step, message
    has_all_its_room()
    job.stop()
    for (path, _), step in zip(exports, steps):
        is_all_of_one_step(path, step)


def an_export_that_ends_leaves_nothing_kept():
    job = begin("trained", LARGE)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL:
        stuck = stuck_export(at("ended"), *ALL)
        assert len(kept()) == 1
        stuck.end(number)
        has_all_its_room()
    os.remove(at("ended.partial"))
    goes_on(job)
    job.stop()


def an_idle_job_that_somebody_trains_is_kept_then():
    stuck = stuck_export(at("late"), *ALL)
    assert not kept()
    job = begin("trained", LARGE)
    goes_on(job)
    status, last, message = stuck.go_on()
    assert status == 0, message
    has_all_its_room()
    job.stop()
    is_all_of_one_step(at("late"), json.loads(last)["step"])


def a_rollback_ends_an_export():
    job = begin("trained", LARGE)
    tierctl("snapshot", "trained", "back")
    stuck = stuck_export(at("void"), *ALL)
    assert len(kept()) == 1
    tierctl("rollback", "trained", "back", "--yes", "--force")
    status, _, message = stuck.go_on()
    # Until it is done, or since.
    assert status == 1 and "try again" in message, message
    assert "it is opened again" in message or "it is being rolled back" in message, message
    assert not os.path.exists(at("void")) and not partials()
    job.process.communicate()
    tierctl("snapshot", "trained", "back", "--delete")
    has_all_its_room()


def a_daemon_is_killed_under_an_export():
    job = begin("trained", LARGE)
    tierctl("reserve", "trained", "1")
    stuck = stuck_export(at("cut"), *ALL)
    assert len(kept()) == 1
    goes_on(job)
    os.kill(int(os.environ["TIERD_PID"]), signal.SIGKILL)
    status, _, message = stuck.go_on()
    assert status == 1 and json.loads(message)["error"] == "failed", (status, message)
    assert not os.path.exists(at("cut")) and not partials()
    job.process.communicate()


def nothing_is_left_of_it():
    listed = json.loads(tierctl("snapshots", "trained", "--json"))
    assert listed["maximum"] == 1 and not listed["snapshots"] and not listed["readers"], listed
    has_all_its_room()
    job = begin("trained", LARGE)
    done = exported("trained", *ALL, "--output", at("again"))
    job.stop()
    is_all_of_one_step(at("again"), done["step"])


def signals_leave_nothing_behind():
    path = at("interrupted")
    # Under nohup an export ignores it, too.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        stuck = stuck_export(path)
        stuck.end(number)
        assert not os.path.exists(path) and not partials()


def what_a_killed_one_left_is_in_nobodys_way():
    path = at("killed")
    stuck = stuck_export(path)
    assert "by another process" in export("trained", "--output", path, status=1)
    assert partials() == ["killed.partial"]
    stuck.end(signal.SIGKILL)
    assert partials() == ["killed.partial"] and not os.path.exists(path)
    export("trained", "--output", path)
    assert content(path) == content(at("trained.safetensors")) and not partials()


TESTS = {
    "wide": (
        each_export_of_a_trained_job_is_of_one_step,
        an_idle_job_is_exported_without_keeping_it,
        a_terminal_shows_how_far_it_is,
        wrong_words_are_refused,
        jobs_that_make_no_file_are_refused,
        what_is_there_is_replaced_only_by_force,
        a_file_is_where_a_link_leads_to,
        force_leaves_nothing_of_an_earlier_export,
        places_that_cannot_be_written_are_named,
        a_full_disk_is_found_before_anything_is_written,
        what_comes_meanwhile_stays,
        signals_leave_nothing_behind,
        what_a_killed_one_left_is_in_nobodys_way,
        an_idle_job_that_somebody_trains_is_exported_as_a_trained_one,
    ),
    "narrow": (without_room_to_keep_it_a_trained_job_is_not_exported,),
    "kept": (
        a_trained_job_keeps_what_is_exported,
        two_exports_at_once_have_each_their_step,
        an_export_that_ends_leaves_nothing_kept,
        an_idle_job_that_somebody_trains_is_kept_then,
        a_rollback_ends_an_export,
    ),
    "before_a_kill": (a_daemon_is_killed_under_an_export,),
    "after_a_kill": (nothing_is_left_of_it,),
}
for test in TESTS[sys.argv[4]]:
    print(test.__name__, flush=True)
    test()
