#!/usr/bin/env python3
"""Writes the seeds of the fuzzers of libtierd and tierctl: answers of a daemon, right ones and others.

usage: client_corpus.py FOLDER, which has folders library, library_gpu and tierctl
"""
import errno
import os
import struct
import sys

from handlers_corpus import field, message

ANSWER, REPLY, PAGES, EVENT, OTHER, FAIL, NOISE, HANG_UP = range(8)
PING, STATUS, JOBS, JOB, UNITS, LEASES, LEASES_OF, EVICT, TIERS, TOP, METRICS, PLAN, WATCH, VERIFY, SCRUB, TENSORS, LIKE = range(17)
JSON = 0x80


def record(action, content=b""):
    return bytes([action]) + struct.pack("<H", len(content)) + content


def reply(number, body, status=b""):
    return field(1, status) + field(number, body)


# ---- libtierd ----

GOOD = record(ANSWER)
# A hello, a job, two units, a ready: then everything is asked of a job that trains.
READY = GOOD * 5
ENDED = field(1, message(_1=7, _2=1, _3=message(_1=6, _2="rank 1 (pid 7) is lost")))


def at(request, *records):
    """The answers to the request of that number, and to all before it, which are right."""
    return GOOD * request + b"".join(records)


LIBRARY = {
    "good": b"",
    "hello_other_version": record(REPLY, message(_1=b"", _2=9, _3="tierd 9")),
    "hello_refused": record(REPLY, message(_1=message(_1=17, _2="it speaks versions 1 to 1"), _3="tierd 9")),
    "hello_noise": record(NOISE, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "open_refused": at(1, record(FAIL, bytes([errno.EBUSY]) + b"rank 0 is held")),
    "open_unknown_code": at(1, record(REPLY, field(1, message(_1=12345, _2="?")))),
    "open_without_window": at(1, record(REPLY, reply(2, message(_1=7, _2=1, _5=4096)))),
    "open_small_window": at(1, record(PAGES, struct.pack("<H", 12) + reply(2, message(_1=7, _2=1, _5=1 << 40))[:12])),
    "open_empty": at(1, record(REPLY)),
    "define_other": at(2, record(REPLY, reply(3, message(_1=99)))),
    "define_wrong_body": at(2, record(REPLY, reply(5, message(_1=99)))),
    "ready_without_pages": at(4, record(REPLY, reply(4, message(
        _1=1, _2=0, _3=1, _4=2, _5=4096, _6=131072, _7=40960, _8=2, _9=65536)))),
    "ready_with_room": at(4, record(REPLY, reply(4, message(
        _1=1, _2=0, _3=1, _4=2, _5=4096, _6=131072, _7=40960, _8=64, _12=65536)))),
    "ready_timeout": at(4, record(FAIL, bytes([errno.ETIMEDOUT]) + b"rank 1 is not there")),
    "gather_beyond": at(5, record(REPLY, reply(5, message(_1=1 << 40, _2=0)))),
    "gather_huge": at(5, record(REPLY, reply(5, message(_1=-1, _2=-1)))),
    "gather_again": at(5, record(FAIL, bytes([errno.EAGAIN]))),
    "gather_stale": at(5, record(FAIL, bytes([errno.ESTALE]) + b"call tierd_job_ready")),
    "epoch_ends": at(5, record(EVENT, ENDED)) + record(EVENT, ENDED),
    "epoch_of_other_job": at(5, record(EVENT, field(1, message(_1=8, _2=1)))),
    "event_empty": at(5, record(EVENT)),
    "other_request": at(5, record(OTHER, reply(5, message(_1=0)))),
    "hang_up": at(6, record(HANG_UP)),
    "noise": at(6, record(NOISE, b"\xff" * 40)),
    "half_a_frame": at(6, record(NOISE, b"tir1\x01\x00\x04\x00\x40\x00\x00\x00\x08\x00\x00\x00half")),
    "step_refused": at(11, record(FAIL, bytes([errno.EINVAL]) + b"a step without rates")),
    "step_twice": at(11, record(REPLY, reply(6, message(_1=1, _2=(0.5,), _4=1.0)))) + record(OTHER, reply(7, message(_1=1))),
    "groups": at(17, record(REPLY, reply(65, field(1, b"\x01\x00")))),
    "groups_too_many": at(17, record(REPLY, reply(65, field(1, b"\x01" * 1000)))),
    "groups_none": at(17, record(REPLY, reply(65, b""))),
    "groups_wrong_body": at(17, record(REPLY, reply(6, message(_1=1)))),
    "groups_refused": at(18, record(FAIL, bytes([errno.EBUSY]) + b"rank 0 has a step on its way")),
    "statistics": at(14, record(REPLY, reply(8, message(**{f"_{n}": n << 40 for n in range(1, 16)})))),
}

# ---- libtierd on a GPU ----

# A hello, a job, two units, a ready; the GPU, and a gather there, gradients, and a push.
ATTACH, GATHER_ON, GRADIENTS_ON, PUSH_ON = range(5, 9)
EVENT_BYTES = 64


def attached(page, **fields):
    """Two pages in one, which begin as they say, and the memory of a GPU: proto/gpu_pages.h."""
    body = reply(240, message(**{"_1": 4128, "_2": 4176, "_3": 2 << 20, **fields}))
    return record(PAGES, struct.pack("<H", len(body)) + body + struct.pack("<IIII", *page))


GPU_PAGE = (GPU_MAGIC := 0x67726974, GPU_VERSION := 1, 2, 0)
LIBRARY_GPU = {
    "good": b"",
    "attach_refused": at(ATTACH, record(FAIL, bytes([errno.ENODEV]) + b"tierd sees no GPU")),
    "attach_stale": at(ATTACH, record(FAIL, bytes([errno.ESTALE]) + b"call tierd_job_ready")),
    "attach_wrong_body": at(ATTACH, record(REPLY, reply(241, message(_1=0)))),
    "attach_without_memory": at(ATTACH, record(REPLY, reply(240, message(_1=4128, _2=4176, _3=2 << 20)))),
    "attach_lying": at(ATTACH, attached(GPU_PAGE)),
    "attach_whole": at(ATTACH, attached(GPU_PAGE, _4=1)),
    "attach_other_pages": at(ATTACH, attached((1, 2, 3, 4))),
    "attach_other_version": at(ATTACH, attached((GPU_MAGIC, GPU_VERSION + 1, 2, 0))),
    "attach_other_units": at(ATTACH, attached((GPU_MAGIC, GPU_VERSION, 3, 0))),
    "attach_small_pages": at(ATTACH, attached(GPU_PAGE, _1=4096, _2=64)),
    "attach_large_pages": at(ATTACH, attached(GPU_PAGE, _1=1 << 40, _2=-1)),
    "attach_no_bytes": at(ATTACH, attached(GPU_PAGE, _3=0)),
    "attach_odd_bytes": at(ATTACH, attached(GPU_PAGE, _3=(2 << 20) + 1)),
    "attach_huge": at(ATTACH, attached(GPU_PAGE, _3=1 << 62)),
    "attach_short_event": at(ATTACH, attached(GPU_PAGE, _5=[bytes(EVENT_BYTES), bytes(EVENT_BYTES - 1)])),
    "attach_no_event": at(ATTACH, attached(GPU_PAGE, _5=[bytes(EVENT_BYTES)] * 3)),
    "gather_on_arrived": at(ATTACH, attached(GPU_PAGE), record(REPLY, reply(241, message(_1=65536, _2=0, _4=1)))),
    "gather_on_event": at(GATHER_ON, record(REPLY, reply(241, message(_1=65536, _2=0, _3=15)))),
    "gather_on_no_event": at(GATHER_ON, record(REPLY, reply(241, message(_1=65536, _2=0, _3=16)))),
    "gather_on_far_event": at(GATHER_ON, record(REPLY, reply(241, message(_1=65536, _2=0, _3=0x7fffffff)))),
    "gather_on_end": at(GATHER_ON, record(REPLY, reply(241, message(_1=(2 << 20) - 2048, _4=1)))),
    "gather_on_beyond": at(GATHER_ON, record(REPLY, reply(241, message(_1=(2 << 20) - 1024, _4=1)))),
    "gather_on_huge": at(GATHER_ON, record(REPLY, reply(241, message(_1=-1, _2=-1, _3=0xffffffff)))),
    "gather_on_wrong_body": at(GATHER_ON, record(REPLY, reply(5, message(_1=0)))),
    "gather_on_again": at(GATHER_ON, record(FAIL, bytes([errno.EAGAIN]))),
    "gather_on_lost": at(GATHER_ON, record(FAIL, bytes([errno.ENODEV]) + b"GPU 0 is lost")),
    "gather_on_epoch_ends": at(GATHER_ON, record(EVENT, ENDED)),
    "gradients_on_refused": at(GRADIENTS_ON, record(FAIL, bytes([errno.ENOMEM]) + b"gpu_budget has no room")),
    "gradients_on_without_memory": at(GRADIENTS_ON, record(REPLY, reply(242, message(_1=2 << 20)))),
    "gradients_on_small": at(GRADIENTS_ON, record(PAGES, struct.pack("<H", 20) + reply(242, message(_1=4096)))),
    "gradients_on_odd": at(GRADIENTS_ON, record(PAGES, struct.pack("<H", 20) + reply(242, message(_1=(2 << 20) + 1)))),
    "gradients_on_huge": at(GRADIENTS_ON, record(PAGES, struct.pack("<H", 20) + reply(242, message(_1=-1)))),
    "gradients_on_lying": at(GRADIENTS_ON, record(PAGES, struct.pack("<H", 20) + reply(242, message(_1=2 << 20)))),
    "push_on_lost": at(PUSH_ON, record(FAIL, bytes([errno.ENODEV]) + b"GPU 0 is lost")),
    "hang_up": at(GRADIENTS_ON, record(HANG_UP)),
}

# ---- tierctl ----

UNKNOWN = (1 << 64) - 1
STATISTICS = message(**{f"_{n}": n * 1000003 for n in range(1, 16)})
A_GPU = message(_1=1, _2="NVIDIA H100 80GB HBM3", _3="0000:17:00.0", _4="GPU-01234567-89ab-cdef-0123-456789abcdef", _6=80 << 30, _7=1 << 30,
                _8=1 << 40, _9=1 << 36, _10=5, _11=6, **{f"_{n}": n * 1000 for n in range(12, 22)})
NODE = message(_1="0.1.0", _2=77, _3=123456, _4=2, _5=3, _6=1 << 36, _7=1 << 35, _8=[
    message(_1="/nvme/0", _2=1 << 40, _3=1 << 39, _4=5, _5=6, _6=1), message(_1="\x1b[2J", _2=0, _3=1 << 63)],
    _9="io_uring", _11="avx2", _12=8, _13=1, _15=9, _16=10, _51=1, _56=[A_GPU, message(_2="\x1b[2J", _5=1, _8=-1 & (1 << 64) - 1, _9=1)])
RANK = message(_1=0, _2=77, _3="training", _4=12, _5=34)
A_JOB = message(_1="job", _2=1000, _3="trained", _4=2, _5=3, _6=1, _7=5, _8=2, _9=600, _10=1 << 20, _11=1 << 30,
                _12=1 << 30, _13="nvme", _14="nvme", _15=[RANK, RANK], _16=STATISTICS, _17="adamw", _18=1.0, _19=100, _33="no",
                _240=[message(_1=1, _2="GPU-01234567-89ab-cdef-0123-456789abcdef", _3=1 << 30, _4=1 << 28), message(_2="\x1b[2J", _3=UNKNOWN)],
                _241=1 << 40, _242=3)
A_UNIT = message(_1=0, _2="layer 0", _3=300, _4=1200, _5="resident", _6="host+nvme", _7=1, _8=5, _9=1, _11=0, _12=b"\x96\x02")
A_TENSOR = message(_1="w", _2="tied", _3=2, _4=b"\x20\x40", _5=1)
A_SLICE = message(_1="\x1b[2J", _3=99, _4=b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" * 20, _6=1, _10="whole", _11=-1 & (1 << 64) - 1, _12=7)
LEASED = message(_1=0, _2="layer 0", _3=[message(_1=0, _2=77, _3=1, _4=55), message(_1=1, _2=78, _3=2, _5=1)])

DAMAGED = message(_1="layer 0", _2="m", _3='"weight", "\x1b[2J" and 3 more', _4="/nvme/0", _5=1 << 40, _6=1 << 18, _7="its checksum")
MENDED = message(_2="map, node 0 of level 0", _4="/nvme/0", _5=1 << 20, _6=4096, _7="its checksum", _8="a, \x1b[2J", _9=1, _10=2, _11=1)


def replied(number, body):
    return record(REPLY, reply(number, body))


def page(kind, words, version=3):
    """As proto/statistics.h has it; the second copy is shown."""
    header = struct.pack("<IIIIQ5Q", 0x74737264, version, kind, 8 * len(words), 1, *[0] * 5)
    return record(PAGES, struct.pack("<H", 2) + b"\x0a\x00" + header + bytes(504 * 8) + struct.pack(f"<{len(words)}Q", *words))


# Of one path and one GPU, whose sensors are not known; of the job that is listed.
A_NODE = [1] * 312 + [UNKNOWN] * 185
THIS_JOB = [3] * 69


def asked(command, *answers):
    return bytes([command]) + GOOD + b"".join(answers)


def options(world_size, optimizer):
    return message(_1="job", _3=world_size, _4=3, _6=optimizer, _16=message(_1=1.0))


def planned(given):
    """The job's only unit, and that there are no more."""
    return replied(71, message(_1=message(_1="u", _2=1, _3=message(_1="t", _3=2, _4=5)), _2=given)), replied(71, message(_2=given))


# Who lists leases, or plans, asks over another connection than what was asked before.
LISTED = replied(10, message(_1=A_JOB, _2=1))
TIERCTL = {
    "ping": asked(PING, record(REPLY, field(1, b""))),
    "no_hello": bytes([STATUS]) + record(HANG_UP),
    "noise": bytes([STATUS]) + record(NOISE, b"\xff" * 100),
    "status": asked(STATUS, replied(9, NODE)),
    "status_json": asked(STATUS | JSON, replied(9, NODE)),
    "status_empty": asked(STATUS, replied(9, b"")),
    "status_refused": asked(STATUS, record(FAIL, bytes([errno.EACCES]) + b"no")),
    "tiers": asked(TIERS, replied(9, NODE)),
    "tiers_json": asked(TIERS | JSON, replied(9, NODE)),
    "jobs": asked(JOBS, replied(10, message(_1=[A_JOB, A_JOB], _2=2))),
    "jobs_json": asked(JOBS | JSON, replied(10, message(_1=[A_JOB, b""], _2=9))),
    "job": asked(JOB, replied(10, message(_1=A_JOB, _2=1))),
    "job_json": asked(JOB | JSON, replied(10, message(_1=A_JOB, _2=1))),
    "job_absent": asked(JOB, replied(10, b"")),
    "units": asked(UNITS, LISTED, replied(11, message(_1=A_UNIT, _2=2)), replied(11, message(_1=A_UNIT, _2=2))),
    "units_json": asked(UNITS | JSON, LISTED, replied(11, message(_1=A_UNIT, _2=1))),
    "units_without_end": asked(UNITS, LISTED, replied(11, message(_2=5))),
    "tensors": asked(TENSORS, LISTED, replied(11, message(_1=A_UNIT, _2=1)),
                     replied(71, message(_1=message(_1="layer 0", _2=3, _3=[A_TENSOR, A_SLICE]))),
                     replied(71, message(_1=[message(_1="layer 0", _2=3, _3=A_TENSOR), message(_1="surplus", _2=1, _3=A_TENSOR)]))),
    "tensors_json": asked(TENSORS | JSON, LISTED, replied(11, message(_1=A_UNIT, _2=1)),
                          replied(71, message(_1=message(_1="layer 0", _2=2, _3=[A_TENSOR, A_SLICE])))),
    "tensors_without_end": asked(TENSORS, LISTED, replied(11, message(_1=A_UNIT, _2=1)),
                                 replied(71, message(_1=message(_1="layer 0", _2=3)))),
    "leases": asked(LEASES, LISTED, GOOD, replied(50, message(_1=LEASED, _2=1, _3=1))),
    "leases_json": asked(LEASES | JSON, LISTED, GOOD, replied(50, message(_1=LEASED, _2=1, _3=1))),
    "leases_of": asked(LEASES_OF, LISTED, GOOD, replied(50, message(_1=LEASED, _2=0, _3=9))),
    "evict": asked(EVICT, LISTED, replied(51, message(_1=2, _2=1 << 30, _3=1, _4=1))),
    "top": asked(TOP, page(1, A_NODE)),
    "top_other_version": asked(TOP, page(1, [1], version=1)),
    "metrics": asked(METRICS, page(1, A_NODE), LISTED, page(2, THIS_JOB)),
    "watch": asked(WATCH, record(EVENT, field(110, message(
        _1=1700000000 << 30, _2="epoch-ended", _3=5, _4="rank 0 is lost", _5="job", _6=1, _7=1000, _8=1, _9=0, _10=1, _11=7,
        _12="layer 0", _13="nvme", _14="/nvme/0"))), record(EVENT, field(111, message(_1=5)))),
    "watch_json": asked(WATCH | JSON, record(EVENT, field(110, message(_2="\x1b[2J", _4="a\nb"))), record(EVENT)),
    "verify": asked(VERIFY, LISTED, replied(180, message(_1=16, _2=17, _3=1 << 24, _4=5, _5=1)),
                    replied(180, message(_1=17, _2=17, _3=4096, _4=5, _5=1, _6=[DAMAGED, MENDED, message(_2="record")], _7=3))),
    "verify_json": asked(VERIFY | JSON, LISTED, replied(180, message(_1=16, _2=16, _6=[DAMAGED, MENDED]))),
    "verify_without_end": asked(VERIFY, LISTED, replied(180, message(_1=0, _2=17))),
    "scrub": asked(SCRUB, replied(181, message(_1=86400 * 30, _2=[message(_1="job", _2=1000, _3=80, _4=5, _5=1, _7=1 << 30, _8=2)]))),
    "scrub_json": asked(SCRUB | JSON, replied(181, message(_2=[message(_1="\x1b[2J", _7=1 << 62), b""]))),
    "plan": asked(PLAN, replied(9, NODE)),
    "plan_json": asked(PLAN | JSON, replied(9, NODE)),
    "like": asked(LIKE, replied(9, NODE), GOOD, LISTED, *planned(options(2, 0))),
    "like_cut": asked(LIKE, replied(9, NODE), GOOD, LISTED, replied(71, message(_1=message(_1="u", _2=3, _3=message(_1="t", _3=2, _4=5)), _2=options(2, 0))),
                      *planned(options(2, 0))),
    "like_without_options": asked(LIKE, replied(9, NODE), GOOD, LISTED, replied(71, b"")),
    "like_without_ranks": asked(LIKE, replied(9, NODE), GOOD, LISTED, *planned(options(0, 0))),
    "like_another_optimizer": asked(LIKE, replied(9, NODE), GOOD, LISTED, *planned(options(2, 99))),
}


def main():
    for folder, seeds in (("library", LIBRARY), ("library_gpu", LIBRARY_GPU), ("tierctl", TIERCTL)):
        for name, content in seeds.items():
            with open(os.path.join(sys.argv[1], folder, name), "wb") as file:
                file.write(content)


if __name__ == "__main__":
    main()
