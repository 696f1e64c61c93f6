"""Messages that are no protobuf, or more of it than anybody needs."""
from frames import PING, REQUEST, frame
from hostile_cases.case import DEFINED, EPOCH, FINE, GREETED, JOB, OPENED, READY, Answered, Case, Refused
from hostile_cases.request import KINDS
from messages import DEFINE, EVICT, LEASES, OPEN, PREFETCH, STEP, data, number, rates, varint
from messages import PING as PING_FIELD

MALFORMED = Refused("EPROTO", "a malformed request")
UNKNOWN = Answered("EOPNOTSUPP", "does not know this request")


def packed(name, body, outcome, stage=GREETED):
    return Case(name, stage, frame(REQUEST, body, request=7), outcome)


def nested(depth):
    body = b""
    for _ in range(depth):
        body = data(1, body)
    return body


def wrong_wire_types():
    for field, what in KINDS.items():
        for wire, kind, value in ((0, "a number", b"\x01"), (1, "eight bytes", bytes(8)), (5, "four bytes", bytes(4))):
            yield packed(f"{what} as {kind}", varint(field << 3 | wire) + value, MALFORMED)


def lengths():
    for field, what in KINDS.items():
        yield packed(f"{what} that is longer than its frame", varint(field << 3 | 2) + varint(100) + bytes(50), MALFORMED)
    for length in ((1 << 31) - 1, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1):
        yield packed(f"a text of {length} bytes", varint(3 << 3 | 2) + varint(length) + bytes(50), MALFORMED)


MANY = 100000

CASES = [
    packed("nothing at all", b"", UNKNOWN),
    packed("a tag without a value", b"\x08", MALFORMED),
    packed("a tag that does not end", b"\xff" * 20, MALFORMED),
    packed("half of a tag", b"\xff", MALFORMED),
    packed("a number that does not end", b"\x08" + b"\xff" * 50, MALFORMED),
    packed("a number of eleven bytes", b"\x08" + b"\x80" * 10 + b"\x01", MALFORMED),
    packed("a group", b"\x0b\x0c", MALFORMED),
    packed("the end of a group", b"\x0c", MALFORMED),
    packed("a value of wire type 6", b"\x0e", MALFORMED),
    packed("a value of wire type 7", b"\x0f", MALFORMED),
    *wrong_wire_types(),
    *lengths(),
    packed("unknown fields nested 10,000 deep", data(2000, nested(10000)) + PING, FINE),
    packed("a job to open nested 10,000 deep", data(OPEN, nested(10000)), Answered("EINVAL", "job name")),
    packed("100,000 unknown fields", number(2000, 1) * MANY, Answered("E2BIG", "cut it into smaller ones")),
    packed("100,000 pings in one request", PING * MANY, Answered("E2BIG", "cut it into smaller ones")),
    packed("two requests in one: the last counts", data(OPEN, data(1, "x")) + PING, FINE),
    Case("a million units to prefetch", READY, (PREFETCH, number(1, JOB) + data(2, bytes(1000000))),
         Answered("E2BIG", "a hint of 1000000 units; at most 65536")),
    Case("65,536 units to prefetch", READY, (PREFETCH, number(1, JOB) + data(2, bytes(65536))), FINE),
    Case("a million units to evict", READY, (EVICT, data(1, "hostile") + data(4, bytes(1000000))),
         Answered("EINVAL", "has 3 units, not the 1000000 that are named")),
    Case("100,000 parameter groups", GREETED, (OPEN, data(1, "hostile") + number(3, 1) + data(16, b"") * MANY),
         Answered("E2BIG", "cut it into smaller ones")),
    Case("100,000 groups of rates", READY,
         (STEP, number(1, JOB) + number(2, EPOCH) + data(3, rates() + data(4, b"") * MANY)), Answered("E2BIG", "cut it")),
    Case("100,000 tensors", OPENED, (DEFINE, number(1, JOB) + data(2, "u") + data(3, b"") * MANY), Answered("E2BIG", "cut it")),
    Case("10,000 tensors without a name", OPENED, (DEFINE, number(1, JOB) + data(2, "u") + data(3, b"") * 10000),
         Answered("EINVAL", "a tensor has a name of 0 bytes")),
    Case("100,000 dimensions", OPENED,
         (DEFINE, number(1, JOB) + data(2, "u") + data(3, data(1, "t") + number(3, 1) + data(4, b"\x01" * MANY))),
         Answered("EINVAL", "100000 dimensions; at most 8")),
    Case("a packed list that ends in the middle of a number", READY, (PREFETCH, number(1, JOB) + data(2, b"\x01\xff")),
         MALFORMED),
    Case("a job's number as text", READY, (STEP, data(1, "1")), MALFORMED),
    Case("rates as a number", READY, (STEP, number(1, JOB) + number(3, 1)), MALFORMED),
    Case("a job's number twice: the last counts", READY, (STEP, number(1, JOB) + number(1, 77)),
         Answered("EINVAL", "no open job 77")),
    Case("a name of a megabyte", GREETED, (OPEN, data(1, b"x" * 1000000) + number(3, 1)), Answered("EINVAL", "job name")),
    Case("leases of a job with a name of a megabyte", DEFINED, (LEASES, data(1, b"x" * 1000000)),
         Answered("ENOENT", "there is no job")),
    Case("a ping with a megabyte in it", GREETED, (PING_FIELD, data(1, bytes(1000000))), FINE),
]
