#!/usr/bin/env python3
"""Who loops over requests rests as long as others want something, and they are served in between: also one whose number
is the same modulo 64. That each user has a throttle of his own, unit test session says without chance:
no_user_rests_for_another."""

import pwd
import select
import socket

import frames
from harness import Node
from messages import PING, UNITS, Client, data

CONNECTIONS, PINGS = 14, 2000


def loop_over(request, until):
    """Connections that ask, each for the next answer when one has come, until that is told. How many have come."""
    frame, answers = frames.frame(frames.REQUEST, data(*request), request=7), 0
    sockets = [Client().socket for _ in range(CONNECTIONS)]
    for one in sockets:
        one.sendall(frame)
    until.sendall(b"1")
    while True:
        for one in select.select([*sockets, until], [], [])[0]:
            if one is until:
                return answers
            frames.receive(one)
            one.sendall(frame)
            answers += 1


def ask():
    client = Client()
    for _ in range(PINGS):
        assert client.call(PING, b"")[0] == 0
    client.close()


def another_is_served_while_one_loops(node, victim):
    """By turns that are counted: less than one for each connection of the one who loops, for one of the other."""
    job = node.alice.rank(job="many", units=256).ready()
    his = victim.rank(job="his", paced=1).ready()
    end, until = socket.socketpair()
    raid = node.alice.begin(loop_over, (UNITS, data(1, "many")), until)
    assert end.recv(1) == b"1"
    victim.run(ask)
    for step in range(2, 5):
        his.process.stdin.write("\n")
        his.process.stdin.flush()
        assert his.line() == f"applied {step}"
    end.sendall(b"1")
    answers = raid.result()
    for rank in (his, job):
        rank.leave()
    victim.tierctl("drop", "his", "--yes")
    node.alice.tierctl("drop", "many", "--yes")
    # In turns with all of these connections there would be as many for each ping.
    assert 0 < answers < PINGS * CONNECTIONS / 2, f"{answers} answers came to one who loops, {PINGS} to the other"


def same_number(uid):
    """Modulo 64, and free."""
    used = {entry.pw_uid for entry in pwd.getpwall()}
    return next(number for number in range(uid + 64, 1 << 16, 64) if number not in used)


with Node() as daemon:
    daemon.start()
    another_is_served_while_one_loops(daemon, daemon.bob)
    another_is_served_while_one_loops(daemon, daemon.add("twin", uid=same_number(daemon.alice.uid)))
    daemon.stop()
