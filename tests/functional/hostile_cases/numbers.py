"""Numbers: too large, below zero, not finite, not numbers at all, and products that overflow."""
import struct
from math import inf, nan

from hostile_cases.case import DEFINED, ELEMENTS, EPOCH, FINE, GREETED, JOB, OPENED, READY, Answered, Case, one_of
from messages import BEGIN, DEFINE, OPEN, READ, STEP, WRITE, data, number, rates, real, varint
from messages import READY as READY_FIELD

BEYOND = 0xFFFFFFFF
# In the messages of JobOpen, Group, Tensor and Rates.
WORLD, STAGE, MODE, OPTIMIZER, CLIP, NONFINITE, PARAMETERS, MOMENTS, BUDGET, BUFFERS = range(3, 13)
HAS_CLIP, ROOM = 5, 23
RANK, GROUPS, SCALE, INTERVAL, GROWTH, BACKOFF, MINIMUM, WEIGHT, NVME, SHARING, DURABILITY = 2, 16, 17, 18, 19, 20, 21, 22, 40, 43, 160


def opened(what, more, code, words):
    """An option that is refused when the job is opened: nothing is left of the job."""
    body = data(1, "hostile") + number(WORLD, 1) + number(STAGE, 3) + more
    return Case(f"a job with {what}", GREETED, (OPEN, body), Answered(code, words))


def options():
    for value in (0, 1025, BEYOND):
        yield opened(f"world size {value}", number(WORLD, value), "EINVAL", f"world size {value}")
    for value in (1, BEYOND):
        yield opened(f"rank {value} of 1", number(RANK, value), "EINVAL", f"rank {value} of world size 1")
    for field, name, values, words in (
        (STAGE, "stage", (4, BEYOND), "stage"), (MODE, "mode", (4, BEYOND), "no open mode"),
        (OPTIMIZER, "optimizer", (99, BEYOND), "no optimizer"), (NONFINITE, "nonfinite", (2, BEYOND), "no treatment"),
        (PARAMETERS, "parameter placement", (99, BEYOND), "placement"),
        (MOMENTS, "optimizer placement", (99, BEYOND), "placement"),
        (BUFFERS, "gradient buffers", (65, BEYOND), "gradient buffers"), (ROOM, "gradient_bytes", ((1 << 50) + 1, (1 << 64) - 1), "gradient_bytes is"), (WEIGHT, "io_weight", (10001, BEYOND), "io_weight"),
        (SHARING, "sharing", (3, BEYOND), "no sharing"), (DURABILITY, "durability", (86401, BEYOND - 2), "durability is"),
    ):
        for value in values:
            yield opened(f"{name} {value}", number(field, value), "EINVAL", words)
    for value in (nan, inf, -inf, -1.0):
        yield opened(f"clip_norm {value}", real(CLIP, value), "EINVAL", "clip_norm")
    for value in (nan, inf, -inf, -1.0):
        yield opened(f"loss scale {value}", real(SCALE, value), "EINVAL", "loss")
    for field, name in ((GROWTH, "growth"), (BACKOFF, "backoff"), (MINIMUM, "minimum")):
        for value in (nan, inf, -inf, -1.0):
            dynamic = {GROWTH: 2.0, BACKOFF: 0.5, MINIMUM: 1.0} | {field: value}
            more = real(SCALE, 1024.0) + number(INTERVAL, 10) + b"".join(real(*each) for each in dynamic.items())
            yield opened(f"a loss scale's {name} of {value}", more, "EINVAL", "")


def groups():
    rate = real(1, 0.1) + real(2, 0.9) + real(3, 0.999) + real(4, 1e-8)
    for field, name, values in (
        (1, "learning rate", (nan, inf, -inf)), (2, "beta1", (nan, inf, -0.1, 1.0, 2.0)),
        (3, "beta2", (nan, inf, -0.1, 1.0, 2.0)), (4, "epsilon", (nan, inf, -1.0)), (5, "weight decay", (nan, inf, -inf)),
    ):
        for value in values:
            yield opened(f"a group whose {name} is {value}", data(GROUPS, rate + real(field, value)), "EINVAL", "parameter group 0")
    yield opened("1025 groups", data(GROUPS, rate) * 1025, "EINVAL", "1025 parameter groups; at most 1024")


def tensor(shape=(10,), fmt=1, group=0, initializer=2, a=0.0, b=0.0, frozen=0, more=b""):
    reals = varint(8 << 3 | 1) + struct.pack("<d", a) + varint(9 << 3 | 1) + struct.pack("<d", b)
    sizes = data(4, b"".join(varint(size) for size in shape))
    return data(1, "t") + number(3, fmt) + sizes + number(5, group) + number(6, frozen) + number(7, initializer) + reals + more


def defined(what, described, code, words):
    return Case(f"a tensor {what}", OPENED, (DEFINE, number(1, JOB) + data(2, "u") + data(3, described)), Answered(code, words))


