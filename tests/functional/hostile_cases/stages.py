"""Requests that are right, at a stage where they are not, or about what is not there; and requests with nothing in them."""
from hostile_cases.case import BUFFERS, DEFINED, ELEMENTS, EPOCH, FINE, GONE, GREETED, JOB, LEFT, OPENED, READY, UNITS, Answered, Case, one_of
from hostile_cases.request import KINDS, of_job, of_reader, piece_to_read
from messages import FORK, RESERVE, RETAIN, ROLL_BACK, SHARE, SNAPSHOT, SNAPSHOT_DELETE, SNAPSHOT_DIFF, SNAPSHOTS
from messages import (
    AWAIT, BEGIN, CANCEL, DEFINE, DRAIN, DROP, EVICT, FINISH, GATHER, GPU_ATTACH, GPU_GATHER, GPU_GRADIENTS, GROUPS_GET, GROUPS_SET, HURRY, JOBS, LEASES, LEAVE, MAP, NODE, OPEN, PHASE, PING, PREFETCH,
    PUSH, READ, READ_MANY, READER_OPEN, READY as READY_FIELD, RELEASE, SCRUB, STEP, TENSORS, UNITS as UNITS_FIELD, VERIFY, WAIT, WRITE, WRITE_BEGIN,
    WRITE_END, codes, data, define, number, open_job, rates, varint,
)

NOT_READY = Answered("EINVAL", "this rank has not called tierd_job_ready")
BEYOND = 0xFFFFFFFF
CODES = codes() | {"OK": 0}


def no_job(job):
    return Answered("EINVAL", f"this connection has no open job {job}")


def no_reader(reader):
    return Answered("EINVAL", f"this connection has no reader {reader}")


def empty():
    """A request's message without any field in it."""
    expected = {field: no_job(0) for field in of_job()} | {field: no_reader(0) for field in of_reader()}
    expected |= {OPEN: Answered("EINVAL", "job name"), PING: FINE, NODE: FINE, JOBS: FINE, MAP: FINE, SCRUB: FINE}
    expected |= {field: Answered("ENOENT", "there is no job") for field in (UNITS_FIELD, TENSORS, DROP, LEASES, EVICT, RELEASE, READER_OPEN, VERIFY)}
    expected |= {field: Answered("ENOENT", "there is no job") for field in (SNAPSHOT, SNAPSHOT_DELETE, SNAPSHOTS, SNAPSHOT_DIFF, ROLL_BACK)}
    expected[RESERVE] = expected[RETAIN] = expected[FORK] = expected[SHARE] = Answered("ENOENT", "there is no job")
    for field, outcome in expected.items():
        yield Case(f"{KINDS[field]} with nothing in it", GREETED, (field, b""), outcome)


def without_job():
    for field, body in of_job().items():
        yield Case(f"{KINDS[field]} before a job is open", GREETED, (field, body), no_job(JOB))
    for field, body in of_job().items():
        yield Case(f"{KINDS[field]} after the job was left", LEFT, (field, body), no_job(JOB))
    for job in (0, JOB + 1, BEYOND):
        for field, body in of_job(job=job).items():
            yield Case(f"{KINDS[field]} of job {job}", READY, (field, body), no_job(job))


def too_early():
    for field in (GATHER, GPU_ATTACH, GPU_GATHER, GPU_GRADIENTS, PHASE, WAIT, PUSH, BEGIN, STEP, FINISH, WRITE_BEGIN, WRITE_END, READ, READ_MANY, GROUPS_SET):
        yield Case(f"{KINDS[field]} before units are defined", OPENED, (field, of_job()[field]), NOT_READY)
        yield Case(f"{KINDS[field]} before the job is ready", DEFINED, (field, of_job()[field]), NOT_READY)


