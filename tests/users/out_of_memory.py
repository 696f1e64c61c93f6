#!/usr/bin/env python3
"""The daemon's control group has less memory than its budget, and the kernel kills it when a user takes what the
budget promises: trainers outside live on and are told, and jobs are back at their last durable step."""

import os

from harness import Node, skip

ROOT = "/sys/fs/cgroup"
ROOM = 48 << 20


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read()


class Group:
    """For one process, with the memory that it has by then and a bit more."""

    def __init__(self, name):
        # The first hierarchy, where the second one has no memory.
        is_first = os.path.isdir(f"{ROOT}/memory")
        self.folder = f"{ROOT}/memory/{name}" if is_first else f"{ROOT}/{name}"
        self.limit = "memory.limit_in_bytes" if is_first else "memory.max"
        self.used = "memory.usage_in_bytes" if is_first else "memory.current"
        try:
            os.mkdir(self.folder)
            write(f"{self.folder}/{self.limit}", str(1 << 40))
        except OSError as error:
            self.remove()
            skip(f"no control group with a limit of memory can be made here: {error}")

    def take(self, pid):
        write(f"{self.folder}/cgroup.procs", str(pid))

    def bound(self):
        write(f"{self.folder}/{self.limit}", str(int(read(f"{self.folder}/{self.used}")) + ROOM))

    def remove(self):
        if os.path.isdir(self.folder):
            os.rmdir(self.folder)


def play(node, group):
    node.start()
    node.alice.train(job="kept", steps=3)
    waiting = node.alice.rank(job="waits", paced=1).ready()
    group.take(node.process.pid)
    group.bound()
    large = node.bob.rank(job="large", mib=24, optimizer="host", parameters="host")
    assert node.process.wait() == -9, "nobody has killed the daemon"
    node.process = None
    said = large.line()
    assert said.startswith(("ECONNRESET", "ESTALE", "EPIPE", "ECONNREFUSED")), said
    large.process.stdin.close()
    assert large.process.wait() == 1 and waiting.process.poll() is None
    waiting.kill()
    node.start()
    assert {name: job["step"] for name, job in node.alice.jobs().items()} == {"kept": 3, "waits": 1}
    node.alice.train(job="kept")
    node.stop()


with Node() as daemon:
    limited = Group(daemon.name)
    try:
        play(daemon, limited)
    finally:
        if daemon.process:
            daemon.kill()
        limited.remove()
