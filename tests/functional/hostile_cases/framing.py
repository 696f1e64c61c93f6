"""Frames: headers that lie, and bytes that stop, come slowly, or in one piece."""
from frames import HELLO, HELLO_REPLY, MAGIC, PING, REPLY, REQUEST, frame, hello
from hostile_cases.case import BARE, FINE, GONE, GREETED, Case, Refused
from messages import data

MAXIMUM = (1 << 20) - 16
EVENT = 5
NO_FRAME = Refused("EPROTO", "not a frame of tierd's protocol")
TOO_LONG = Refused("EMSGSIZE", "a frame of more than 1048576 bytes")
good = frame(REQUEST, PING, request=9)
names = {0: "0", HELLO: "Hello", HELLO_REPLY: "HelloReply", REQUEST: "Request", REPLY: "Reply", EVENT: "Event"}


def wrong_magic():
    for byte in range(4):
        for stage, kind, when in ((BARE, HELLO, "before the Hello"), (GREETED, REQUEST, "after it")):
            broken = frame(kind, PING, magic=MAGIC ^ 0x20 << 8 * byte)
            yield Case(f"byte {byte} of the magic is wrong, {when}", stage, broken, NO_FRAME)
    yield Case("another protocol's greeting", BARE, b"GET / HTTP/1.1\r\nHost: tierd\r\n\r\n", NO_FRAME)
    yield Case("a big-endian header", BARE, frame(HELLO)[::-1], NO_FRAME)
    yield Case("zeros", GREETED, bytes(64), NO_FRAME)
    yield Case("ones", GREETED, b"\xff" * 64, NO_FRAME)


def wrong_types():
    for kind in (0, 6, 255, 256, 0xFFFF):
        for stage, when in ((BARE, "before the Hello"), (GREETED, "after it")):
            yield Case(f"a frame of the unknown type {kind}, {when}", stage, frame(kind), NO_FRAME)
    for kind in (HELLO_REPLY, REQUEST, REPLY, EVENT):
        refused = Refused("EPROTO", "where a Hello is expected")
        yield Case(f"a frame of type {names[kind]} before the Hello", BARE, frame(kind, PING), refused)
    for kind in (HELLO, HELLO_REPLY, REPLY, EVENT):
        refused = Refused("EPROTO", "where a Request is expected")
        yield Case(f"a frame of type {names[kind]} after the Hello", GREETED, frame(kind, PING), refused)


def wrong_versions():
    for version in (0, 2, 0xFFFF):
        refused = Refused("EPROTO", f"a frame of version {version}, agreed was 1")
        yield Case(f"a request of version {version}", GREETED, frame(REQUEST, PING, version=version), refused)


def lengths():
    for length in (MAXIMUM + 1, 1 << 24, 1 << 31, (1 << 32) - 1):
        yield Case(f"a Hello that announces {length} bytes", BARE, frame(HELLO, length=length), TOO_LONG)
        yield Case(f"a request that announces {length} bytes", GREETED, frame(REQUEST, length=length), TOO_LONG)
    for sent in (0, 1, 4096, MAXIMUM - 1):
        begun = frame(REQUEST, bytes(sent), length=MAXIMUM)
        yield Case(f"a client that goes after {sent} bytes of the largest frame", GREETED, begun, GONE)
    filler = data(15000, bytes(MAXIMUM - 7 - len(PING)))
    yield Case("a ping as large as a frame may be", GREETED, frame(REQUEST, filler + PING, request=2), FINE)
    yield Case("a Hello as large as a frame may be", BARE, frame(HELLO, data(3, b"x" * (MAXIMUM - 4))), Refused(
        "EPROTONOSUPPORT", "versions 0 to 0"))


def truncated():
    for whole, stage, what in ((hello(), BARE, "Hello"), (good, GREETED, "request")):
        for cut in range(1, len(whole)):
            yield Case(f"a client that goes after {cut} bytes of a {what}", stage, whole[:cut], GONE)


def silence():
    for sent, what in ((0, "nothing"), (7, "half of a header"), (18, "half of a Hello")):
        refused = Refused("ETIMEDOUT", "no Hello within 1000 ms")
        yield Case(f"a client that says {what}", BARE, hello()[:sent], refused)
    for sent, what in ((7, "a header"), (17, "a request")):
        refused = Refused("ETIMEDOUT", "a frame that is not complete after 1000 ms")
        yield Case(f"a client that stops in {what}", GREETED, good[:sent], refused)


def byte_by_byte(client):
    for place in range(len(good)):
        client.socket.sendall(good[place : place + 1])
    assert client.answer(9)[0] == 0


def in_one_piece(client):
    client.socket.sendall(b"".join(frame(REQUEST, PING, request=number) for number in range(2, 2002)))
    for number in range(2, 2002):
        assert client.answer(number)[0] == 0


def cut_anywhere(client):
    stream = b"".join(frame(REQUEST, PING, request=number) for number in range(2, 202))
    for place in range(0, len(stream), 7):
        client.socket.sendall(stream[place : place + 7])
    for number in range(2, 202):
        assert client.answer(number)[0] == 0


CASES = [
    *wrong_magic(),
    *wrong_types(),
    *wrong_versions(),
    *lengths(),
    *truncated(),
    *silence(),
    Case("a request that comes byte by byte", GREETED, byte_by_byte, GONE),
    Case("2,000 requests in one piece", GREETED, in_one_piece, GONE),
    Case("200 requests in pieces of 7 bytes", GREETED, cut_anywhere, GONE),
    Case("a request numbered 0", GREETED, frame(REQUEST, PING, request=0), FINE),
    Case("a request numbered 2^32-1", GREETED, frame(REQUEST, PING, request=0xFFFFFFFF), FINE),
]
