#!/usr/bin/env python3
"""Bytes that are spoilt in the store of a job (exported.c), and what tierctl verify says of them:
verify.py PROGRAM SCRATCH STAGE, with the NVMe path in $NVME, and the daemon's log in $TIERD_LOG."""
import glob
import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "store"))
import read_store
from programs import TIERCTL, Job
from waiting import wait_until

program, scratch, stage = sys.argv[1:4]
LARGE = 1500000


def begin(name, steps=1000000):
    """A rank that trains until it is stopped, or so many steps."""
    return Job(program, name, os.path.join(scratch, name + ".diary"), LARGE, steps)


def tierctl(*arguments, status=0, text=True):
    done = subprocess.run([TIERCTL, *arguments], capture_output=True, text=text, check=False)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def verify(job, status=0):
    """What was found, and the account of it."""
    lines = [json.loads(line) for line in tierctl("--json", "verify", job, status=status).stdout.splitlines()]
    assert lines[-1]["event"] == "done", lines
    found = [line for line in lines if line["event"] == "damaged"]
    assert lines[-1]["damaged_blocks"] == len(found)
    return found, lines[-1]


def store_of(job):
    job = job.split("@")[0]
    (path,) = glob.glob(os.path.join(os.environ["NVME"], "tierd", "*", job + "-*.store"))
    return path


def places_of(job, tensor, state):
    """Where the store's file has these values, of any commit."""
    values = tierctl("read", job, tensor, "--state", state, text=False).stdout[-4096:]
    assert any(values), "zeros are nowhere"
    content = open(store_of(job), "rb").read()
    places, at = [], content.find(values)
    while at >= 0:
        places.append(at)
        at = content.find(values, at + 1)
    assert places, (tensor, state)
    return places


def known(job):
    """Blocks that the daemon knows to be damaged, whoever has found them."""
    of_job = json.loads(tierctl("--json", "jobs", job).stdout)["damaged_blocks"]
    (of_scrub,) = json.loads(tierctl("--json", "scrub", job).stdout)["jobs"]
    assert of_scrub["damaged_blocks"] == of_job, (of_scrub, of_job)
    return of_job


class Spoilt:
    """A byte is another one, for a while."""

    def __init__(self, job, places):
        self.path, self.places = store_of(job), places

    def flip(self):
        with open(self.path, "r+b") as file:
            for place in self.places:
                file.seek(place)
                byte = file.read(1)[0]
                file.seek(place)
                file.write(bytes([byte ^ 0x10]))
            os.fsync(file.fileno())

    def __enter__(self):
        self.flip()
        return self

    def __exit__(self, *_):
        self.flip()


def expect_found(job, tensor, state):
    """Nothing but that is damaged, and it is named."""
    with Spoilt(job, places_of(job, tensor, state)) as spoilt:
        found, account = verify(job, status=1)
        assert account["bytes"] > 12 * LARGE, account
        assert len(found) == 1, found
        (block,) = found
        assert f'"{tensor}"' in block["tensors"], block
        assert block["state"] == ("remainder" if state == "master" else state), block
        assert block["device"] == spoilt.path, block
        assert block["error"] == "its checksum does not match", block
        begin = block["device_offset"]
        assert any(begin <= place < begin + block["bytes"] for place in spoilt.places), (block, spoilt.places)
        if tensor == "large":
            assert block["tensors"] == '"large"' and block["unit"] == "large", block
        text = tierctl("verify", job, status=1)
        for word in (job, f'unit "{block["unit"]}"', f'"{tensor}"', spoilt.path, str(begin)):
            assert word in text.stdout, (word, text.stdout)
        assert "1 block of job" in text.stderr, text.stderr
        assert known(job) == 1
    assert known(job) == 1, "nobody has read it since"
    assert verify(job)[0] == []
    assert known(job) == 0


def expect_read_fails(job, tensor, state):
    """Whoever reads it hears the same."""
    with Spoilt(job, places_of(job, tensor, state)) as spoilt:
        said = tierctl("read", job, tensor, "--state", state, status=1).stderr
        for word in (f"job {job}: ", f'"{tensor}"', f"{state} of tensor", spoilt.path, "byte", "checksum",
                     f"tierctl verify {job}", "go back to a snapshot"):
            assert said.count(word) == 1, (word, said)


