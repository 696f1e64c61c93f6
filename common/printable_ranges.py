#!/usr/bin/env python3
"""Writes printable_ranges.h: the code points that no terminal should get, by Unicode category.

usage: printable_ranges.py > printable_ranges.h | printable_ranges.py --check PROGRAM

PROGRAM (tests/unit/list_unprintable.c) prints the ranges that the code itself finds. unicodedata2, where it is
installed, knows a newer Unicode than Python's own unicodedata. A check against another Unicode than the table's leaves
out what is unassigned in the one that checks: the other may know it.
"""
import os
import re
import subprocess
import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

# Controls, formatting, surrogates, private use, unassigned, and the ends of lines and paragraphs.
UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
END = 0x110000


def ranges(is_member):
    begin = None
    for code in range(END + 1):
        if code < END and is_member(code):
            begin = code if begin is None else begin
        elif begin is not None:
            yield begin, code - 1
            begin = None


def category(code):
    return unicodedata.category(chr(code))


def write():
    print(f"/* By printable_ranges.py, of Unicode {unicodedata.unidata_version}. */\n/* clang-format off */")
    for first, last in ranges(lambda code: category(code) in UNPRINTABLE):
        print(f"{{ {first:#x}, {last:#x} }},")


def read_version():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "printable_ranges.h"), encoding="ascii") as header:
        return re.search(r"of Unicode ([\d.]+)\.", header.read()).group(1)


def check(program):
    lines = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n")
    found = set()
    for first, last in (line.split() for line in lines if line):
        found.update(range(int(first, 16), int(last, 16) + 1))
    same, compared = unicodedata.unidata_version == read_version(), 0
    for code in range(END):
        if category(code) == "Cn" and not same:
            continue
        compared += 1
        if (code in found) != (category(code) in UNPRINTABLE):
            sys.exit(f"U+{code:04X} is {category(code)}, and is {'not ' * (code in found)}printable by the table")
    # Letters, private use and surrogates alone are more than that.
    assert compared > 250000, compared


if sys.argv[1:2] == ["--check"]:
    check(sys.argv[2])
else:
    write()
