#!/usr/bin/env python3
"""Plays the table of hostile cases against a daemon beside a victim: a trainer that takes a step during each of them, and whose
state at the end is that of one that nobody disturbed. After each case tierd holds what it held before.

hostile.py TRAINER [WORD…]: only the cases with all these words in their names. TIERD_PID names the daemon."""
import os
import sys

import frames
from frames import HELLO_REPLY, REPLY
from hostile_cases import blobs, crowds, framing, gpus, hellos, names, numbers, others, packing, readers, snapshots, stages, traces, verifies, watches
from hostile_cases.case import BARE, DEFINED, EPOCH, JOB, LEFT, OPENED, READER, READING, READY, Answered
from messages import DROP, GPU_ATTACH, LEASES, LEAVE, MAP, NODE, READER_OPEN, Client, codes, data, define, number, open_job
from messages import READY as READY_FIELD
from users import Rank
from waiting import wait_until

PARTS = (framing, hellos, packing, stages, names, numbers, readers, verifies, blobs, gpus, watches, traces, snapshots, crowds, others)
TABLE = [case for part in PARTS for case in part.CASES]
NAME = "hostile"
code = codes() | {"OK": 0}
code_names = {value: key for key, value in code.items()}
observer = Client()


# ---- What the daemon holds ----

def held():
    """Descriptors, and of the node: jobs, clients, host memory but caches, ranks with a job open; what is
    pinned, and caches, which come in their own time."""
    status, text, node = observer.call(NODE, b"")
    assert status == 0, text
    descriptors = len(os.listdir(f"/proc/{os.environ['TIERD_PID']}/fd"))
    jobs, clients, used, pinned, ranks, cache = (node.get(field, 0) for field in (4, 5, 7, 16, 51, 80))
    return (descriptors, jobs, clients, used - cache, ranks), pinned, cache


def is_no_more(now, before):
    return all(a <= b for a, b in zip(now[0], before[0])) and now[1] - now[2] <= before[1]


def settles_at(most):
    """It holds no more than that."""
    try:
        wait_until(lambda: is_no_more(held(), most))
    except AssertionError as problem:
        raise AssertionError(f"tierd holds {held()} instead of {most}") from problem


# ---- Clients at their stages ----

def advance(client, stage):
    if stage < OPENED:
        return
    status, text, opened = open_job(client, NAME)
    assert status == 0 and opened[1] == JOB, (text, opened)
    if stage >= DEFINED:
        for unit in range(3):
            status, text, _ = define(client, JOB, f"unit{unit}", 1000)
            assert status == 0, text
    if stage >= READY:
        status, text, ready = client.call(READY_FIELD, number(1, JOB) + number(2, 20000))
        assert status == 0 and ready[3] == EPOCH, (text, ready)
    if stage == LEFT:
        assert client.call(LEAVE, number(1, JOB) + number(2, 1))[0] == 0
        # What it kept of the job's memory would count as its user's.
        client.drop_descriptors()
    if stage == READING:
        status, text, opened = client.call(READER_OPEN, data(1, NAME))
        assert status == 0 and opened[1] == READER, (text, opened)


class Play:
    """The client of the last case stays for the next one, if that wants it at the same stage and it did not end."""

    def __init__(self):
        # The node's page of statistics is made when it is first asked for, and stays.
        observer.call(MAP, b"")
        self.floor = held()
        self.client = self.stage = self.level = None
        self.enter(READY).call(GPU_ATTACH, gpus.attach())
        # So is the thread that looks for GPUs, which is woken by a descriptor.
        self.floor = ((self.floor[0][0] + 1, *self.floor[0][1:]), *self.floor[1:])
        self.leave()

    def enter(self, stage):
        if self.client and self.stage != stage:
            self.leave()
        if not self.client:
            self.client, self.stage = Client(greets=stage != BARE), stage
            advance(self.client, stage)
            self.level = held()
        return self.client

    def leave(self):
        if self.client:
            self.client.close()
        self.client = None
        # A job that was ready outlives its rank.
        observer.call(DROP, data(1, NAME) + number(4, 1))
        settles_at(self.floor)


# ---- Outcomes ----

def check_status(name, status, expected):
    right = expected.code if isinstance(expected.code, tuple) else (expected.code,)
    got = code_names.get(status.get(1, 0))
    text = status.get(2, b"").decode(errors="replace")
    assert got in right and expected.words in text and (text or got == "OK"), f"{name}: {got}, {text!r}"


def next_status(name, client):
    kind, _, body = client.next_frame()
    assert kind in (HELLO_REPLY, REPLY), (name, kind)
    return frames.fields(body.get(1, b""))


def act(case, client):
    """True: the connection goes on."""
    if callable(case.act):
        case.act(client)
        return False
    if isinstance(case.act, tuple):
        client.send(*case.act)
    else:
        frames.send(client.socket, case.act)
    if case.outcome is None:
        return False
    check_status(case.name, next_status(case.name, client), case.outcome)
    if isinstance(case.outcome, Answered):
        frames.ping(client.socket)
        return True
    assert frames.is_closed(client.socket), f"{case.name}: the connection goes on"
    return False


def play(table, victim):
    state = Play()
    for case in table:
        client = state.enter(case.stage)
        victim.process.stdin.write("\n")
        victim.process.stdin.flush()
        try:
            goes_on = act(case, client)
            assert victim.line().startswith("applied"), "the victim does not train on"
            assert not observer.call(LEASES, data(1, "victim"))[2].get(1), "a lease is left"
            if goes_on:
                settles_at(state.level)
            else:
                state.leave()
        except BaseException:
            print(f"the case is: {case.name}", file=sys.stderr)
            raise
    state.leave()


def start(job):
    keys = {"job": job, "mib": 1, "units": 4, "digest": 1, "paced": 1}
    return Rank(os.getuid(), **keys).ready()


def finish(rank):
    rank.process.stdin.close()
    digest = rank.line()
    assert rank.process.wait() == 0 and digest.startswith("step "), digest
    return digest


def main():
    table = [case for case in TABLE if all(word in case.name for word in sys.argv[2:])]
    assert len({case.name for case in TABLE}) == len(TABLE), "two cases have one name"
    victim = start("victim")
    play(table, victim)
    digest = finish(victim)
    calm = start("calm")
    calm.process.stdin.write("\n" * len(table))
    calm.process.stdin.flush()
    for _ in table:
        calm.line()
    assert finish(calm) == digest, "the victim's state is not that of a training that nobody disturbed"
    print(f"{len(table)} hostile cases")


main()