def idle():
    begin("idle", steps=2).wait()
    assert verify("idle")[0] == []
    for tensor, state in ("embed", "parameter"), ("half", "m"), ("codes", "parameter"), ("large", "parameter"):
        expect_found("idle", tensor, state)
    with open(os.environ["TIERD_LOG"], encoding="utf-8") as log:
        lines = [line for line in log if "as verify has found" in line and store_of("idle") in line]
    assert 'unit "embed", parameter of tensor "embed"' in lines[0], lines
    assert 'unit "layer", m of tensor "half"' in lines[2], lines
    expect_read_fails("idle", "half", "v")
    # Its gradients repeat themselves, and so do its moments.
    with Spoilt("idle", places_of("idle", "large", "m")):
        found = verify("idle", status=1)[0]
        assert len({block["device_offset"] for block in found}) == len(found) > 4, found
        assert {(block["unit"], block["state"]) for block in found} <= {("large", "m"), ("layer", "m")}, found
        assert known("idle") == len(found)
        verify("idle", status=1)
        assert known("idle") == len(found), "found twice, it is there once"


def trained():
    """It is trained on, whatever somebody verifies; what it rewrites meanwhile is never taken for damage."""
    job = begin("trained")
    for _ in range(5):
        assert verify("trained")[0] == []
    expect_found("trained", "codes", "parameter")
    assert job.is_trained()
    several = [subprocess.Popen([TIERCTL, "verify", "trained"], stdout=subprocess.DEVNULL) for _ in range(9)]
    for number, one in enumerate(several):
        if number % 2:
            one.send_signal((signal.SIGINT, signal.SIGKILL)[number // 2 % 2])
    for number, one in enumerate(several):
        assert one.wait() == 0 or number % 2
    job.stop()
    assert verify("trained")[0] == []


def heads_of(job):
    """Places in the file of the roots of the maps: of the job, and of its snapshots."""
    with open(store_of(job), "rb") as file:
        heads = list(read_store.Store([file]).heads())
    return {head["name"] if head["kind"] == "snapshot" else "": [(1 << 20) + 4096 * place for place in root[:2]]
            for head, root in heads}


def expect_node(found, places, **keys):
    assert {block["device_offset"] for block in found} == set(places), (found, places)
    for block in found:
        assert block["state"].startswith("map, node 0 of level ") and block["bytes"] == 4096, block
        for key, value in keys.items():
            assert block[key] == value, (key, block)


def expect_mended(job):
    """One copy of a node: it is told, and good again."""
    heads = heads_of(job)
    for name, places in heads.items():
        whose = [other for other in heads if heads[other] == places]
        for copy, place in enumerate(places):
            spoilt = Spoilt(job, [place + 99])
            before = open(store_of(job), "rb").read()
            spoilt.flip()
            lines = [json.loads(line) for line in tierctl("--json", "verify", job).stdout.splitlines()]
            assert lines[-1]["mended"] == 1 and lines[-1]["damaged_blocks"] == 0, lines
            found = [line for line in lines if line["event"] == "mended"]
            expect_node(found, [place], copy=copy + 1, is_of_job="" in whose, snapshots=", ".join(filter(None, whose)))
            assert open(store_of(job), "rb").read() == before
    spoilt = Spoilt(job, [heads_of(job)["first"][1] + 99])
    spoilt.flip()
    assert pass_over(job) == 0, "what was mended is no damage"
    spoilt.flip()
    said = tierctl("verify", job).stdout
    assert "its map, node 0 of level" in said and "copy 2, of snapshot first: 4096 bytes" in said, said
    assert "written again from its other copy" in said and "all of it as it was written, or is again" in said, said


def expect_superblock(job):
    """Told, until two commits have written them."""
    Spoilt(job, [524288 + 99]).flip()
    found = verify(job, status=1)[0]
    assert [(block["state"], block["copy"], block["device_offset"]) for block in found] == [("superblock", 3, 524288)], found
    assert known(job) == 1
    begin(job, steps=2).wait()
    assert verify(job)[0] == []


def kept():
    """What only snapshots have, and what leads there."""
    begin("kept", steps=2).wait()
    tierctl("reserve", "kept", "2")
    tierctl("snapshot", "kept", "first")
    first = places_of("kept@first", "large", "parameter")
    begin("kept", steps=2).wait()
    tierctl("snapshot", "kept", "second")
    assert verify("kept")[0] == []
    with Spoilt("kept", first) as spoilt:
        (block,) = verify("kept", status=1)[0]
        assert block["unit"] == "large" and block["tensors"] == '"large"' and block["state"] == "parameter", block
        assert block["snapshots"] == "first" and not block["is_of_job"], block
        assert block["device"] == spoilt.path and block["error"] == "its checksum does not match", block
        assert 'parameter of tensor "large", of snapshot first: ' in tierctl("verify", "kept", status=1).stdout
        assert known("kept") == 1
        assert pass_over("kept") == 1
    assert verify("kept")[0] == []
    assert known("kept") == 0, "what a pass has found, too, is mended when a verify has read it"
    expect_mended("kept")
    expect_superblock("kept")
    with Spoilt("kept", [place + 99 for place in heads_of("kept")["first"]]):
        expect_node(verify("kept", status=1)[0], heads_of("kept")["first"], is_of_job=False, snapshots="first")
    assert verify("kept")[0] == []
    with open(os.environ["TIERD_LOG"], encoding="utf-8") as log:
        said = log.read()
    assert "of snapshot first, at byte" in said and "and delete the snapshot" in said, said


def snapshots(job):
    return {one["name"]: one for one in json.loads(tierctl("--json", "snapshots", job).stdout)["snapshots"]}


def spoil():
    Spoilt("kept", [place + 99 for place in heads_of("kept")["first"]]).flip()


def lost():
    """It is there, and can be read; nothing is written."""
    before = open(store_of("kept"), "rb").read()
    job = json.loads(tierctl("--json", "jobs", "kept").stdout)
    assert job["lost_snapshots"] == 1, job
    assert "1 lost snapshot" in tierctl("jobs").stdout
    listed = snapshots("kept")
    assert listed["first"]["is_lost"] and listed["first"]["own_bytes"] is None, listed
    assert not listed["second"]["is_lost"] and listed["second"]["own_bytes"] > 0, listed
    assert "lost" in tierctl("snapshots", "kept").stdout
    for one in "kept", "kept@second":
        assert tierctl("read", one, "large", text=False).stdout
    for arguments in (
        ["read", "kept@first", "large"], ["diff", "kept", "first"], ["snapshot", "kept", "third"], ["reserve", "kept", "3"],
        ["snapshot", "kept", "second", "--delete"], ["snapshot", "kept", "first", "--delete"],
        ["rollback", "kept", "second", "--yes"],
    ):
        said = tierctl(*arguments, status=1).stderr
        assert "snapshot first" in said and "cannot be read" in said, (arguments, said)
    said = tierctl("snapshot", "kept", "second", "--delete", "--lost", status=1).stderr
    assert "can be read" in said, said
    tierctl("snapshot", "kept", "first", "--lost", status=2)
    arguments = [program, "kept", os.path.join(scratch, "kept.lost"), str(LARGE), "1"]
    trained_on = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert trained_on.returncode != 0 and "snapshot first" in trained_on.stderr, trained_on
    expect_node(verify("kept", status=1)[0], heads_of("kept")["first"], is_of_job=False, snapshots="first")
    assert open(store_of("kept"), "rb").read() == before


def back():
    """The disk is as it was."""
    assert not any(one["is_lost"] for one in snapshots("kept").values())
    assert verify("kept")[0] == []


def given_up():
    tierctl("snapshot", "kept", "first", "--delete", "--lost")
    assert list(snapshots("kept")) == ["second"]
    assert json.loads(tierctl("--json", "jobs", "kept").stdout)["lost_snapshots"] == 0
    values = tierctl("read", "kept@second", "large", text=False).stdout
    begin("kept", steps=3).wait()
    tierctl("snapshot", "kept", "third")
    begin("kept", steps=3).wait()
    assert tierctl("read", "kept@second", "large", text=False).stdout == values
    assert verify("kept")[0] == []


def with_format(content, number):
    """The store, as a tierd of another format would have marked it: all superblocks, with good checksums."""
    content = bytearray(content)
    for copy in range(4):
        for at in range(copy << 18, (copy << 18) + 4096, 512):
            assert content[at : at + 8] == b"tierd-sb", at
            content[at + 8 : at + 12] = number.to_bytes(4, "little")
            content[at + 504 : at + 512] = read_store.checksum(bytes(content[at : at + 504]), copy + 1).to_bytes(8, "little")
    return bytes(content)


def reformat():
    """Nothing of it but its superblocks' format is another one."""
    content = open(store_of("kept"), "rb").read()
    assert with_format(content, 1) == content
    content = with_format(content, 7)
    for path in store_of("kept"), os.path.join(scratch, "reformatted"):
        with open(path, "r+b" if os.path.exists(path) else "wb") as file:
            file.write(content)


def refused():
    """Both versions are named to whoever asks, and nobody gets at it."""
    says = f"{store_of('kept')} is a store of format 7, and this tierd knows formats 1 to 2: start the tierd that made it"
    assert says in json.loads(tierctl("--json", "jobs", "kept").stdout)["reason"]
    arguments = [program, "kept", os.path.join(scratch, "kept.refused"), str(LARGE), "1"]
    trained_on = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert trained_on.returncode != 0 and says in trained_on.stderr, trained_on
    for command in (["verify", "kept"], ["read", "kept", "large"], ["snapshot", "kept", "new"], ["rollback", "kept", "second", "--yes"],
                    ["fork", "kept", "other"]):
        said = tierctl(*command, status=1).stderr
        assert says in said, (command, said)
    with open(os.environ["TIERD_LOG"], encoding="utf-8") as log:
        assert sum(says in line for line in log) >= 1


def untouched():
    """To the byte, after daemons have found it, and somebody has wanted it; then it is as it was."""
    content = open(store_of("kept"), "rb").read()
    assert open(os.path.join(scratch, "reformatted"), "rb").read() == content
    with open(store_of("kept"), "r+b") as file:
        file.write(with_format(content, 1))


def understood():
    assert verify("kept")[0] == []


def scrub(*arguments):
    return json.loads(tierctl("--json", "scrub", *arguments).stdout)["jobs"][0]


def pass_over(job):
    """Another one, at once; what it has found."""
    before = scrub(job)["passes"]
    scrub(job, "--now")
    wait_until(lambda: scrub(job)["passes"] > before)
    state = scrub(job)
    assert not state["is_hurried"] and state["done"] < state["extents"], state
    assert json.loads(tierctl("--json", "jobs", job).stdout)["damaged_blocks"] == state["damaged_blocks"], state
    return state["damaged_blocks"]


def break_at_damage(job):
    """Somebody who trains it meets it: the job breaks, and is back when he has gone."""
    arguments = [program, job, os.path.join(scratch, job + ".broken"), str(LARGE), "100"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as rank:
        assert rank.wait() != 0
    wait_until(lambda: (job, "idle") in [(one["name"], one["status"]) for one in json.loads(tierctl("--json", "jobs").stdout)])


def scrubbed():
    """What a pass finds is told, and forgotten when a later one does not."""
    assert pass_over("idle") == 0
    watch = subprocess.Popen([TIERCTL, "--json", "watch", "idle", "--count", "2"], stdout=subprocess.PIPE, text=True)
    assert json.loads(watch.stdout.readline())["event"] == "watching"
    with Spoilt("idle", places_of("idle", "large", "parameter")) as spoilt:
        assert pass_over("idle") == 1
        damaged, over = (json.loads(line) for line in watch.communicate()[0].splitlines())
        assert damaged["event"] == "damaged" and damaged["unit"] == "large" and damaged["device"] == spoilt.path, damaged
        assert 'parameter of tensor "large", at byte' in damaged["text"] and "as scrub has found" in damaged["text"], damaged
        assert over["event"] == "scrubbed" and "damaged: 1" in over["text"], over
        assert "1 damaged block" in tierctl("jobs").stdout
    assert pass_over("idle") == 0
    assert "damaged" not in tierctl("jobs").stdout
    with Spoilt("idle", places_of("idle", "half", "m")):
        assert pass_over("idle") == 1
        passes = scrub("idle")["passes"]
        break_at_damage("idle")
        assert "1 damaged block" in tierctl("jobs").stdout
        assert "idle: idle, 1 damaged block, step" in tierctl("jobs", "idle").stdout
        assert scrub("idle")["passes"] == passes
    assert pass_over("idle") == 0
    job = begin("busy")
    assert pass_over("busy") == 0
    assert job.is_trained()
    scrub("busy", "--now")
    scrub("busy", "--stop")
    scrub("--now")
    job.stop()
    tierctl("scrub", "--now", "--stop", status=2)
    tierctl("drop", "busy", "--yes")


def restored():
    for tensor, state in ("embed", "parameter"), ("half", "v"):
        expect_found("trained", tensor, state)


def ended():
    """Those who verify are told; what they had begun holds up nothing."""
    several = [subprocess.Popen([TIERCTL, "verify", "trained"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
               for _ in range(6)]
    tierctl("drop", "trained", "--yes")
    for one in several:
        said = one.communicate()[0].decode()
        assert one.returncode == 0 or "no job" in said or "gone" in said, said
    tierctl("verify", "trained", status=1)


def released():
    begin("released", steps=2).wait()
    wait_until(lambda: json.loads(tierctl("--json", "jobs").stdout)[0]["is_released"])
    expect_found("released", "large", "parameter")
    expect_found("released", "codes", "parameter")
    assert json.loads(tierctl("--json", "jobs").stdout)[0]["is_released"]


globals()[stage]()
