#!/usr/bin/env python3
"""A rank of another user, who may train a shared job, pushes what is no number: the steps change nothing, and the
job's owner goes on without him."""

from harness import Node
from waiting import wait_until

TRAIN = 2
JOB = {"job": "shared", "world_size": 2, "stage": 2, "digest": 1}


def together(node, steps, poison):
    """What the owner finds when both have trained."""
    first = node.alice.rank(sharing=TRAIN, share_group=node.account.gid, steps=steps, **JOB)
    wait_until(lambda: "shared" in node.alice.jobs())
    second = node.bob.rank(rank=1, owner=node.alice.uid, steps=steps, poison=poison, **JOB)
    found = [rank.line() for rank in (first, second)]
    assert found[0].startswith("step "), found
    for rank in (first, second):
        rank.ready().leave()
    number, digest = found[0].removeprefix("step ").split(": ")
    return int(number), digest


with Node() as daemon:
    daemon.start()
    beside = daemon.bob.rank(job="beside", paced=1).ready()
    step, clean = together(daemon, 2, 0)
    poisoned_step, poisoned = together(daemon, 3, 1)
    assert poisoned_step == step + 3 and poisoned == clean, "gradients that are no numbers have changed the state"
    assert together(daemon, 1, 0)[1] != clean
    beside.leave()
    # He may train it, and no more: who is its owner says so.
    daemon.bob.tierctl(
        "drop", "shared", "--user", str(daemon.alice.uid), "--yes", status=1, says=["for its owner to drop"]
    )
    daemon.alice.tierctl("drop", "shared", "--yes")
    daemon.stop()
