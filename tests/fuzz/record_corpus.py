#!/usr/bin/env python3
"""Writes the seeds of the record's fuzzer: records of jobs that are, and a few that cannot be.

usage: record_corpus.py FOLDER
"""
import os
import struct
import sys

from handlers_corpus import BF16, FP32, NORMAL, field, message

# What record_layout() says of the units below; of another layout the seeds are refused, and the fuzzer has to find it.
LAYOUT_SMALL, LAYOUT_ALL = 0x0277702702CA985B, 0x8BDA4528B6F1323A
NVME = 2
GROUP = message(_1=1.0, _2=0.9, _3=0.999, _4=1e-8, _5=0.01)


def fixed64(number, value):
    return field(number, struct.unpack("<d", struct.pack("<Q", value)))


def packed64(number, values):
    return field(number, struct.pack(f"<{len(values)}Q", *values))


def tensor(name, elements, format_=BF16, **more):
    return message(_1=name, _3=format_, _4=b"".join(bytes([e]) for e in elements), _7=NORMAL, _9=(0.5,), **more)


def unit(name, *tensors):
    return message(_2=name, _3=list(tensors))


def definition(options, units, layout, devices=1, format_=1, uid=1000, placement=NVME):
    return (message(_1=format_, _2=uid, _3=options, _4=placement, _5=placement, _6=devices) + fixed64(7, layout)
            + message(_8=units))


def progress(units, step=3, groups=1, scale=1.0, steps=0, format_=1, frozen=0):
    trained = units - frozen
    return (message(_1=format_, _2=step, _3=2, _4=scale) + (message(_5=steps) if steps else b"")
            + message(_6=[GROUP] * groups) + packed64(7, [min(step, 2)] * trained + [0] * frozen)
            + packed64(8, [step] * trained + [0] * frozen))


def record(defined, reached):
    return struct.pack("<H", len(defined)) + defined + reached


PLAIN = message(_1="play", _3=1, _4=3, _12=1)
RICH = message(_1="rich.job-1", _3=4, _4=3, _6=2, _7=2.5, _8=0, _9=NVME, _10=3, _11=1 << 26, _12=3, _13=1, _15=1 << 63,
               _16=[message(_1=0.5, _6=0.9), message(_1=0.1, _6=0.5, _8=1)], _17=1024.0, _18=2, _19=2.0, _20=0.5, _21=1.0,
               _22=7, _40=1 << 30, _43=2, _44=4242, _90=2)
SMALL = [unit("first", tensor("w", [16, 16]))]
ALL = [unit("first", tensor("w", [16, 16], _2="tied"), tensor("s", [], FP32, _5=1)),
       unit("second", tensor("half", [8, 16], _10="whole", _11=8, _12=16)),
       unit("third", tensor("empty", [0, 4], 3))]

SEEDS = {
    "small": record(definition(PLAIN, SMALL, LAYOUT_SMALL), progress(1)),
    "all": record(definition(RICH, ALL, LAYOUT_ALL), progress(3, groups=2, scale=2048.0, steps=1, frozen=1)),
    "host": record(definition(PLAIN, SMALL, LAYOUT_SMALL, placement=1), progress(1)),
    "devices": record(definition(PLAIN, SMALL, LAYOUT_SMALL, devices=3), progress(1)),
    "another_layout": record(definition(PLAIN, SMALL, LAYOUT_ALL), progress(1)),
    "another_progress": record(definition(PLAIN, SMALL, LAYOUT_SMALL), progress(2)),
    "counted": record(definition(RICH, ALL, LAYOUT_ALL, format_=2),
                      progress(3, groups=2, scale=2048.0, steps=1, frozen=1, format_=2) + packed64(9, [1, 0, 2, 0])),
    "counted_nothing": record(definition(PLAIN, SMALL, LAYOUT_SMALL, format_=2), progress(1, format_=2)),
    "counted_too_much": record(definition(PLAIN, SMALL, LAYOUT_SMALL, format_=2), progress(1, format_=2) + packed64(9, [3])),
    "counted_too_many": record(definition(PLAIN, SMALL, LAYOUT_SMALL, format_=2), progress(1, format_=2) + packed64(9, [1, 1])),
    "two_formats": record(definition(PLAIN, SMALL, LAYOUT_SMALL, format_=2), progress(1)),
    "grouped": record(definition(RICH, ALL, LAYOUT_ALL, format_=3),
                      progress(3, groups=2, scale=2048.0, steps=1, frozen=1, format_=3) + packed64(9, [1, 0, 2, 0]) + field(10, b"\x01\x00\x01\x00")),
    "grouped_nowhere": record(definition(PLAIN, SMALL, LAYOUT_SMALL, format_=3), progress(1, format_=3) + field(10, b"\x01")),
    "grouped_too_many": record(definition(PLAIN, SMALL, LAYOUT_SMALL, format_=3), progress(1, format_=3) + field(10, b"\x00\x00")),
    "grouped_without_room": record(definition(PLAIN, SMALL, LAYOUT_SMALL, format_=2), progress(1, format_=2) + field(10, b"\x00")),
    "future": record(definition(PLAIN, SMALL, LAYOUT_SMALL, format_=4), progress(1)),
    "future_progress": record(definition(PLAIN, SMALL, LAYOUT_SMALL), progress(1, format_=1000000)),
    "no_units": record(definition(PLAIN, [], LAYOUT_SMALL), progress(0)),
    "no_options": record(definition(b"", SMALL, LAYOUT_SMALL), progress(1)),
    "cut": record(definition(PLAIN, SMALL, LAYOUT_SMALL)[:-5], progress(1)),
    "cut_progress": record(definition(PLAIN, SMALL, LAYOUT_SMALL), progress(1)[:-5]),
    "empty": record(b"", b""),
}

if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, content in SEEDS.items():
        with open(os.path.join(sys.argv[1], name), "wb") as file:
            file.write(content)
