"""Hellos: absent, twice, late, of other versions, with names that are made for a terminal or a log."""
from frames import HELLO, PING, REQUEST, frame, hello
from hostile_cases.case import BARE, FINE, GONE, GREETED, READY, Case, Refused
from messages import data, number

SECOND = Refused("EPROTO", "a frame of type 1, where a Request is expected")
MALFORMED = Refused("EPROTO", "its Hello is malformed")


def versions(minimum, maximum):
    refused = Refused("EPROTONOSUPPORT", f"versions {minimum} to {maximum} of the protocol")
    body = number(1, minimum) + number(2, maximum)
    return Case(f"a Hello of the versions {minimum} to {maximum}", BARE, frame(HELLO, body), refused)


def named(what, program):
    """Greets, and pings."""
    greeting = frame(HELLO, number(1, 1) + number(2, 1) + data(3, program), request=1)

    def act(client):
        client.socket.sendall(greeting + frame(REQUEST, PING, request=2))
        assert client.answer(2)[0] == 0

    return Case(f"a program whose name {what}", BARE, act, GONE)


CASES = [
    versions(0, 0),
    versions(2, 9),
    versions(9, 1),
    versions(0xFFFFFFFF, 0xFFFFFFFF),
    Case("a Hello without versions", BARE, frame(HELLO), Refused("EPROTONOSUPPORT", "versions 0 to 0")),
    Case("a Hello of garbage", BARE, frame(HELLO, b"\xff" * 8), MALFORMED),
    Case("a Hello whose versions are text", BARE, frame(HELLO, data(1, "1") + data(2, "1")), MALFORMED),
    Case("a Hello whose name goes beyond it", BARE, frame(HELLO, hello()[16:] + b"\x1a\x7f"), MALFORMED),
    Case("a second Hello", GREETED, hello(), SECOND),
    Case("a second Hello in the middle of a training", READY, hello(), SECOND),
    Case("a request before the Hello", BARE, frame(REQUEST, PING), Refused("EPROTO", "where a Hello is expected")),
    Case("two Hellos in one piece", BARE, lambda client: greet_twice(client), GONE),
    Case("every version there is", BARE, lambda client: greet_widely(client), GONE),
    named("is empty", b""),
    named("ends a line of the log", b"x\ntierd: all is well\n"),
    named("has an escape sequence", b"\x1b[2J\x1b]0;tierd\x07"),
    named("has a NUL", b"a\x00b"),
    named("is not UTF-8", b"\xff\xfe\x80\xc0\xaf"),
    named("is a format", b"%s%s%s%n%n%1000000d"),
    named("is of 100,000 bytes", b"x" * 100000),
    Case("a request numbered as the Hello", GREETED, frame(REQUEST, PING, request=1), FINE),
]


def greet_twice(client):
    client.socket.sendall(hello() + hello())
    assert client.next_frame()[0] == 2
    kind, _, body = client.next_frame()
    assert kind == 4 and b"where a Request is expected" in body[1], body


def greet_widely(client):
    client.socket.sendall(frame(HELLO, number(1, 0) + number(2, 0xFFFFFFFF)) + frame(REQUEST, PING, request=2))
    assert client.answer(2)[0] == 0