def other_epochs():
    for epoch in (0, EPOCH + 1, BEYOND):
        for field in (GATHER, GPU_ATTACH, GPU_GATHER, GPU_GRADIENTS, WAIT, PUSH, BEGIN, STEP, FINISH, WRITE_BEGIN, WRITE_END, GROUPS_SET):
            body = of_job(epoch=epoch)[field]
            yield Case(f"{KINDS[field]} of epoch {epoch}", READY, (field, body), Answered("ESTALE", "call tierd_job_ready"))


def other_units():
    for unit in (UNITS, 1 << 16, 1 << 31, BEYOND):
        for field in (GATHER, GPU_GATHER, PUSH, READ, READ_MANY, GROUPS_SET, GROUPS_GET):
            body = of_job(unit=unit)[field]
            yield Case(f"{KINDS[field]} of unit {unit}", READY, (field, body), Answered("EINVAL", f"no unit {unit}"))
        body = number(1, JOB) + number(2, unit) + number(5, 1)
        yield Case(f"values to write to unit {unit}", DEFINED, (WRITE, body), Answered("EINVAL", f"no unit {unit}"))
        yield Case(f"a prefetch of unit {unit}", READY, (PREFETCH, of_job(unit=unit)[PREFETCH]), one_of("OK", "EINVAL"))
        body = data(1, "hostile") + data(4, varint(unit))
        yield Case(f"unit {unit} to evict", READY, (EVICT, body), Answered("EINVAL", f"no unit {unit}"))
    for buffer in (BUFFERS, 1 << 31, BEYOND):
        body = number(1, JOB) + number(2, EPOCH) + number(4, buffer)
        yield Case(f"a push from buffer {buffer}", READY, (PUSH, body), Answered("EINVAL", f"no gradient buffer {buffer}"))
    # Of a unit of one tensor.
    for bits in (b"\x02", b"\x81", b"\x00\x00", b"\x01" * 100000):
        body = number(1, JOB) + number(2, EPOCH) + data(6, bits)
        text = "has 1 tensor: as many bits say"
        yield Case(f"a push with {len(bits)} bytes of absent tensors that end in {bits[-1]}", READY, (PUSH, body), Answered("EINVAL", text))
    for groups, words in ((b"", "0 groups are given"), (b"\x00\x00", "2 groups are given"), (b"\x00" * 100000, "100000 groups are given"),
                          (b"\x01", "is in parameter group 1; the job has 1"), (varint(1 << 16), "is in parameter group 65536; the job has 1")):
        body = number(1, JOB) + number(2, EPOCH) + data(4, groups)
        yield Case(f"{len(groups)} bytes of groups, of which {words}", READY, (GROUPS_SET, body), Answered("EINVAL", words))
    for index in (1, BEYOND):
        body = number(1, JOB) + number(3, index) + data(4, "m") + number(6, 1)
        yield Case(f"values to read of tensor {index}", READY, (READ, body), Answered("EINVAL", f"no tensor {index}"))


def here(**fields):
    return number(1, JOB) + number(2, EPOCH) + b"".join(number(int(name[1:]), value) for name, value in fields.items())


def left_then(field, body):
    """Leaves its job, with the request in the same piece behind it."""

    def act(client):
        left, asked = client.send(LEAVE, number(1, JOB) + number(2, 1)), client.send(field, body)
        assert client.answer(left)[0] == 0
        code, text, _ = client.answer(asked)
        assert code == 2 and "no open job" in text, (code, text)

    return Case(f"{KINDS[field]} in one piece behind the leave", READY, act, None)


def writing(*then):
    """Begins a writing, and sends these while it is open: (field, body, code, words)."""

    def act(client):
        begun = client.send(WRITE_BEGIN, here())
        assert client.answer(begun)[0] == 0
        for field, body, code, words in then:
            number_of_code, text, _ = client.answer(client.send(field, body))
            assert number_of_code == CODES[code] and words in text, (field, number_of_code, text)

    return act


