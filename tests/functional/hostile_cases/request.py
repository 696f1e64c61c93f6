"""Every request there is, as it is when nothing is wrong with it."""
from hostile_cases.case import EPOCH, JOB, READER
from messages import FORK, RESERVE, RETAIN, ROLL_BACK, SHARE, SNAPSHOT, SNAPSHOT_DELETE, SNAPSHOT_DIFF, SNAPSHOTS
from messages import (
    AWAIT, BEGIN, CANCEL, DEFINE, DRAIN, DROP, EVICT, FINISH, GATHER, GPU_ATTACH, GPU_GATHER, GPU_GRADIENTS, GROUPS_GET, GROUPS_SET, HURRY, JOBS, LEASES, LEAVE, MAP, NODE, OPEN, PHASE, PING, PREFETCH,
    PUSH, READ, READER_CLOSE, READER_OPEN, RELEASE, READER_READ, READER_REFRESH, READER_UNITS, READY, STATISTICS, STEP, TENSORS, UNITS, WAIT, WATCH,
    READ_MANY, READER_MEMORY, READER_READ_MANY, SCRUB, TRACE, TRACE_READ, VERIFY, WRITE, WRITE_BEGIN, WRITE_END, data, number, rates, varint,
)

KINDS = {
    OPEN: "a job to open", DEFINE: "a unit", READY: "a ready", LEAVE: "a leave", GATHER: "a gather", CANCEL: "a cancel",
    PREFETCH: "a prefetch", PHASE: "a phase", WAIT: "a wait for a buffer", PUSH: "a push", BEGIN: "an announced step",
    STEP: "a step", WRITE: "values to write", READ: "values to read", STATISTICS: "a question for statistics",
    PING: "a ping", NODE: "a question for the node", JOBS: "a question for the jobs", UNITS: "a question for the units",
    TENSORS: "a question for tensors",
    AWAIT: "an await", DROP: "a job to drop", MAP: "a question for a page", LEASES: "a question for leases",
    EVICT: "units to evict", RELEASE: "a job to release", DRAIN: "a drain", FINISH: "a step to finish", HURRY: "a step to hurry",
    READ_MANY: "many values to read", READER_READ_MANY: "many values for a reader",
    WRITE_BEGIN: "a writing", WRITE_END: "the end of a writing", GROUPS_SET: "groups", GROUPS_GET: "a question for groups",
    READER_OPEN: "a reader to open", READER_UNITS: "a reader's question for units", READER_REFRESH: "a refresh",
    READER_READ: "values for a reader", READER_CLOSE: "a reader to close", READER_MEMORY: "a reader's memory", WATCH: "a watch",
    VERIFY: "a part to verify", SCRUB: "a question for the scrub", TRACE: "a trace", TRACE_READ: "a trace to read",
    SNAPSHOT: "a snapshot", SNAPSHOT_DELETE: "a snapshot to delete", SNAPSHOTS: "a question for snapshots",
    SNAPSHOT_DIFF: "snapshots to compare", ROLL_BACK: "a roll back", RESERVE: "room for snapshots", RETAIN: "steps to keep", FORK: "a fork",
    SHARE: "a job to share", GPU_ATTACH: "a GPU", GPU_GATHER: "a gather on a GPU",
    GPU_GRADIENTS: "gradients on a GPU",
}

EVENTS, HANDLE, UUID = 32, bytes(64), bytes(16)

tensor = data(1, "t") + number(3, 1) + data(4, varint(10)) + number(7, 2)


def piece_to_read(unit=0, tensor=0, state="parameter", first=0, count=10, at=0):
    """Of a read of many."""
    return number(1, unit) + number(2, tensor) + data(3, state) + number(4, first) + number(5, count) + number(6, at)


def of_job(job=JOB, epoch=EPOCH, unit=0):
    """Those that name a job of this connection: {field: body}."""
    name, now = number(1, job), number(1, job) + number(2, epoch)
    return {
        DEFINE: name + data(2, "more") + data(3, tensor),
        READY: name,
        LEAVE: name + number(2, 1),
        GATHER: now + number(3, unit),
        CANCEL: name + number(2, 1),
        PREFETCH: name + data(2, varint(unit)),
        PHASE: name + data(2, "eval"),
        WAIT: now,
        PUSH: now + number(3, unit),
        BEGIN: now + data(3, rates()) + number(4, 1),
        STEP: now + data(3, rates()),
        FINISH: now,
        WRITE_BEGIN: now,
        WRITE_END: now,
        GROUPS_SET: now + number(3, unit) + data(4, varint(0)),
        GROUPS_GET: name + number(2, unit),
        WRITE: name + number(2, unit) + number(5, 10),
        READ: name + number(2, unit) + data(4, "parameter") + number(6, 10),
        READ_MANY: name + data(3, piece_to_read(unit)) * 2,
        STATISTICS: name,
        GPU_ATTACH: now + data(3, UUID) + data(5, HANDLE) * EVENTS,
        GPU_GATHER: now + number(3, unit),
        GPU_GRADIENTS: now,
        AWAIT: name + number(2, 1),
        HURRY: name + number(2, 1),
    }


def piece(unit=0, tensor=0, state="parameter", first=0, count=10, tensors=0, units=0):
    """What a reader wants kept."""
    whole = number(6, tensors) + number(7, units)
    return number(1, unit) + number(2, tensor) + data(3, state) + number(4, first) + number(5, count) + whole


def of_reader(reader=READER, **values):
    """Those that name a reader of this connection; values: of a piece, to keep or to read."""
    name = number(1, reader)
    tensor = {"unit": 0, "tensor": 0, "state": "parameter", "first": 0, "count": 10} | values
    read = number(2, tensor["unit"]) + number(3, tensor["tensor"]) + data(4, tensor["state"])
    return {
        READER_UNITS: name,
        READER_REFRESH: name + number(2, 1) + data(3, piece(**tensor)),
        READER_READ: name + read + number(5, tensor["first"]) + number(6, tensor["count"]),
        READER_READ_MANY: name + data(3, piece_to_read(**tensor)) * 2,
        READER_MEMORY: name,
        READER_CLOSE: name,
    }


def of_snapshot(job="hostile", snapshot="kept"):
    """Those that are about a snapshot of a job."""
    return {field: data(1, job) + data(4, snapshot) for field in (SNAPSHOT, SNAPSHOT_DELETE, SNAPSHOT_DIFF, ROLL_BACK)}
