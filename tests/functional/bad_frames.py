#!/usr/bin/env python3
"""Sends what no client should send, and expects a reason and the end of that connection only."""
import random
import socket

import frames
from frames import EMSGSIZE, EPROTO, EPROTONOSUPPORT, ETIMEDOUT, HELLO, HELLO_REPLY, REPLY, REQUEST, frame

witness = frames.greet()


def refused(name, data, kind, code, request=0, greeted=True):
    connection = frames.greet() if greeted else frames.connect()
    frames.send(connection, data)
    answer = frames.receive(connection)
    assert answer[:3] == (kind, request, code) and answer[3], (name, answer)
    assert frames.is_closed(connection), name
    connection.close()
    frames.ping(witness)


def abandoned(name, data, greeted):
    connection = frames.greet() if greeted else frames.connect()
    frames.send(connection, data)
    connection.close()
    frames.ping(witness)


good = frame(REQUEST, frames.PING, request=9)

# Before the Hello.
refused("garbage", b"\x00" * 64, HELLO_REPLY, EPROTO, greeted=False)
refused("request first", good, HELLO_REPLY, EPROTO, request=9, greeted=False)
refused("future versions", frames.hello(50, 60), HELLO_REPLY, EPROTONOSUPPORT, request=1, greeted=False)
refused("versions the wrong way around", frames.hello(9, 1), HELLO_REPLY, EPROTONOSUPPORT, request=1, greeted=False)
refused("oversized hello", frame(HELLO, length=1 << 20), HELLO_REPLY, EMSGSIZE, greeted=False)
refused("malformed hello", frame(HELLO, b"\xff" * 8, request=3), HELLO_REPLY, EPROTO, request=3, greeted=False)
refused("silence", b"", HELLO_REPLY, ETIMEDOUT, greeted=False)
refused("slow hello", frames.hello()[:10], HELLO_REPLY, ETIMEDOUT, greeted=False)

# After it.
refused("garbage", b"GET / HTTP/1.1\r\n\r\n", REPLY, EPROTO)
refused("wrong magic", frame(REQUEST, magic=0), REPLY, EPROTO)
refused("unknown type", frame(77), REPLY, EPROTO)
refused("type of the daemon", frame(REPLY, request=4), REPLY, EPROTO, request=4)
refused("second hello", frames.hello(), REPLY, EPROTO, request=1)
refused("unknown version", frame(REQUEST, frames.PING, request=4, version=9), REPLY, EPROTO, request=4)
refused("oversized", frame(REQUEST, length=(1 << 20) - 15), REPLY, EMSGSIZE)
refused("huge", frame(REQUEST, length=0xFFFFFFFF), REPLY, EMSGSIZE)
refused("malformed", frame(REQUEST, b"\xff\xff\xff", request=4), REPLY, EPROTO, request=4)
refused("length beyond the end", frame(REQUEST, b"\x0a\x7f", request=4), REPLY, EPROTO, request=4)
refused("slow header", good[:5], REPLY, ETIMEDOUT)
refused("slow message", good[:17], REPLY, ETIMEDOUT)

for cut in range(1, len(good)):
    abandoned("truncated", good[:cut], greeted=True)
for cut in range(1, len(frames.hello())):
    abandoned("truncated hello", frames.hello()[:cut], greeted=False)
abandoned("the begin of a large frame", frame(REQUEST, b"\x00" * 70000, length=1 << 19), greeted=True)

# Anything: what it gets back is up to what it happens to be.
chance = random.Random(1)
for _ in range(300):
    body = chance.randbytes(chance.randrange(64))
    abandoned("chance", frame(REQUEST, body, request=2), greeted=True)
    abandoned("chance", chance.randbytes(chance.randrange(200)), greeted=chance.random() < 0.5)

# Descriptors from a client are dropped.
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as passed:
    connection = frames.greet()
    socket.send_fds(connection, [good], [passed.fileno()] * 8)
    assert frames.receive(connection) == (REPLY, 9, 0, "")

frames.ping(witness)
