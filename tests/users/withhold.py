#!/usr/bin/env python3
"""What a user's processes keep of jobs that are dropped stays in his account, or is taken from them: he has never more
of the kernel's memory than host_maximum, whatever he keeps."""

import ctypes
import fcntl
import json
import mmap
import os
import sys

from harness import Node, Person, libc
from messages import DROP, OPEN, READY, Client, data, define, number
from waiting import wait_until

MIB = 1 << 20
MAXIMUM = 64 * MIB
ELEMENTS = 3 * MIB
HUGE = 2 * MIB
ROUNDS = 14
IN_HOST, ON_NVME, TRAIN = 1, 2, 2
DIRECTORY, ARENA, LEASES, GRADIENTS = range(1, 5)
COUNTERS = 4096 + 8 * 4096 + 64
F_SETPIPE_SZ = 1031
libc.splice.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]

# ---- What is kept, by the process that keeps it


def keep_descriptors(fds):
    return []


def keep_mappings(fds):
    kept = [mmap.mmap(fds[at], 0, mmap.MAP_SHARED, mmap.PROT_READ) for at in (DIRECTORY, ARENA)]
    kept += [mmap.mmap(fds[at], 0, mmap.MAP_SHARED) for at in (LEASES, GRADIENTS)]
    kept[-1][:] = b"\1" * len(kept[-1])
    return kept


def keep_leases(fds):
    """As if its unit were read still, for ever."""
    leases = mmap.mmap(fds[LEASES], 0, mmap.MAP_SHARED)
    leases[COUNTERS : COUNTERS + 4] = b"\1\0\0\0"
    return [leases]


def keep_pages(fds):
    """A byte of each huge page lies in a pipe: no file and no mapping has it."""
    kept = []
    for start in range(0, os.fstat(fds[ARENA]).st_size, 16 * HUGE):
        kept.append(os.pipe())
        fcntl.fcntl(kept[-1][1], F_SETPIPE_SZ, 16 * 4096)
        for at in range(start, min(start + 16 * HUGE, os.fstat(fds[ARENA]).st_size), HUGE):
            assert libc.splice(fds[ARENA], ctypes.byref(ctypes.c_long(at)), kept[-1][1], None, 1, 0) == 1
    return kept


# ---- The attacker


def allocated(fds):
    """Bytes that the kernel has for them, each file once."""
    found = {status.st_ino: status.st_blocks * 512 for status in map(os.fstat, fds)}
    return sum(found.values())


def attack_once(client, name, keep, options):
    """Opens a job, keeps what it gets and drops the job. What tierd says if it refuses, and what is kept."""
    before, kept = len(client.descriptors), []
    options = number(3, 1) + number(4, 3) + number(9, IN_HOST) + number(10, ON_NVME) + options
    status, text, opened = client.call(OPEN, data(1, name) + options)
    if status == 0:
        status, text = define(client, opened[1], "unit", ELEMENTS)[:2]
    if status == 0:
        status, text, _ = client.call(READY, number(1, opened[1]) + number(2, 20000))
    if status == 0:
        kept = keep(client.descriptors[before:])
    # A job that cannot be has gone with its rank, or goes now.
    client.call(DROP, data(1, name) + number(4, 1))
    return text if status else "", kept


def serve(person, keep, options, commands, answers):
    person.become()
    client, kept = Client(), []
    while command := os.read(commands, 1):
        text = ""
        if command == b"n":
            text, more = attack_once(client, f"held{len(kept)}", keep, options)
            kept.append(more)
        # Of files of their own only: all eventfds share an inode without a block.
        answer = f"{allocated(client.descriptors)} {text}".encode()[:2000]
        os.write(answers, answer.ljust(2000))


class Attacker:
    """A process that keeps what it gets of one job after the other."""

    def __init__(self, person, keep, options=b""):
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.close(self.commands)
            try:
                serve(person, keep, options, commands, answers)
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os.close(commands)
        os.close(answers)

    def ask(self, command):
        os.write(self.commands, command)
        answer = os.read(self.answers, 2000).decode().strip()
        assert answer, "the attacker has failed"
        allocated, _, text = answer.partition(" ")
        return int(allocated), text

    def end(self):
        os.kill(self.process, 9)
        os.waitpid(self.process, 0)
        os.close(self.commands)
        os.close(self.answers)


class Attack:
    """What each of these people does to the node."""

    def __init__(self, node, administrator):
        self.node, self.administrator = node, administrator
        self.idle = self.host()["used_bytes"]

    def host(self):
        return json.loads(self.administrator.tierctl("--json", "status"))["host"]

    def run(self, person, keep, options=b""):
        """What tierd refused, of 14 jobs."""
        attacker = Attacker(person, keep, options)
        refusals = []
        for _ in range(ROUNDS):
            kept, text = attacker.ask(b"n")
            assert kept <= MAXIMUM, (keep, kept)
            refusals += [text] if text else []
        # The account is what the kernel has allocated, once what is on its way back is there.
        wait_until(lambda: abs(self.host()["used_bytes"] - self.idle - attacker.ask(b"?")[0]) < MIB)
        kept, text = attacker.ask(b"?")
        print(f"user {person.uid}, {keep.__name__}: {kept >> 20} MiB kept, {len(refusals)} jobs refused", flush=True)
        assert self.host()["withheld_bytes"] <= MAXIMUM
        attacker.end()
        wait_until(lambda: self.host()["withheld_bytes"] == 0 and self.host()["used_bytes"] == self.idle)
        person.train(job="afterwards", mib=4)
        person.tierctl("drop", "afterwards", "--yes")
        return kept, refusals

    def what_can_be_taken_back_is(self, person, options=b""):
        for keep in keep_descriptors, keep_mappings:
            kept, refusals = self.run(person, keep, options)
            assert refusals == [] and kept < 2 * MIB, (kept, refusals[:1])

    def what_cannot_stays_in_the_account(self, person, keep, options=b""):
        kept, refusals = self.run(person, keep, options)
        assert kept > MAXIMUM // 4 and len(refusals) >= ROUNDS - 6, (kept, refusals[:1])
        for text in refusals:
            assert "jobs of yours that have ended have" in text and "end those" in text, text

    def another_user_loses_nothing(self):
        attacker = Attacker(self.node.alice, keep_leases)
        for _ in range(ROUNDS):
            attacker.ask(b"n")
        self.node.bob.train(job="beside", mib=8)
        assert "withheld" in self.administrator.tierctl("status")
        assert "tierd_host_withheld_bytes" in self.administrator.tierctl("metrics")
        attacker.end()


with Node() as daemon:
    admin = daemon.add("admin")
    daemon.configure("[users]", f"administrators = {admin.uid}", "limit = * host_maximum=64M")
    daemon.start("--config", daemon.configuration)
    attack = Attack(daemon, admin)
    # The daemon's own user, and root, are users as others are.
    for user in daemon.alice, daemon.account, Person(0, 0):
        attack.what_can_be_taken_back_is(user)
        attack.what_cannot_stays_in_the_account(user, keep_leases)
        # Only huge pages are seen there.
        if attack.host()["has_huge_pages"]:
            attack.what_cannot_stays_in_the_account(user, keep_pages)
    # Of a job that others may train, too.
    attack.what_can_be_taken_back_is(daemon.alice, number(43, TRAIN) + number(44, daemon.account.gid))
    attack.another_user_loses_nothing()
    daemon.stop()
