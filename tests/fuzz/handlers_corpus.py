#!/usr/bin/env python3
"""Writes the seeds of the handlers' fuzzer: valid sessions, and a few broken ones.

usage: handlers_corpus.py FOLDER
"""
import os
import struct
import sys

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
BF16, FP32 = 2, 1
ONES, NORMAL = 2, 3


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """One field of a message: an int, a float (32 bits), a double in a tuple, text, or a packed message."""
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value & (1 << 64) - 1)
    if isinstance(value, float):
        return varint(number << 3 | FIXED32) + struct.pack("<f", value)
    if isinstance(value, tuple):
        return varint(number << 3 | FIXED64) + struct.pack("<d", *value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def message(**fields):
    """Fields by number: _1=…, _2=…; a list repeats."""
    out = b""
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            out += field(int(name[1:]), one)
    return out


REQUESTS = {name: number for number, name in enumerate(
    ["open", "define", "ready", "leave", "gather", "cancel", "prefetch", "phase", "wait", "push", "begin", "step",
     "write", "read", "statistics", "ping", "node", "jobs", "units", "await"], 1)}
REQUESTS |= {"drop": 30, "map": 40, "leases": 50, "evict": 51, "drain": 52, "let go": 53, "finish": 60, "write begin": 61, "write end": 62, "read many": 63, "groups": 64, "groups of": 65, "copy many": 76, "watch": 110, "verify": 180, "scrub": 181, "trace": 190,
             "share": 148, "follow": 191, "gpu": 240, "gpu gather": 241, "gpu gradients": 242}
REQUESTS.update({"look": 70, "list": 71, "refresh": 72, "copy": 73, "close": 74, "tensors": 75, "memory": 77})
NONE = 4  # the optimizer


def record(who, action, content=b""):
    return bytes([who | action << 1]) + struct.pack("<H", len(content)) + content


def ask(who, kind, **fields):
    return record(who, 0, field(REQUESTS[kind], message(**fields)))


# The first GPU of the stand-in, and events that the fuzzer knows by that name.
EVENT = b"event" + bytes(59)
A_GPU = {"_1": 1, "_2": 1, "_3": b"stand-in GPU" + bytes(4), "_4": 1 << 30, "_5": [EVENT] * 32, "_6": 1}


def die(who):
    return record(who, 1)


def release(who, units, buffers, unit):
    """Writes 0 to the unit's counter on the lease page."""
    counter = (4096 + 8 * 4096) // 4 + (buffers + 15) // 16 * 16 + unit
    return record(who, 2, struct.pack("<HI", counter, 0))


def settle():
    return record(0, 3)


def tensor(name, elements, number_format=BF16, initializer=ONES, frozen=0):
    return message(_1=name, _3=number_format, _4=message_of_shape(elements), _6=frozen, _7=initializer, _9=(0.5,))


def wide_tensor(name, elements):
    """Its gradients are in fp32."""
    return tensor(name, elements) + message(_14=FP32)


def message_of_shape(*shape):
    return b"".join(varint(size) for size in shape)


def opened(who, ranks, stage=3, name="play", **more):
    return ask(who, "open", _1=name, _2=who if ranks > 1 else 0, _3=ranks, _4=stage, **more)


def defined(who, job=1):
    return (ask(who, "define", _1=job, _2="one", _3=[tensor("w", 1000), tensor("norm", 10, FP32)])
            + ask(who, "define", _1=job, _2="two", _3=[tensor("f", 500, BF16, NORMAL, 1), tensor("h", 300, FP32)]))


def defined_plain(who, unit):
    """A unit without initializers."""
    return ask(who, "define", _1=1, _2=f"u{unit}", _3=[tensor(f"w{unit}", 100, BF16, 0), tensor(f"f{unit}", 50, FP32, 0, 1)])


def written_plain(who, unit):
    return ask(who, "write", _1=1, _2=unit, _5=100, _6=unit) + ask(who, "write", _1=1, _2=unit, _3=1, _5=50)


def ready(who, job=1):
    return ask(who, "ready", _1=job, _2=-1)


RATES = message(_1=0.1, _2=1.0, _3=1.0)


PAIR = {"_16": [message(_1=1.0, _2=0.9, _3=0.999, _4=1e-8), message(_1=0.5, _2=0.5, _3=0.9, _4=1e-8, _5=0.1)]}


def step(who, epoch=1, job=1):
    return ask(who, "step", _1=job, _2=epoch, _3=RATES)


def begun(who, ranks, stage=3, **more):
    return opened(who, ranks, stage, **more) + defined(who) + ready(who)


def train(who, ranks=1, epoch=1):
    return (ask(who, "gather", _1=1, _2=epoch, _3=0, _4=0, _5=1) + settle() + release(who, 2, 2, 0)
            + ask(who, "push", _1=1, _2=epoch, _3=0, _4=0) + ask(who, "push", _1=1, _2=epoch, _3=1, _4=1)
            + ask(who, "wait", _1=1, _2=epoch) + step(who, epoch))


def lacking(who, unit, bits, buffer=0):
    """A push without gradients of these tensors."""
    return ask(who, "push", _1=1, _2=1, _3=unit, _4=buffer, _6=bits) + settle()


def pushed_in_room(who, buffer=0):
    return (ask(who, "push", _1=1, _2=1, _3=0, _4=buffer, _7=buffer * 512)
            + ask(who, "push", _1=1, _2=1, _3=1, _4=buffer + 1, _7=50176 + buffer * 512))


def grouped(who, unit, numbers, epoch=1):
    """The unit's tensors move to other groups, and it is asked where they are."""
    return ask(who, "groups", _1=1, _2=epoch, _3=unit, _4=numbers) + ask(who, "groups of", _1=1, _2=unit) + settle()


def own(who, first, epoch=1, finish=True):
    """Reads gradients of a part of the first unit, writes masters there, and finishes."""
    return (ask(who, "read", _1=1, _2=0, _3=0, _4="gradient", _5=first, _6=100) + settle()
            + ask(who, "write", _1=1, _2=0, _3=0, _4=first, _5=100, _6=1) + settle()
            + (ask(who, "finish", _1=1, _2=epoch) if finish else b""))


SEEDS = {
    "owner": begun(0, 1, _6=NONE) + settle() + train(0) + settle() + own(0, 0) + settle() + train(0) + settle()
             + own(0, 500) + settle(),
    "owners": begun(0, 2, _6=NONE) + begun(1, 2, _6=NONE) + settle() + train(0) + train(1) + settle() + own(1, 600)
              + own(0, 0) + settle() + train(0) + train(1) + settle(),
    "owner-lost": begun(0, 2, 1, _6=NONE) + begun(1, 2, 1, _6=NONE) + settle() + train(0) + train(1) + settle()
                  + own(0, 0) + own(1, 600, 1, False) + die(1) + own(0, 0) + ready(0) + opened(1, 2, 1, _6=NONE)
                  + defined(1) + ready(1) + settle() + train(0, 2, 2) + train(1, 2, 2) + settle() + own(0, 0, 2),
    "owner-wrong": begun(0, 2, _6=NONE) + begun(1, 2, _6=NONE) + own(0, 0) + settle() + train(0) + own(0, 0) + train(1)
                   + settle() + own(0, 900) + own(1, 0) + step(0) + ask(0, "gather", _1=1, _2=1, _3=0, _4=1)
                   + ask(0, "finish", _1=1, _2=9) + ask(0, "leave", _1=1) + settle(),
    "absent": begun(0, 1) + settle() + lacking(0, 0, b"\x02") + lacking(0, 1, b"\x03") + step(0) + settle() + lacking(0, 0, b"\x01")
              + lacking(0, 0, b"\x04") + lacking(0, 0, b"\x01\x00") + step(0) + settle(),
    "absent-of-ranks": begun(0, 2) + begun(1, 2) + settle() + lacking(0, 0, b"\x01") + lacking(0, 0, b"\x03", 1)
                       + ask(0, "wait", _1=1, _2=1, _4=2) + settle() + lacking(1, 0, b"\x02") + step(0) + step(1) + settle() + die(1),
    "absent-owner": begun(0, 1, _6=NONE) + settle() + lacking(0, 0, b"\x01") + step(0) + settle() + own(0, 0) + settle(),
    "grouped": begun(0, 1, **PAIR) + settle() + grouped(0, 0, b"\x01\x01") + train(0) + settle() + grouped(0, 1, b"\x01\x00")
               + grouped(0, 0, b"\x00\x02") + grouped(0, 9, b"\x00") + grouped(0, 0, b"\x00") + ask(0, "begin", _1=1, _2=1, _3=RATES, _4=1)
               + grouped(0, 0, b"\x00\x00") + train(0) + grouped(0, 0, b"\x00\x01") + settle(),
    "grouped-of-ranks": begun(0, 2, **PAIR) + begun(1, 2, **PAIR) + settle() + grouped(0, 0, b"\x01\x00") + train(0) + train(1)
                        + settle() + grouped(1, 0, b"\x01\x00") + step(1) + settle() + grouped(0, 0, b"\x00\x01") + die(1) + settle()
                        + ready(0),
    "one": begun(0, 1) + settle() + train(0) + settle() + train(0) + settle() + ask(0, "leave", _1=1),
    "host": begun(0, 1, 3, _9=1, _10=1) + settle() + train(0) + settle(),
    "stage0": begun(0, 2, 0) + begun(1, 2, 0) + settle() + train(0) + train(1) + settle(),
    "stage1": begun(0, 2, 1) + begun(1, 2, 1) + settle() + train(1) + train(0) + settle() + die(1),
    "two": begun(0, 2) + begun(1, 2) + settle() + train(0) + train(1) + settle() + train(0) + train(1) + settle(),
    "lost": begun(0, 2) + begun(1, 2) + settle() + train(0) + die(1) + ready(0) + opened(1, 2) + defined(1) + ready(1)
            + settle() + train(0, 2, 2) + train(1, 2, 2) + settle(),
    "decided": begun(0, 2) + begun(1, 2) + settle() + train(0) + train(1) + die(0) + die(1) + opened(0, 2) + settle(),
    "begin": begun(0, 1) + settle() + ask(0, "begin", _1=1, _2=1, _3=RATES, _4=1) + train(0) + settle(),
    "begun": begun(0, 1) + settle() + ask(0, "begin", _1=1, _2=1, _3=RATES, _4=1)
             + ask(0, "push", _1=1, _2=1, _3=0, _4=0) + ask(0, "push", _1=1, _2=1, _3=1, _4=0) + settle() + die(0) + begun(0, 1)
             + settle() + ask(0, "begin", _1=1, _2=1, _3=RATES, _4=1) + ask(0, "push", _1=1, _2=1, _3=1, _4=0) + settle(),
    "cancel": begun(0, 2) + begun(1, 2) + settle() + train(0) + ask(0, "gather", _1=1, _2=1, _3=0, _4=1)
              + ask(0, "cancel", _1=1, _2=10) + settle(),
    "values": opened(0, 1) + ask(0, "define", _1=1, _2="u", _3=[tensor("w", 100, BF16, 0), tensor("f", 50, FP32, 0, 1)])
              + ask(0, "write", _1=1, _2=0, _3=0, _4=0, _5=100) + settle() + ask(0, "write", _1=1, _3=1, _5=50) + ready(0)
              + settle() + ask(0, "read", _1=1, _4="master", _6=100) + settle() + ask(0, "read", _1=1, _4="v", _6=7),
    "many": begun(0, 1) + settle() + train(0) + settle()
            + ask(0, "read many", _1=1, _2=1, _3=[message(_2=i % 2, _3=state, _5=10, _6=64 * i) for i, state in enumerate(("m", "master", "parameter", "v"))])
            + settle() + ask(0, "read many", _1=1, _2=1, _3=[message(_1=1, _3="parameter", _4=1, _5=499), message(_1=1, _2=1, _3="m", _5=300, _6=1000)])
            + ask(1, "look", _1="play") + settle() + ask(1, "refresh", _1=1, _2=1, _3=[message(_3="m", _7=1)]) + settle()
            + ask(1, "copy many", _1=1, _2=1, _3=[message(_3="m", _5=7), message(_3="master", _5=7, _6=64), message(_1=1, _3="parameter", _5=7, _6=128)]) + settle()
            + ask(0, "read many", _1=1, _2=1, _3=[message(_3="v", _5=1000)] * 5) + die(0) + settle(),
    "states": opened(0, 2) + opened(1, 2) + defined(0) + defined(1)
              + ask(0, "write", _1=1, _5=100, _220="m", _221=7) + ask(1, "write", _1=1, _4=50, _5=100, _220="v", _221=7) + settle()
              + ask(0, "write", _1=1, _2=1, _5=10, _220="v", _221=7) + ready(0) + ready(1) + settle() + train(0) + train(1) + settle(),
    "drafted": opened(0, 2, _24=1) + opened(1, 2, _24=1) + defined_plain(0, 0) + written_plain(0, 0) + settle() + defined_plain(0, 1)
               + written_plain(0, 1) + ask(0, "write", _1=1, _5=10, _220="m", _221=7) + settle() + defined_plain(1, 0) + written_plain(1, 1) + defined_plain(1, 1)
               + ready(0) + ready(1) + settle() + ask(0, "read", _1=1, _4="master", _6=100) + settle() + train(0) + train(1) + settle(),
    "drafted-lost": opened(0, 1, _24=1) + defined_plain(0, 0) + written_plain(0, 0) + ready(0) + written_plain(0, 0) + die(0) + settle(),
    "writing": begun(0, 2) + begun(1, 2) + settle() + train(0) + train(1) + settle() + ask(0, "write begin", _1=1, _2=1)
               + ask(1, "write begin", _1=1, _2=1) + settle() + ask(0, "write", _1=1, _5=100, _6=1) + ask(1, "write", _1=1, _2=1, _3=1, _5=300) + settle()
               + ask(0, "write", _1=1, _3=1, _5=10, _220="m", _221=77) + settle() + ask(1, "read", _1=1, _4="m", _6=7) + ask(0, "write end", _1=1, _2=1)
               + ask(1, "write end", _1=1, _2=1) + settle() + train(0) + train(1) + settle(),
    "writing-lost": begun(0, 2, 0) + begun(1, 2, 0) + settle() + ask(0, "write begin", _1=1, _2=1) + ask(1, "write begin", _1=1, _2=1) + settle()
                    + ask(0, "write", _1=1, _5=100) + ask(1, "write", _1=1, _2=1, _3=1, _5=300) + die(1) + ask(0, "write end", _1=1, _2=1) + settle()
                    + ready(0) + opened(1, 2, 0) + defined(1) + ready(1) + settle() + train(0, 2, 2) + train(1, 2, 2) + settle(),
    "writing-cancelled": begun(0, 1) + settle() + ask(0, "write begin", _1=1, _2=1) + ask(0, "write", _1=1, _5=100) + settle()
                         + ask(0, "write end", _1=1, _2=1, _3=1) + settle() + train(0) + settle() + ask(0, "write begin", _1=1, _2=1)
                         + ask(0, "write", _1=1, _5=100) + settle() + ask(0, "write end", _1=1, _2=1) + die(0) + settle(),
    "takeover": begun(0, 1) + settle() + ask(1, "open", _1="play", _3=1, _4=3, _14=1) + defined(1) + ready(1) + settle(),
    "replace": begun(0, 1) + settle() + train(0) + die(0) + opened(0, 1, 3, _5=3) + defined(0) + ready(0) + settle(),
    "reshape": begun(0, 1) + settle() + train(0) + settle() + opened(1, 2) + die(0) + opened(0, 2) + defined(0) + opened(1, 2) + defined(1)
               + ready(0) + ready(1) + settle() + train(0, 2, 2) + train(1, 2, 2) + settle() + die(0) + die(1) + opened(0, 3) + die(0) + opened(0, 2) + settle(),
    "hints": begun(0, 1) + settle() + ask(0, "prefetch", _1=1, _2=b"\x00\x01") + ask(0, "phase", _1=1, _2="eval")
             + settle() + train(0) + settle() + ask(0, "phase", _1=1, _2="train"),
    "reports": begun(0, 1) + settle() + ask(1, "ping") + ask(1, "node") + ask(1, "jobs") + ask(1, "units", _1="play")
               + ask(1, "tensors", _1="play") + ask(1, "tensors", _1="play", _4=1, _5=7) + ask(1, "tensors", _1="play", _4=1 << 31)
               + ask(0, "statistics", _1=1),
    "lease": begun(0, 2) + begun(1, 2) + settle() + ask(1, "gather", _1=1, _2=1, _3=1, _5=1) + settle() + step(1) + train(0)
             + settle() + die(1),
    "watch": ask(1, "watch", _4=1) + begun(0, 1) + settle() + train(0) + settle() + ask(0, "watch", _1="play", _2=1, _3=7)
             + ask(1, "watch", _1="x" * 65) + train(0) + die(1) + settle() + die(0),
    "trace": ask(1, "follow") + ask(1, "trace", _1="play") + begun(0, 1) + settle() + ask(1, "trace", _1="play")
             + ask(0, "trace", _1="play", _2=1, _3=7) + train(0) + settle() + ask(1, "follow") + ask(0, "trace", _1="play") + train(0)
             + ask(0, "follow") + die(1) + settle() + ask(0, "drop", _1="play", _4=1) + settle() + ask(0, "follow"),
    "reader": begun(0, 1) + settle() + ask(1, "look", _1="play") + ask(1, "list", _1=1)
              + ask(1, "refresh", _1=1, _2=1, _3=[message(_3="master", _7=1), message(_1=1, _3="parameter", _6=1)]) + settle()
              + train(0) + settle() + ask(1, "copy", _1=1, _3=0, _4="master", _6=1000) + settle()
              + ask(1, "copy", _1=1, _4="m", _6=10) + ask(1, "refresh", _1=1) + settle()
              + ask(1, "copy", _1=1, _4="m", _5=990, _6=10, _7=1) + settle() + ask(1, "close", _1=1) + ask(0, "jobs"),
    "reader_idle": begun(0, 1) + settle() + train(0) + settle() + die(0) + ask(1, "look", _1="play") + ask(1, "refresh", _1=1)
                   + ask(1, "copy", _1=1, _2=1, _3=1, _4="v", _6=300, _7=1) + settle() + ask(1, "list", _1=1, _2=1, _3=1)
                   + ask(0, "look", _1="play") + opened(0, 1, 3, _5=3) + ask(1, "copy", _1=1, _4="parameter", _6=1, _7=1) + settle(),
    "reader_lost": begun(0, 1) + settle() + ask(1, "look", _1="play") + train(0)
                   + ask(1, "refresh", _1=1, _2=1, _3=[message(_3="v", _7=1), message(_3="parameter", _5=999, _4=1)]) + die(1)
                   + settle() + ask(1, "look", _1="play") + ask(1, "refresh", _1=1, _2=1, _3=message(_1=7, _3="w")) + settle(),
    "reader_memory": begun(0, 1) + settle() + ask(1, "look", _1="play") + ask(1, "memory", _1=1, _2=4096) + ask(1, "memory", _1=1) + settle()
                     + ask(1, "memory", _1=1) + ask(1, "memory", _1=1, _2=4096) + settle() + ask(1, "memory", _1=1, _2=1 << 41)
                     + ask(1, "copy", _1=1, _4="parameter", _6=10, _8=1) + ask(1, "copy", _1=1, _4="parameter", _6=10, _9=4096)
                     + ask(1, "memory", _1=1) + ask(1, "memory", _1=1, _2=4096) + ask(1, "close", _1=1) + settle() + die(1),
    "gpu": begun(0, 1) + settle() + ask(0, "gpu", **A_GPU) + settle() + ask(0, "gpu gather", _1=1, _2=1, _3=0, _5=1) + settle()
           + ask(0, "gpu gradients", _1=1, _2=1) + settle() + ask(0, "push", _1=1, _2=1, _3=0, _4=0, _8=1) + settle() + ask(0, "gpu", **A_GPU)
           + ask(0, "gpu gather", _1=1, _2=1, _3=9, _5=1) + ask(0, "push", _1=1, _2=1, _3=1, _4=1, _8=-1) + settle(),
    "gpu_refused": begun(0, 1) + settle() + ask(0, "gpu", **A_GPU | {"_3": bytes(16)}) + settle() + ask(0, "gpu gather", _1=1, _2=1, _3=0, _5=1)
                   + ask(0, "gpu", **A_GPU | {"_5": [bytes(64)] * 32}) + settle() + ask(0, "gpu", **A_GPU | {"_5": [EVENT] * 31})
                   + ask(0, "gpu", **A_GPU | {"_4": 1}) + settle() + ask(0, "gpu gradients", _1=1, _2=1) + ask(0, "gpu", **A_GPU | {"_2": 7})
                   + ask(0, "gpu", **A_GPU | {"_7": 2.0}) + settle(),
    "gpu_lost": begun(0, 2) + begun(1, 2) + settle() + ask(0, "gpu", **A_GPU) + ask(1, "gpu", **A_GPU) + die(1) + settle()
                + ask(0, "gpu gradients", _1=1, _2=1) + ask(0, "gpu gather", _1=1, _2=1, _3=0, _5=1) + die(0) + settle(),
    "gpu_together": begun(0, 2) + begun(1, 2) + settle() + ask(0, "gpu", **A_GPU) + ask(1, "gpu", **A_GPU) + settle()
                    + ask(0, "gpu gradients", _1=1, _2=1) + ask(1, "gpu gradients", _1=1, _2=1) + settle()
                    + b"".join(ask(who, "push", _1=1, _2=1, _3=0, _4=0, _8=1) for who in (0, 1)) + settle() + step(0) + step(1) + settle(),
    "await": begun(0, 2) + begun(1, 2) + settle() + train(0) + ask(0, "gather", _1=1, _2=1, _3=0, _4=1)
             + ask(0, "await", _1=1, _2=10) + train(1) + settle(),
    "drop": begun(0, 1) + settle() + train(0) + ask(1, "drop", _1="play") + ask(1, "drop", _1="play", _4=1) + settle()
            + ask(0, "gather", _1=1, _2=1, _3=0) + opened(0, 1) + settle() + die(0) + ask(1, "drop", _1="play") + settle(),
    "drop_owner": begun(0, 1) + settle() + die(0) + ask(1, "drop", _1="play", _2=1, _3=60001) + settle(),
    "map": ask(0, "map") + begun(0, 1) + ask(1, "map", _1="play") + settle() + train(0)
           + ask(1, "map", _1="play", _2=1, _3=60001) + ask(1, "map") + settle(),
    "leases": begun(0, 2) + begun(1, 2) + settle() + ask(0, "gather", _1=1, _2=1, _3=0, _5=1)
              + ask(1, "gather", _1=1, _2=1, _3=1) + settle() + ask(1, "leases", _1="play")
              + ask(1, "leases", _1="play", _4=1) + ask(1, "leases", _1="play", _4=7) + die(0) + ask(1, "leases", _1="play"),
    "evict": begun(0, 1) + settle() + ask(0, "gather", _1=1, _2=1, _3=0, _5=1) + settle() + ask(1, "evict", _1="play")
             + release(0, 2, 2, 0) + ask(1, "evict", _1="play", _4=b"\x00\x01") + settle()
             + ask(1, "evict", _1="play", _4=b"\x02") + ask(0, "gather", _1=1, _2=1, _3=1, _5=1) + settle(),
    "release": begun(0, 1) + settle() + ask(1, "let go", _1="play") + train(0) + die(0) + ask(1, "let go", _1="play") + settle()
               + ask(1, "let go", _1="play") + ask(1, "let go", _1="none") + opened(0, 1) + settle(),
    "verify": begun(0, 1) + ask(1, "verify", _1="play") + settle() + ask(0, "verify", _1="play") + ask(0, "verify", _1="play", _4=5)
              + ask(1, "verify", _1="play", _4=1 << 60) + ask(1, "verify", _1="play", _5=9) + settle(),
    "share": opened(0, 1, _43=2, _44=7) + ask(1, "share", _1="play", _4=1) + defined(0) + ready(0) + ask(1, "look", _1="play") + settle()
             + ask(1, "share", _1="play", _4=2, _5=1, _6=7) + ask(1, "share", _1="play") + settle() + ask(1, "share", _1="play", _4=1)
             + ask(1, "share", _1="play", _4=3) + ask(0, "verify", _1="play") + ask(1, "share", _1="play", _4=1, _5=1, _6=9) + train(0) + settle()
             + die(0) + ask(1, "share", _1="play") + opened(0, 1, _43=1) + settle() + ask(1, "share", _1="none"),
    "scrub": begun(0, 1) + ask(1, "scrub", _1="play", _4=1) + settle() + ask(1, "scrub") + ask(1, "scrub", _4=2) + settle()
             + ask(1, "scrub", _4=7) + ask(1, "scrub", _1="none"),
    "verify_dropped": begun(0, 1) + ask(1, "verify", _1="play") + ask(0, "verify", _1="play") + ask(1, "drop", _1="play", _4=1) + settle(),
    "drain": begun(0, 1) + settle() + ask(1, "drain") + opened(1, 1, 3, "more") + train(0) + settle()
             + ask(1, "drain", _1=1) + opened(1, 1, 3, "more") + settle(),
    "room": begun(0, 2, _23=100000) + begun(1, 2, _23=100000) + settle() + pushed_in_room(0) + ask(0, "push", _1=1, _2=1, _3=1, _4=6, _7=256)
            + ask(0, "push", _1=1, _2=1, _3=1, _4=7, _7=-256) + ask(0, "wait", _1=1, _2=1, _3=0, _4=2, _5=512, _6=60000) + settle() + pushed_in_room(0, 8)
            + ask(0, "wait", _1=1, _2=1, _3=0, _4=9, _5=-1, _6=-1) + settle() + pushed_in_room(1) + settle() + step(0) + step(1) + settle()
            + pushed_in_room(0) + die(1) + settle(),
    "room-small": begun(0, 1, 2, _12=1, _23=1) + settle() + pushed_in_room(0) + settle() + step(0) + settle(),
    "wide": opened(0, 1, _210=1) + ask(0, "define", _1=1, _2="mixed", _3=[wide_tensor("a", 100), tensor("b", 50)])
            + ask(0, "define", _1=1, _2="other", _3=[tensor("c", 50) + message(_14=9)])
            + ask(0, "define", _1=1, _2="one", _3=[wide_tensor("w", 1000), tensor("norm", 10, FP32)])
            + ask(0, "define", _1=1, _2="two", _3=[tensor("f", 500, BF16, NORMAL, 1) + message(_14=9), wide_tensor("h", 300)])
            + ready(0) + settle() + train(0) + settle() + train(0) + die(0) + settle(),
    "small": begun(0, 1, 3, _11=1000000) + settle(),
}


def main():
    for name, content in SEEDS.items():
        with open(os.path.join(sys.argv[1], name), "wb") as file:
            file.write(content)


if __name__ == "__main__":
    main()
