#!/usr/bin/env python3
"""Who is no member of the socket's group does not reach the daemon, and of two who are neither sees, opens or drops
the other's job."""

import frames
from harness import Node
from messages import DROP, MAP, READER_OPEN, UNITS, Client, codes, data, number

# Read by root: others may not get to the tree.
CODES = codes()


def error_of(act, *arguments):
    """What the kernel says to it."""
    try:
        act(*arguments)
    except OSError as error:
        return type(error).__name__
    return None


def connect():
    frames.connect().close()


def asks(field, body):
    """The status, by its name."""
    client = Client()
    status = client.call(field, body)[0]
    client.close()
    return next(name for name, code in CODES.items() if code == status)


def a_stranger_does_not_connect(node):
    assert node.alice.run(error_of, connect) is None
    assert node.eve.run(error_of, connect) == "PermissionError"
    node.eve.tierctl("jobs", status=3, says=["you may not use"])


def nobody_reads_the_daemons_folders(node):
    node.alice.train(job="hers")
    for person in (node.alice, node.bob, node.eve):
        for folder in (node.nvme, node.state):
            assert person.run(error_of, open, folder) == "PermissionError", folder
    node.alice.tierctl("drop", "hers", "--yes")


def a_job_is_its_owners(node):
    rank = node.alice.rank(job="hers", pattern=7).ready()
    assert set(node.alice.jobs()) == {"hers"} and node.bob.jobs() == {}
    # By the name alone, which would be his own, and as hers.
    for field, has_owner, owner in ((UNITS, 110, 111), (DROP, 2, 3), (MAP, 2, 3), (READER_OPEN, 2, 3)):
        for body in (data(1, "hers"), data(1, "hers") + number(has_owner, 1) + number(owner, node.alice.uid)):
            assert node.bob.run(asks, field, body) == "ENOENT", (field, body)
    for verb in (["units"], ["drop", "--yes", "--force"], ["evict"], ["release"]):
        node.bob.tierctl(*verb, "hers", "--user", str(node.alice.uid), status=1, says=["no job hers"])
    node.bob.refused("ENOENT", job="hers", owner=node.alice.uid)
    # Another one of the same name is his.
    node.bob.train(job="hers", mib=4)
    assert {job["uid"] for job in node.bob.jobs().values()} == {node.bob.uid}
    node.bob.tierctl("drop", "hers", "--yes")
    assert node.alice.jobs()["hers"]["status"] == "training"
    rank.leave()
    node.alice.tierctl("drop", "hers", "--yes")


with Node() as daemon:
    daemon.start()
    a_stranger_does_not_connect(daemon)
    nobody_reads_the_daemons_folders(daemon)
    a_job_is_its_owners(daemon)
    daemon.stop()
