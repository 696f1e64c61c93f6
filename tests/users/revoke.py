#!/usr/bin/env python3
"""Whom a job is shared with changes while it is there: who loses a right by that loses what he has open, and nobody else does."""

import json
import os
import subprocess

from harness import Node
from waiting import wait_until

READ, TRAIN = 1, 2
# Without a name.
GROUP, OTHERS = 60100, 60101


def share(person, job, *words, **keys):
    return person.tierctl("share", job, *words, **keys)


def reader(person, job, reads="parameter", **keys):
    follows = reads != "all" and "snapshot" not in keys
    return person.rank(job=job, reads=reads, paced=1, follows=int(follows), **keys).ready()


def ask(rank):
    rank.process.stdin.write("\n")
    rank.process.stdin.flush()
    return rank.line()


def ended(rank, *texts):
    """Its next question is refused, and it ends."""
    line = ask(rank)
    for text in texts:
        assert text in line, f"{text!r} is not in {line!r}"
    rank.process.stdin.close()
    assert rank.process.wait() == 1
    rank.process.stdout.close()


def goes_on(rank):
    line = ask(rank)
    assert line.startswith("step "), line
    return line


def it_is_said_and_shown(node):
    node.alice.train(job="said")
    assert share(node.alice, "said") == "said is shared with nobody\n"
    assert json.loads(share(node.alice, "said", "--json")) == {"job": "said", "sharing": "no", "share_group": None}
    share(node.alice, "said", "read", status=1, says=["say with which group"])
    share(node.alice, "said", "write", status=2, says=["'write' is not 'none|read|train'"])
    share(node.alice, "said", "read", "no-such-group", status=2, says=["no group 'no-such-group'"])
    assert share(node.alice, "said", "read", str(GROUP)) == f"said is shared with group {GROUP}, to read\n"
    assert share(node.alice, "said", "train") == f"said is shared with group {GROUP}, to train\n"
    shown = json.loads(share(node.alice, "said", "--json", "read", str(OTHERS)))
    assert shown == {"job": "said", "sharing": "read", "share_group": OTHERS, "ended_ranks": 0, "ended_readers": 0}
    assert share(node.bob.among(OTHERS), "said") == f"said is shared with group {OTHERS}, to read\n"
    share(node.bob.among(OTHERS), "said", "train", status=1, says=["is for its owner to say"])
    share(node.bob, "said", "none", status=1, says=["there is no job said"])
    share(node.admin, "said", "none", "--user", str(node.alice.uid))
    # What it was opened with is said again by each of its ranks.
    node.alice.train(job="said", sharing=TRAIN, share_group=GROUP)
    assert node.alice.jobs()["said"]["sharing"] == "no" and node.bob.among(GROUP, OTHERS).jobs() == {}
    node.alice.tierctl("drop", "said", "--yes")


def readers_that_may_not_read_any_more_end(node):
    trainer = node.alice.rank(job="read", paced=1, sharing=READ, share_group=GROUP, snapshots=1, takes="kept").ready()
    kept = [reader(node.alice, "read"), reader(node.admin, "read", "m", owner=node.alice.uid)]
    lost = [
        reader(node.bob.among(GROUP), "read", owner=node.alice.uid),
        reader(node.bob.among(GROUP), "read", snapshot="kept", owner=node.alice.uid),
        reader(node.bob.among(GROUP, OTHERS), "read", owner=node.alice.uid),
    ]
    first = {goes_on(rank) for rank in lost}
    assert len(first) == 1, first
    share(node.alice, "read", "read", str(OTHERS), says=["; 0 ranks and 2 readers have lost it"])
    for rank in lost[:2]:
        ended(rank, "EPERM", f"user {node.alice.uid} has shared job read with group {OTHERS}, to read")
    assert ask(trainer) == "applied 2"
    for rank in [*kept, lost[2]]:
        goes_on(rank)
    share(node.alice, "read", "none", says=["0 ranks and 1 reader have lost it"])
    ended(lost[2], "EPERM", f"user {node.alice.uid} has shared job read with nobody")
    node.bob.among(GROUP).refused("ENOENT", job="read", reads="parameter", owner=node.alice.uid)
    assert ask(trainer) == "applied 3"
    for rank in kept:
        goes_on(rank)
        rank.leave()
    trainer.leave()
    node.alice.tierctl("drop", "read", "--yes")


def the_optimizers_state_is_for_those_who_may_train(node):
    node.alice.train(job="state", sharing=TRAIN, share_group=GROUP)
    parameters, state = (
        reader(node.bob.among(GROUP), "state", reads, owner=node.alice.uid) for reads in ("parameter", "m")
    )
    goes_on(parameters)
    goes_on(state)
    share(node.alice, "state", "read", str(GROUP))
    goes_on(parameters)
    ended(state, "EPERM", f"user {node.alice.uid} has shared job state with group {GROUP}, to read")
    parameters.leave()
    node.alice.tierctl("drop", "state", "--yes")


