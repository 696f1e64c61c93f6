"""Every request there is, as it is when nothing is wrong with it."""
from hostile_cases.case import EPOCH, JOB
from messages import (
    AWAIT, BEGIN, CANCEL, DEFINE, DRAIN, DROP, EVICT, FINISH, GATHER, JOBS, LEASES, LEAVE, MAP, NODE, OPEN, PHASE, PING, PREFETCH,
    PUSH, READ, READY, STATISTICS, STEP, UNITS, WAIT, WRITE, data, number, rates, varint,
)

KINDS = {
    OPEN: "a job to open", DEFINE: "a unit", READY: "a ready", LEAVE: "a leave", GATHER: "a gather", CANCEL: "a cancel",
    PREFETCH: "a prefetch", PHASE: "a phase", WAIT: "a wait for a buffer", PUSH: "a push", BEGIN: "an announced step",
    STEP: "a step", WRITE: "values to write", READ: "values to read", STATISTICS: "a question for statistics",
    PING: "a ping", NODE: "a question for the node", JOBS: "a question for the jobs", UNITS: "a question for the units",
    AWAIT: "an await", DROP: "a job to drop", MAP: "a question for a page", LEASES: "a question for leases",
    EVICT: "units to evict", DRAIN: "a drain", FINISH: "a step to finish",
}

tensor = data(1, "t") + number(3, 1) + data(4, varint(10)) + number(7, 2)


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
        WRITE: name + number(2, unit) + number(5, 10),
        READ: name + number(2, unit) + data(4, "parameter") + number(6, 10),
        STATISTICS: name,
        AWAIT: name + number(2, 1),
    }