def moved_late(client):
    """Tensors that move to other groups before the step is announced, and after that."""
    groups = here() + data(4, b"\x00")
    assert client.call(GROUPS_SET, groups)[0] == 0
    assert client.call(BEGIN, here(_4=1) + data(3, rates()))[0] == 0
    code, text, _ = client.call(GROUPS_SET, groups)
    assert code == CODES["EBUSY"] and "before tierd_step_begin" in text, (code, text)


def in_room(client):
    """Gradients outside of the room that a rank has for them, over others, and waits for what is nowhere."""
    status, text, opened = open_job(client, "hostile", buffers=4, room=3 * 4096)
    assert status == 0 and opened[1] == JOB, (text, opened)
    for unit in range(UNITS):
        assert define(client, JOB, f"unit{unit}", ELEMENTS)[0] == 0
    assert client.call(READY_FIELD, number(1, JOB) + number(2, 20000))[0] == 0

    def refused(field, words, **fields):
        code, text, _ = client.call(field, here(**fields))
        assert code == CODES["EINVAL"] and words in text, (code, text)

    for offset in (3 * 4096, 2 * 4096 + 256, 1 << 40, 1 << 63, -256):
        refused(PUSH, "cannot lie at byte", _3=0, _4=0, _7=offset)
    for offset in (1, 255, 257, -1):
        refused(PUSH, "cannot lie at byte", _3=0, _4=0, _7=offset)
    refused(PUSH, "no gradient buffer 4", _3=0, _4=4)
    for offset, count in ((0, 0), (0, -1), (-1, -1), (1 << 63, 1 << 63), (4096, 4096)):
        assert client.call(WAIT, here(_3=0, _4=BEYOND, _5=offset, _6=count))[0] == 0
    assert client.call(PUSH, here(_3=0, _4=0, _7=4096))[0] == 0