def a_rank_that_loses_its_right_leaves_a_whole_step(node):
    keys = {"world_size": 2, "stage": 2}
    pair = [node.alice.rank(job="alone", rank=rank, steps=2, **keys) for rank in range(2)]
    for rank in pair:
        rank.ready()
    for rank in pair:
        rank.leave()
    mine = node.alice.rank(job="torn", sharing=TRAIN, share_group=GROUP, paced=1, **keys)
    wait_until(lambda: "torn" in node.alice.jobs())
    theirs = node.bob.among(GROUP).rank(job="torn", rank=1, paced=1, **keys, owner=node.alice.uid)
    mine.ready()
    theirs.ready()
    # Half of the second step is there.
    mine.process.stdin.write("\n")
    mine.process.stdin.flush()
    wait_until(lambda: node.alice.jobs()["torn"]["members"][0]["pushes"] == 4)
    share(node.alice, "torn", "none", says=["1 rank"])
    assert "ESTALE" in (line := mine.line()) and f"user {node.alice.uid} has shared job torn with nobody" in line, line
    mine.process.stdin.close()
    mine.process.wait()
    ended(theirs, "ESTALE", f"user {node.alice.uid} has shared job torn with nobody")
    node.bob.among(GROUP).refused("ENOENT", "shared with you", job="torn", rank=1, **keys, owner=node.alice.uid)
    assert node.alice.jobs()["torn"]["step"] == 1
    pair = [node.alice.rank(job="torn", rank=rank, **keys, **{"from": 1}) for rank in range(2)]
    for rank in pair:
        rank.ready()
    for rank in pair:
        rank.leave()
    digests = set()
    for job in ("alone", "torn"):
        rank = reader(node.alice, job, "all")
        digests.add(goes_on(rank))
        rank.leave()
        node.alice.tierctl("drop", job, "--yes")
    assert len(digests) == 1 and digests.pop().startswith("step 2: "), digests


def ranks_that_keep_it_go_on(node):
    rank = node.bob.among(GROUP, OTHERS).rank(job="kept", world_size=1, owner=node.alice.uid)
    rank.leave(line="ENOENT")
    node.alice.train(job="kept")
    share(node.alice, "kept", "train", str(GROUP))
    rank = node.bob.among(GROUP, OTHERS).rank(job="kept", paced=1, owner=node.alice.uid).ready()
    share(node.alice, "kept", "train", str(OTHERS), says=[f"kept is shared with group {OTHERS}, to train\n"])
    assert ask(rank) == "applied 2"
    rank.leave()
    node.alice.tierctl("drop", "kept", "--yes")


def what_was_taken_does_not_come_back_with_a_snapshot(node):
    node.alice.train(job="back", sharing=TRAIN, share_group=GROUP, snapshots=2, takes="old")
    share(node.alice, "back", "none")
    node.alice.tierctl("fork", "back@old", "forked")
    node.alice.tierctl("rollback", "back", "old", "--yes")
    assert {job["sharing"] for job in node.alice.jobs().values()} == {"no"}
    assert node.bob.among(GROUP).jobs() == {}
    node.alice.tierctl("drop", "forked", "--yes")
    node.alice.tierctl("drop", "back", "--yes")


def a_trace_ends(node):
    node.alice.train(job="traced", sharing=READ, share_group=GROUP)
    tracing = subprocess.Popen(
        [os.environ["TIERCTL"], "trace", "traced", "--user", str(node.alice.uid), "--seconds", "60", "-o", "-"],
        user=node.bob.uid,
        group=node.bob.gid,
        extra_groups=node.bob.among(GROUP).groups,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "is traced" in tracing.stderr.readline()
    share(node.alice, "traced", "none")
    said = tracing.communicate()[1]
    assert tracing.returncode == 1 and f"user {node.alice.uid} has shared job traced with nobody" in said, said
    node.alice.tierctl("drop", "traced", "--yes")


def it_is_kept(node):
    node.alice.train(job="taken", sharing=TRAIN, share_group=GROUP)
    share(node.alice, "taken", "none")
    node.alice.train(job="given")
    share(node.alice, "given", "read", str(GROUP))


def it_was_kept(node):
    shown = {name: (job["sharing"], job["share_group"]) for name, job in node.alice.jobs().items()}
    assert shown == {"taken": ("no", 0), "given": ("read", GROUP)}, shown
    assert set(node.bob.among(GROUP).jobs()) == {"given"}


with Node() as daemon:
    daemon.admin = daemon.add("admin")
    flags = ["--administrators", str(daemon.admin.uid)]
    daemon.start(*flags)
    it_is_said_and_shown(daemon)
    readers_that_may_not_read_any_more_end(daemon)
    the_optimizers_state_is_for_those_who_may_train(daemon)
    a_rank_that_loses_its_right_leaves_a_whole_step(daemon)
    ranks_that_keep_it_go_on(daemon)
    what_was_taken_does_not_come_back_with_a_snapshot(daemon)
    a_trace_ends(daemon)
    it_is_kept(daemon)
    daemon.kill()
    daemon.start(*flags)
    it_was_kept(daemon)
    daemon.stop()