def tensors():
    for shape in ((1 << 32, 1 << 32), (1 << 63, 2), ((1 << 64) - 1,), (1 << 63, 1 << 63, 1 << 63), ((1 << 44) + 1,),
                  (1 << 32, 1 << 31, 1 << 31), (1 << 16,) * 5):
        yield defined(f"of the shape {shape}", tensor(shape), "EOVERFLOW", "too large")
    yield defined("of nine dimensions", tensor((1,) * 9), "EINVAL", "9 dimensions")
    for value in (0, 5, BEYOND):
        yield defined(f"of format {value}", tensor(fmt=value), "EINVAL", f"unknown format {value}")
    for value in (1, BEYOND):
        yield defined(f"of group {value}", tensor(group=value), "EINVAL", f"parameter group {value}; the job has 1")
    for value in (5, BEYOND):
        yield defined(f"with initializer {value}", tensor(initializer=value), "EINVAL", f"no initializer {value}")
    for value in (2, 3, 4, 5, BEYOND):
        yield defined(f"with gradients of format {value}", tensor(more=number(14, value)), "EINVAL", f"cannot have gradients of format {value}")
    for value in (nan, inf, -inf):
        yield defined(f"initialized around {value}", tensor(initializer=3, a=value), "EINVAL", "not finite")
        yield defined(f"initialized up to {value}", tensor(initializer=4, b=value), "EINVAL", "not finite")
    yield defined("of a deviation below zero", tensor(initializer=3, b=-1.0), "EINVAL", "below 0")
    yield defined("of bytes to train", tensor(fmt=4), "EINVAL", "holds bytes")
    yield defined("of bytes with an initializer", tensor(fmt=4, frozen=1), "EINVAL", "initializers make numbers")
    sliced = data(10, "whole")
    for first, rows in ((0, 9), (1, 10), (-1, 10), (-10, 10), (1 << 63, 1 << 63)):
        more = sliced + number(11, first) + number(12, rows)
        yield defined(f"of rows {first} to {first + 10} of {rows}", tensor(more=more), "EINVAL", "go beyond the")
    yield defined("that is a scalar and a slice", tensor((), more=sliced + number(12, 1)), "EINVAL", "a scalar cannot be a slice")


def step_rates():
    here = number(1, JOB) + number(2, EPOCH)
    for field, name in ((1, "learning rate"), (2, "gradient scale"), (3, "loss scale"), (HAS_CLIP + 1, "clip norm")):
        for value in (nan, inf, -inf) + ((-1.0,) if field == 3 else ()):
            for kind, what in ((STEP, "a step"), (BEGIN, "an announced step")):
                body = here + data(3, rates() + number(HAS_CLIP, 1) + real(field, value)) + (number(4, 1) if kind == BEGIN else b"")
                yield Case(f"{what} whose {name} is {value}", READY, (kind, body), Answered("EINVAL", "must be finite"))
    body = here + data(3, rates() + data(4, b"") * 2)
    yield Case("a step with the rates of two groups", READY, (STEP, body), Answered("EINVAL", "rates for 2 parameter groups"))


def ranges():
    for first, count in ((ELEMENTS, 1), (ELEMENTS - 1, 2), (0, ELEMENTS + 1), (-1, 1), (-1, 2), (1, -1), (1 << 63, 1 << 63), (0, 1 << 62)):
        body = number(1, JOB) + data(4, "m") + number(5, first) + number(6, count)
        yield Case(f"{count} values to read from {first} on", READY, (READ, body), one_of("EINVAL", "ERANGE", "E2BIG"))
        body = number(1, JOB) + number(4, first) + number(5, count)
        yield Case(f"{count} values to write from {first} on", DEFINED, (WRITE, body), one_of("EINVAL", "ERANGE", "E2BIG"))


def budgets():
    """What a job needs is known when it gets ready."""
    for field, name in ((BUDGET, "memory"), (NVME, "NVMe")):
        yield Case(f"a job that may have 2^64-1 bytes of {name}", GREETED, opens_with(number(field, -1)), None)
    yield Case("a job that asks for one byte of memory", GREETED, lambda client: unready(client, number(BUDGET, 1)), None)
    yield Case("a job that asks for one byte of NVMe", GREETED, lambda client: unready(client, number(NVME, 1)), None)
    yield Case("a job of a unit larger than all memory", GREETED, lambda client: unready(client, b"", 1 << 40), None)


def opens_with(more):
    def act(client):
        status, text, _ = client.call(OPEN, data(1, "hostile") + number(WORLD, 1) + number(STAGE, 3) + more)
        assert status == 0, text

    return act


def unready(client, more, elements=ELEMENTS):
    """It is opened, or not; defines a unit, or not; it is never ready."""
    code, _, body = client.call(OPEN, data(1, "hostile") + number(WORLD, 1) + number(STAGE, 3) + more)
    if code == 0:
        described = data(1, "t") + number(3, 1) + data(4, varint(elements)) + number(7, 2)
        code, _, _ = client.call(DEFINE, number(1, body[1]) + data(2, "u") + data(3, described))
    if code == 0:
        code, text, _ = client.call(READY_FIELD, number(1, body[1]) + number(2, 20000))
        assert "host" in text or "NVMe" in text, text
    assert code != 0


CASES = [
    *options(),
    *groups(),
    *tensors(),
    *step_rates(),
    *ranges(),
    *budgets(),
    Case("an announced step of 2^32-1 micro-batches", READY,
         (BEGIN, number(1, JOB) + number(2, EPOCH) + data(3, rates()) + number(4, BEYOND)), FINE),
    Case("a ready that waits for no time", OPENED, (READY_FIELD, number(1, JOB)), one_of("EINVAL", "ETIMEDOUT")),
]