CASES = [
    *empty(),
    *without_job(),
    *too_early(),
    *other_epochs(),
    *other_units(),
    *(left_then(field, body) for field, body in of_job().items()),
    Case("gradients all over a room", GREETED, in_room, None),
    *(Case(f"a push from byte {at} where there is no room", READY, (PUSH, here(_7=at)), Answered("EINVAL", "is not for unit")) for at in (256, -1)),
    Case("a second ready", READY, (READY_FIELD, number(1, JOB)), Answered("EINVAL", "")),
    Case("a unit after ready", READY, (DEFINE, of_job()[DEFINE]), Answered("EINVAL", "one too many")),
    Case("a unit twice", DEFINED, (DEFINE, number(1, JOB) + data(2, "unit0") + of_job()[DEFINE][8:]),
         Answered("EEXIST", 'already a unit "unit0"')),
    Case("values for a unit that has an initializer", DEFINED, (WRITE, number(1, JOB) + number(5, 1)),
         Answered("EINVAL", "has an initializer")),
    Case("values for a job that trains", READY, (WRITE, number(1, JOB) + number(5, 1)), Answered("EBUSY", "ready already")),
    Case("the optimizer's state for a job that trains", READY, (WRITE, number(1, JOB) + number(5, 1) + data(220, "m")),
         Answered("EBUSY", "ready already")),
    Case("the optimizer's state of a name that it has not", DEFINED, (WRITE, number(1, JOB) + number(5, 1) + data(220, "x" * 5000)),
         Answered("ENODATA", "there is no state")),
    Case("the optimizer's state after step 2^64-1", DEFINED,
         (WRITE, number(1, JOB) + number(5, 1) + data(220, "m") + number(221, -1)), Answered("EINVAL", "no job begins at step")),
    Case("the parameter as the optimizer's state", DEFINED, (WRITE, number(1, JOB) + number(5, 1) + data(220, "parameter")),
         Answered("EINVAL", "no state of the optimizer")),
    Case("no values for a job that trains", READY, (WRITE, number(1, JOB)), Answered("EBUSY", "ready already")),
    Case("a gather of a step that nobody takes", READY, (GATHER, here(_3=0, _4=3)), Answered("EINVAL", "ahead of every step")),
    Case("a gather of step 2^64-1", READY, (GATHER, here(_3=0, _4=-1)), Answered("EINVAL", "ahead of every step")),
    Case("a read of step 2^64-1", READY, (READ, number(1, JOB) + data(4, "m") + number(6, 1) + number(7, -1)),
         Answered("EINVAL", "ahead of every step")),
    *(Case(f"many values of which one {what}", READY, (READ_MANY, number(1, JOB) + data(3, piece_to_read()) + data(3, piece_to_read(**wrong))),
           Answered(error, words))
      for what, wrong, error, words in (
          ("is of no tensor", {"tensor": BEYOND}, "EINVAL", "no tensor"), ("is of no state", {"state": "x"}, "ENODATA", "there is no state"),
          ("goes beyond the tensor", {"first": -1, "count": 2}, "ERANGE", "are beyond"), ("goes beyond all tensors", {"count": -1}, "ERANGE", "are beyond"),
          ("goes beyond the window", {"at": 1 << 20}, "E2BIG", "beyond the window"), ("lies at byte 2^64-4", {"at": -4}, "E2BIG", "beyond the window"),
          ("lies at an odd byte", {"at": 7}, "EINVAL", "multiples of 4"), ("is a gradient", {"state": "gradient"}, "ENODATA", "there is no state"))),
    Case("more values than one request may have", READY, (READ_MANY, number(1, JOB) + data(3, piece_to_read()) * 1025), Answered("E2BIG", "more than 1024")),
    Case("as many values as one request may have", READY, (READ_MANY, number(1, JOB) + data(3, piece_to_read()) * 1024), FINE),
    Case("many values of step 2^64-1", READY, (READ_MANY, number(1, JOB) + number(2, -1) + data(3, piece_to_read())),
         Answered("EINVAL", "ahead of every step")),
    Case("a cancel of nothing", READY, (CANCEL, number(1, JOB) + number(2, 77777)), FINE),
    *(Case(f"a wait for a buffer of unit {unit}", READY, (WAIT, here(_3=unit)), Answered("EINVAL", f"no unit {unit}"))
      for unit in (UNITS, 1 << 31, BEYOND)),
    Case("a hurry of nothing", READY, (HURRY, number(1, JOB) + number(2, 77777)), FINE),
    Case("an await of nothing", READY, (AWAIT, number(1, JOB) + number(2, 77777)), FINE),
    Case("a step without rates", READY, (STEP, here()), Answered("EINVAL", "a step without rates")),
    Case("an announced step without rates", READY, (BEGIN, here(_4=1)), Answered("EINVAL", "a step without rates")),
    Case("an announced step of 0 micro-batches", READY, (BEGIN, here() + data(3, rates())), Answered("EINVAL", "0 micro-batches")),
    Case("a step to finish that is not reduced", READY, (FINISH, here()), Answered("EBUSY", "while a step of its own is reduced")),
    Case("the end of a writing that nobody has begun", READY, (WRITE_END, here()), Answered("EBUSY", "writes no values")),
    Case("what is not there to be written, and never ended", READY,
         writing((WRITE, number(1, JOB) + number(2, UNITS) + number(5, 1), "EINVAL", f"no unit {UNITS}"),
                 (WRITE, number(1, JOB) + number(3, BEYOND) + number(5, 1), "EINVAL", f"no tensor {BEYOND}"),
                 (WRITE, number(1, JOB) + number(4, -1) + number(5, 2), "ERANGE", "are beyond"),
                 (WRITE, number(1, JOB) + number(5, 1) + data(220, "x"), "ENODATA", "there is no state"),
                 (WRITE, number(1, JOB) + number(5, 1) + data(220, "m") + number(221, -1), "EINVAL", "no tensor is updated"),
                 (WRITE, number(1, JOB) + number(5, 1) + data(220, "master"), "EINVAL", "no state of the optimizer"),
                 (WRITE_BEGIN, here(), "EBUSY", "tierd_write_end first"), (STEP, here() + data(3, rates()), "EBUSY", "tierd_write_end first"),
                 (FINISH, here(), "EBUSY", "closed none"), (WRITE_END, here(_2=9), "ESTALE", "")), GONE),
    Case("a writing that is ended twice", READY, writing((WRITE_END, here(), "OK", ""), (WRITE_END, here(), "EBUSY", "writes no values")), GONE),
    Case("a writing that is cancelled with values", READY,
         writing((WRITE, number(1, JOB) + number(5, 10), "OK", ""), (WRITE_END, here(_3=1), "OK", "")), GONE),
    Case("a question for groups before units are defined", OPENED, (GROUPS_GET, number(1, JOB)), Answered("EINVAL", "no unit 0")),
    Case("groups of a step that is announced", READY, moved_late, GONE),
    Case("groups while values are written", READY, writing((GROUPS_SET, here() + data(4, b"\x00"), "EBUSY", "a step on its way")), GONE),
    Case("a push that lacks all tensors", READY, (PUSH, here() + data(6, b"\x01")), FINE),
    Case("a step that knows of pushes that were refused", READY, (STEP, here(_4=5) + data(3, rates())), one_of("EINVAL", "OK")),
    Case("a second rank 0", READY, (OPEN, data(1, "hostile") + number(3, 1) + number(4, 3)), Answered("EBUSY", "held by process")),
    Case("a job without values, opened with a draft that it has not", DEFINED,
         (OPEN, data(1, "hostile") + number(3, 1) + number(4, 3) + number(24, 1)), Answered("EINVAL", "drafted is 1 here, 0 in the job")),
    Case("a job that trains, opened with another stage", READY, (OPEN, data(1, "hostile") + number(3, 1) + number(4, 2)),
         Answered("EBUSY", "stage is 2 here, 3 in the job, which is in use by rank 0")),
    Case("a job that trains, opened with another world size", READY, (OPEN, data(1, "hostile") + number(3, 1024) + number(4, 3)),
         Answered("EBUSY", "which is in use by rank 0")),
    Case("a job that trains, to replace", READY, (OPEN, data(1, "hostile") + number(3, 1) + number(4, 3) + number(5, 3)),
         Answered("EBUSY", "of its ranks is alive")),
    Case("a job that trains, to create", READY, (OPEN, data(1, "hostile") + number(3, 1) + number(4, 3) + number(5, 1)),
         Answered("EEXIST", "exists at step 0")),
    Case("a job that trains, to drop", READY, (DROP, data(1, "hostile")), Answered("EBUSY", "in use by")),
    Case("a job that trains, to release", READY, (RELEASE, data(1, "hostile")), Answered("EBUSY", "it is in use by rank 0")),
    Case("a job that is not there, to resume", GREETED, (OPEN, data(1, "absent") + number(3, 1) + number(5, 2)),
         Answered("ENOENT", "no job absent to resume")),
    Case("a job of a user that is not there", GREETED, (OPEN, data(1, "hostile") + number(3, 1) + number(41, 1) + number(42, BEYOND)),
         Answered("ENOENT", "shared with you")),
    Case("units of a job that has none yet", OPENED, (UNITS_FIELD, data(1, "hostile")), FINE),
    Case("units from 2^32-1 on", READY, (UNITS_FIELD, data(1, "hostile") + number(2, BEYOND)), FINE),
    Case("leases from unit 2^32-1 on", READY, (LEASES, data(1, "hostile") + number(4, BEYOND)), FINE),
    Case("leases of a job that has no units yet", OPENED, (LEASES, data(1, "hostile")), FINE),
    Case("units to evict of a job that has none yet", OPENED, (EVICT, data(1, "hostile")), Answered("EBUSY", "when it has a state")),
    Case("an undone drain that nobody began", GREETED, (DRAIN, number(1, 1)), FINE),
]
