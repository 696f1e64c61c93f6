#!/usr/bin/env python3
"""A user fills the disk on which the daemon keeps jobs and their list, while steps of another's job are committed:
not one is lost, what is new is refused with a reason, and is possible when there is room again."""

import os
import subprocess

from harness import Node, libc, skip

CLONE_NEWNS = 0x20000
BLOCK = bytes(64 << 10)


def mount(node):
    """A small disk for the daemon, on which the users have a folder, too. It ends with the test."""
    image = f"{node.folder}/image"
    if libc.unshare(CLONE_NEWNS) < 0 or subprocess.run(["mount", "--make-rprivate", "/"], check=False).returncode != 0:
        skip("no mount namespace is to be had here")
    with open(image, "wb") as file:
        file.truncate(96 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    if (
        subprocess.run(["mount", "-o", "loop", image, node.nvme], stderr=subprocess.DEVNULL, check=False).returncode
        != 0
    ):
        skip("ext4 cannot be mounted here")
    node.state = f"{node.nvme}/state"
    for folder, person in ((node.nvme, node.account), (node.state, node.account), (f"{node.nvme}/bob", node.bob)):
        os.makedirs(folder, exist_ok=True)
        os.chown(folder, person.uid, person.gid)
        os.chmod(folder, 0o755 if folder == node.nvme else 0o700)


def fill(path):
    """What was left."""
    written = 0
    with open(path, "wb", buffering=0) as file:
        for block in (BLOCK, BLOCK[:4096], b"x"):
            try:
                while True:
                    written += file.write(block)
            except OSError:
                pass
    return written


def train_by_lines(rank, steps):
    for step in steps:
        rank.process.stdin.write("\n")
        rank.process.stdin.flush()
        assert rank.line() == f"applied {step}", step


def trained(node, job, attack=None):
    """The state after seven steps: one before the attack, when not all of the store was written to yet."""
    rank = node.alice.rank(job=job, paced=1, digest=1).ready()
    process = node.bob.begin(fill, attack) if attack else None
    train_by_lines(rank, range(2, 4))
    if process:
        assert process.result() > 0
    train_by_lines(rank, range(4, 8))
    rank.process.stdin.close()
    found = rank.line()
    assert rank.process.wait() == 0
    return found


def play(node):
    ballast = f"{node.nvme}/bob/ballast"
    node.start("--file-system", "any")
    calm = trained(node, "calm")
    node.alice.tierctl("drop", "calm", "--yes")
    assert trained(node, "beside", ballast) == calm
    assert node.alice.jobs()["beside"]["durable_step"] == 7
    node.alice.refused("ENOSPC", "left on that disk", job="new")
    # Nor does its end, or that of its daemon, need room.
    node.kill()
    node.start("--file-system", "any")
    assert node.alice.jobs()["beside"]["durable_step"] == 7
    rank = node.alice.rank(job="beside", steps=0, digest=1)
    assert rank.line() == calm
    rank.ready().leave()
    node.bob.run(os.unlink, ballast)
    node.alice.train(job="new")
    node.stop()


with Node() as daemon:
    mount(daemon)
    try:
        play(daemon)
    finally:
        if daemon.process:
            daemon.kill()
        subprocess.run(["umount", "-l", daemon.nvme], check=False)
