#!/usr/bin/env python3
"""Older and newer peers of a real daemon, while another client goes on."""
import os
import socket
import struct
import subprocess
import threading

import frames
from frames import EPROTO, EPROTONOSUPPORT, HELLO, HELLO_REPLY, REPLY, REQUEST, frame

EOPNOTSUPP = 16
TRIES = [(0, 0), (0, 1), (1, 1), (1, 2), (1, 9), (2, 2), (2, 9), (9, 1), (300, 400)]


def number(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(key, value):
    if isinstance(value, bytes):
        return number(key << 3 | 2) + number(len(value)) + value
    return number(key << 3) + number(value)


def say_hello(minimum, maximum, *more):
    connection = frames.connect()
    frames.send(connection, frame(HELLO, field(1, minimum) + field(2, maximum) + b"".join(more), request=1))
    magic, version, kind, length, request = struct.unpack("<IHHII", frames.receive_exactly(connection, 16))
    reply = frames.fields(frames.receive_exactly(connection, length))
    assert (magic, version, kind, request) == (frames.MAGIC, 1, HELLO_REPLY, 1)
    status = frames.fields(reply.get(1, b""))
    return connection, reply, status.get(1, 0), status.get(2, b"").decode()


def versions_are_agreed_on_or_refused_with_both():
    for minimum, maximum in TRIES:
        agrees = minimum <= 1 <= maximum
        connection, reply, code, text = say_hello(minimum, maximum)
        assert code == (0 if agrees else EPROTONOSUPPORT), (minimum, maximum, text)
        if agrees:
            assert reply[2] == 1
            frames.ping(connection)
        else:
            assert f"versions {minimum} to {maximum} of the protocol, this tierd" in text and "1 to 1" in text, text
            assert frames.is_closed(connection)
        connection.close()


def so_are_those_of_the_pages():
    _, reply, code, _ = say_hello(1, 1)
    assert code == 0 and 100 not in reply
    _, reply, code, _ = say_hello(1, 1, field(100, 1), field(101, 900))
    chosen = reply[100]
    assert code == 0 and 1 <= chosen <= 900
    for minimum, maximum in ((chosen + 1, chosen + 5), (chosen + 5, chosen + 1), (1, chosen - 1)):
        connection, _, code, text = say_hello(1, 1, field(100, minimum), field(101, maximum))
        assert code == EPROTONOSUPPORT and f"versions {minimum} to {maximum} of the shared pages" in text, text
        assert f"{chosen} to {chosen}" in text and frames.is_closed(connection)


def what_a_newer_client_adds_is_skipped():
    connection, _, code, _ = say_hello(1, 2, field(500, b"new"), field(501, 7))
    assert code == 0
    # A request that tierd knows, with fields that it does not.
    frames.send(connection, frame(REQUEST, field(16, field(500, 7) + field(501, b"new")), request=5))
    assert frames.receive(connection) == (REPLY, 5, 0, "")


def a_request_that_is_not_known_is_answered_and_nothing_else():
    connection = frames.greet()
    for body in (b"", field(500, b""), field(500, field(1, 7)), field(536870911, 3)):
        frames.send(connection, frame(REQUEST, body, request=6))
        kind, request, code, text = frames.receive(connection)
        assert (kind, request, code) == (REPLY, 6, EOPNOTSUPP), (kind, request, code)
        assert "does not know this request" in text and "newer" in text, text
        frames.ping(connection)


def frames_have_the_version_that_was_agreed_on():
    for version in (0, 2, 65535):
        connection = frames.greet()
        frames.send(connection, frame(REQUEST, frames.PING, request=4, version=version))
        kind, request, code, text = frames.receive(connection)
        assert (kind, request, code) == (REPLY, 4, EPROTO) and f"version {version}, agreed was 1" in text, text
        assert frames.is_closed(connection)


def serve(listening, version):
    """A daemon that chooses that version."""
    connection, _ = listening.accept()
    kind, length = struct.unpack("<6xHI4x", frames.receive_exactly(connection, 16))
    assert kind == HELLO
    frames.receive_exactly(connection, length)
    frames.send(connection, frame(HELLO_REPLY, field(1, b"") + field(2, version)))
    connection.recv(1)
    connection.close()


def tierctl_refuses_a_version_that_it_does_not_speak():
    path = os.environ["TIERD_SOCKET"] + ".other"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)
        listening.listen()
        for version in (0, 2, 65537):
            thread = threading.Thread(target=serve, args=(listening, version))
            thread.start()
            result = subprocess.run(
                [os.environ["TIERCTL"], "--socket", path, "ping"], capture_output=True, text=True, check=False
            )
            thread.join()
            assert result.returncode != 0
            assert f"chose version {version} of the protocol" in result.stderr, result.stderr
            assert "speaks 1 to 1" in result.stderr, result.stderr


witness = frames.greet()
for test in (
    versions_are_agreed_on_or_refused_with_both,
    so_are_those_of_the_pages,
    what_a_newer_client_adds_is_skipped,
    a_request_that_is_not_known_is_answered_and_nothing_else,
    frames_have_the_version_that_was_agreed_on,
    tierctl_refuses_a_version_that_it_does_not_speak,
):
    test()
    frames.ping(witness)
