#!/usr/bin/env python3
"""A user opens ten thousand connections that say nothing: the daemon keeps no more than he may have, another user
connects, and trains on."""

import os
import resource
import signal
import socket
import time

import frames
from harness import Node
from waiting import wait_until

COUNT = 10000
# For which the daemon has places where they wait: who comes then waits for as many.
PLACES = 129
# Of a connection: the socket, its process, pages.
OF_A_CONNECTION = 8
PER_USER = 16


def crowd():
    """Until it is killed: who is sent away comes again."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (COUNT + 64, COUNT + 64))
    connections = []
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(os.environ["TIERD_SOCKET"])
        connections.append(connection)
        if len(connections) == COUNT:
            connections.pop(0).close()


def fill_places():
    """As many as wait for a daemon that takes none."""
    connections = []
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.connect(os.environ["TIERD_SOCKET"])
        except BlockingIOError:
            return len(connections)
        connections.append(connection)


def descriptors(node):
    return len(os.listdir(f"/proc/{node.process.pid}/fd"))


def held(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def connect():
    begin = time.monotonic()
    connection = frames.greet()
    frames.ping(connection)
    connection.close()
    return time.monotonic() - begin


def allows(count):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return hard == resource.RLIM_INFINITY or hard >= count


with Node() as daemon:
    COUNT = COUNT if allows(COUNT + 64) else resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 64
    daemon.start()
    rank = daemon.bob.rank(job="his", paced=1).ready()
    before = descriptors(daemon)
    attack = daemon.alice.begin(crowd)
    wait_until(lambda: held(attack) > COUNT)
    took = sorted(daemon.bob.run(connect) for _ in range(9))
    for step in range(1, 4):
        rank.process.stdin.write("\n")
        rank.process.stdin.flush()
        assert rank.line() == f"applied {step + 1}"
    most = max(descriptors(daemon) for _ in range(100))
    print(f"beside {COUNT} connections: {most} descriptors, {before} before")
    print(f"another connects in {took[4] * 1e3:.0f} ms, {took[-1] * 1e3:.0f} at most")
    assert most <= before + (PER_USER + 2) * OF_A_CONNECTION, (before, most)
    attack.kill()
    rank.leave()
    wait_until(lambda: descriptors(daemon) <= before)
    daemon.process.send_signal(signal.SIGSTOP)
    places = daemon.alice.run(fill_places)
    daemon.process.send_signal(signal.SIGCONT)
    assert places <= PLACES, places
    daemon.alice.train(job="hers")
    daemon.stop()
