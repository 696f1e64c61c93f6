#!/usr/bin/env python3
"""The daemon's process is closed to its users, what is dumped of it has no values of theirs, and a number that a dead
process had gives the next one nothing."""

import ctypes
import os
import re
import signal
import struct

from harness import Node, libc
from memory import is_sanitized
from waiting import wait_until

PTRACE_SEIZE, SYS_PIDFD_GETFD = 0x4206, 438
# Of user_job's parameters, which are the same everywhere.
PATTERN = 12345
# What each of the two workers may have of them on its stack.
STACKS = 2 * (16 << 10)
VALUES = 16 * struct.pack("<f", PATTERN)


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def opens(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
        return True
    except OSError:
        return False


def reads_memory(pid, address):
    there = ctypes.create_string_buffer(8)
    local, remote = Vector(ctypes.addressof(there), 8), Vector(address, 8)
    one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
    return libc.process_vm_readv(pid, ctypes.byref(local), one, ctypes.byref(remote), one, none) == 8


def traces(pid):
    """The end of who traces lets it go."""
    return libc.ptrace(PTRACE_SEIZE, pid, None, None) == 0


def takes_descriptor(pid):
    process = os.pidfd_open(pid)
    return libc.syscall(SYS_PIDFD_GETFD, process, ctypes.c_ulong(0), ctypes.c_ulong(0)) >= 0


def signals(pid):
    try:
        os.kill(pid, 0)
        return True
    except PermissionError:
        return False


def reaches(pid, address):
    """What of the process this one gets at."""
    files = [
        name
        for name in ("mem", "maps", "environ", "fd/0", "root", "cwd", "exe", "stack", "map_files")
        if opens(f"/proc/{pid}/{name}")
    ]
    ways = {
        "process_vm_readv": reads_memory(pid, address),
        "ptrace": traces(pid),
        "pidfd_getfd": takes_descriptor(pid),
        "kill": signals(pid),
    }
    return files + [way for way, works in ways.items() if works]


def mappings(pid):
    """(First byte, end, flags) of what may be read."""
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) (r)?", line)
            if found:
                place = found
            elif line.startswith("VmFlags:") and place[3]:
                yield int(place[1], 16), int(place[2], 16), line.split()[1:]


def is_dumped(flags):
    return "dd" not in flags and "io" not in flags


def found_in_memory(pid, wanted, values):
    """How often the values are in the mappings that are (not) dumped."""
    count = 0
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for first, end, flags in mappings(pid):
            if is_dumped(flags) != wanted:
                continue
            try:
                memory.seek(first)
                count += memory.read(end - first).count(values)
            except (OSError, OverflowError, ValueError):
                pass  # the kernel's own pages
    return count


def nobody_reaches_into_the_daemon(node):
    pid = node.process.pid
    heap = next(first for first, _, flags in mappings(pid) if is_dumped(flags))
    # Who is allowed to gets at all of it: the account itself, to which no client belongs.
    own = node.account.run(reaches, pid, heap)
    assert {"mem", "maps", "fd/0", "process_vm_readv", "pidfd_getfd", "kill"} <= set(own), own
    for person in (node.alice, node.bob, node.eve):
        assert person.run(reaches, pid, heap) == [], person.run(reaches, pid, heap)


def a_dump_has_no_values(node):
    """But what a worker has last computed with, which is on its stack. A sanitizer has terabytes beside that."""
    if is_sanitized():
        return
    rank = node.alice.rank(job="secret", frozen=1, pattern=PATTERN, clutch=2).ready()
    assert found_in_memory(node.process.pid, False, VALUES) >= (1 << 20) // len(VALUES), (
        "the values are not found at all"
    )
    dumped = found_in_memory(node.process.pid, True, VALUES) * len(VALUES)
    assert dumped <= STACKS, f"{dumped} bytes of a job would be in the daemon's core dump"
    rank.leave()
    node.alice.tierctl("drop", "secret", "--yes")


def fork_as(pid):
    """A process of that number, or None: somebody was quicker."""
    with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as file:
        file.write(str(pid - 1))
    child = os.fork()
    if child == 0:
        signal.pause()
    if child == pid:
        return child
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def a_number_that_is_used_again_is_nobody(node):
    """A child of the rank holds its connection open, so that only the process tells that the rank is dead."""
    if not os.path.exists("/proc/sys/kernel/ns_last_pid"):
        return
    rank = node.alice.rank(job="reused", heir=1)
    heir = int(rank.line().removeprefix("heir "))
    rank.ready()
    # The daemon does not look until the number is another's.
    os.kill(node.process.pid, signal.SIGSTOP)
    pid = rank.process.pid
    rank.kill()
    replaced = None
    for _ in range(1000):
        replaced = replaced or fork_as(pid)
    os.kill(node.process.pid, signal.SIGCONT)
    assert replaced, "the number is not to be had"
    wait_until(lambda: node.alice.jobs()["reused"]["status"] == "idle")
    os.kill(replaced, signal.SIGKILL)
    os.waitpid(replaced, 0)
    os.kill(heir, signal.SIGKILL)
    node.alice.tierctl("drop", "reused", "--yes")


with Node() as daemon:
    daemon.start()
    nobody_reaches_into_the_daemon(daemon)
    a_dump_has_no_values(daemon)
    a_number_that_is_used_again_is_nobody(daemon)
    daemon.stop()
