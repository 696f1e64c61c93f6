#!/usr/bin/env python3
"""Writes the seeds of the fuzzer of the list of jobs: lists that are, and a few that cannot be.

usage: job_list_corpus.py FOLDER
"""
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "store"))
import read_store  # noqa: E402


def word(number):
    return struct.pack("<Q", number)


def text(string):
    return word(len(string)) + string.encode()


def front(format_=1):
    return b"tierdlst" + word(format_) + word(9)


def store(file, paths, jobs):
    listed = b"".join(text(name) + word(number) + word(is_given_up) for name, number, is_given_up in jobs)
    return text(file) + bytes(range(16)) + word(7) + word(len(paths)) + b"".join(map(word, paths)) + word(len(jobs)) + listed


def seal(content):
    return content + word(read_store.checksum(content))


PATHS = word(2) + b"\1" * 16 + text("/mnt/a") + b"\2" * 16 + text("/mnt/b")
GPT = [("gpt", 5, 0)]
JOBS = seal(
    front() + PATHS + word(2) + store("1000/gpt-5.store", [0, 1], [*GPT, ("fork", 6, 1)]) + store("0/a-b-1.store", [1], [("a-b", 1, 0)])
)
SEEDS = {
    "empty": seal(front() + word(0) + word(0)),
    "paths": seal(front() + PATHS + word(0)),
    "jobs": JOBS,
    "later": seal(front(2) + PATHS + word(0)),
    "no_such_path": seal(front() + word(0) + word(1) + store("1000/gpt-5.store", [3], GPT)),
    "elsewhere": seal(front() + word(0) + word(1) + store("../gpt-5.store", [], GPT)),
    "no_jobs": seal(front() + word(0) + word(1) + store("1000/gpt-5.store", [], [])),
    "cut": JOBS[:100],
}
for name, seed in SEEDS.items():
    with open(os.path.join(sys.argv[1], name), "wb") as file:
        file.write(seed)
