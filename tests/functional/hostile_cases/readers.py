"""Readers: asked for what they do not have, told impossible things, many of them, and some that nobody reads for."""
import ctypes
import fcntl
import mmap
import os

import frames
from hostile_cases.case import DEFINED, ELEMENTS, FINE, GREETED, JOB, LEFT, OPENED, READING, READER, UNITS, Answered, Case, Refused
from hostile_cases.crowds import fills
from hostile_cases.request import KINDS, of_job, of_reader, piece, piece_to_read
from hostile_cases.stages import no_reader
from messages import (
    DEFINE, DROP, GATHER, LEAVE, READER_CLOSE, READER_MEMORY, READER_OPEN, READER_READ, READER_READ_MANY, READER_REFRESH, READER_UNITS, READY, Client,
    codes, data, number, open_job, varint,
)

code = codes() | {"OK": 0}
libc = ctypes.CDLL(None)
KEEP_SIZE, PUNCH_HOLE = 1, 2
BEYOND = 0xFFFFFFFF
HERE = number(1, READER)
NO_VALUES = Answered("EBUSY", "it has no values yet")
# The parameters of a job, whole.
ALL = number(2, 1) + data(3, piece(units=1))
# What a selection may look at, and what it may keep.
MOST_LOOKS, MOST_PIECES = 1 << 20, 65536


def answers(client, *requests):
    """The codes of all, in whatever order they come; each comes once."""
    got = {}
    while len(got) < len(requests):
        kind, request, reply = client.next_frame()
        if kind == frames.REPLY:
            assert request in requests and request not in got, request
            got[request] = frames.fields(reply[1]).get(1, 0)
    return [got[request] for request in requests]


# ---- Where there is no reader ----

def at_the_wrong_stage():
    for field, body in of_reader().items():
        yield Case(f"{KINDS[field]} before a reader is open", GREETED, (field, body), no_reader(READER))
        yield Case(f"{KINDS[field]} in one piece behind the close", READING, closed_then(field, body), None)
    for reader in (0, JOB, READER + 1, BEYOND):
        for field, body in of_reader(reader=reader).items():
            yield Case(f"{KINDS[field]} of reader {reader}", READING, (field, body), no_reader(reader))
    for stage, when in ((OPENED, "before its units are defined"), (DEFINED, "before it is ready")):
        yield Case(f"a reader of a job {when}", stage, (READER_OPEN, data(1, "hostile")), NO_VALUES)
    yield Case("a gather of the job whose number is a reader's", READING, (GATHER, of_job(job=READER)[GATHER]),
               Answered("EINVAL", f"no open job {READER}"))
    yield Case("a reader of a job that is not there", GREETED, (READER_OPEN, data(1, "absent")), Answered("ENOENT", "no job absent"))
    yield Case("a reader of a job of a user that is not there", READING,
               (READER_OPEN, data(1, "hostile") + number(2, 1) + number(3, BEYOND)), Answered("ENOENT", "no job hostile"))


def closed_then(field, body):
    def act(client):
        closed, asked = client.send(READER_CLOSE, HERE), client.send(field, body)
        assert client.answer(closed)[0] == 0
        status, text, _ = client.answer(asked)
        assert status == code["EINVAL"] and "has no reader" in text, (status, text)

    return act


def outlives_its_rank(client):
    """One that is opened when no rank is there, and whose job is then dropped."""
    status, text, opened = client.call(READER_OPEN, data(1, "hostile"))
    assert status == 0, text
    requests = of_reader(reader=opened[1])
    for field in (READER_UNITS, READER_REFRESH, READER_READ):
        assert client.call(field, requests[field])[0] == 0
    assert client.call(DROP, data(1, "hostile") + number(4, 1))[0] == 0
    for field in (READER_UNITS, READER_REFRESH, READER_READ):
        status, text, _ = client.call(field, requests[field])
        assert status == code["ENOENT"] and text.endswith("it is gone"), (status, text)
    assert client.call(READER_CLOSE, requests[READER_CLOSE])[0] == 0


def loses_its_job(client):
    """The job is dropped while what it keeps is being copied."""
    asked = client.send(READER_REFRESH, HERE + ALL)
    status, dropped = answers(client, asked, client.send(DROP, data(1, "hostile") + number(4, 1)))
    assert status in (0, code["ENOENT"]) and dropped == 0, (status, dropped)


# ---- Impossible values ----

def both(what, outcome, **values):
    """To read, and to keep."""
    requests = of_reader(**values)
    for field in (READER_READ, READER_REFRESH):
        yield Case(f"{KINDS[field]} {what}", READING, (field, requests[field]), outcome)


def values():
    for unit in (UNITS, 1 << 16, 1 << 31, BEYOND):
        yield from both(f"of unit {unit}", Answered("EINVAL", f"no unit {unit}; it has {UNITS}"), unit=unit)
        yield Case(f"units for a reader from {unit} on", READING, (READER_UNITS, HERE + number(2, unit)), FINE)
    for tensor in (1, BEYOND):
        yield from both(f"of tensor {tensor}", Answered("EINVAL", f"no tensor {tensor}"), tensor=tensor)
        yield Case(f"tensors for a reader from {tensor} on", READING, (READER_UNITS, HERE + number(3, tensor)), FINE)
    for first, count in ((ELEMENTS, 1), (ELEMENTS - 1, 2), (0, ELEMENTS + 1), (-1, 1), (-1, 2), (1, -1), (1 << 63, 1 << 63),
                         (0, 1 << 62)):
        yield from both(f"of {count} elements from {first} on", Answered("ERANGE", f"has {ELEMENTS} elements"),
                        first=first, count=count)
    for state, what in (("", "without a name"), ("../m", "that is a path"), ("gradient", "that is of ranks alone"),
                        ("m" * 100000, "of 100,000 letters")):
        yield from both(f"of a state {what}", Answered("ENODATA", "there is no state"), state=state)
    for whole, what in ((number(6, 1), "a unit"), (number(7, 1), "a job")):
        yield Case(f"a refresh that keeps a state of {what} that is not there", READING,
                   (READER_REFRESH, HERE + number(2, 1) + data(3, data(3, "x") + whole)), Answered("ENODATA", 'no state "x"'))
    yield Case("a refresh that keeps all of a unit that is not there", READING,
               (READER_REFRESH, HERE + number(2, 1) + data(3, piece(unit=BEYOND, tensors=1))), Answered("EINVAL", f"no unit {BEYOND}"))
    for step in (1, -1):
        yield Case(f"values for a reader at step {step}", READING, (READER_READ, of_reader()[READER_READ] + number(7, step)),
                   Answered("ESTALE", "reader is at step 0, and not at"))
    for first, where in ((0, "at the start"), (ELEMENTS, "at the end")):
        yield from both(f"of 0 elements {where}", FINE, first=first, count=0)
    yield Case("a refresh of a reader that keeps nothing", READING, (READER_REFRESH, HERE), FINE)
    yield Case("pieces that a refresh does not announce", READING, (READER_REFRESH, HERE + data(3, piece(unit=BEYOND))), FINE)


# ---- Much of something ----

def kept(count, wanted):
    return READER_REFRESH, HERE + number(2, 1) + data(3, wanted) * count


def packings():
    whole = piece(units=1)
    yield Case("a refresh that keeps more tensors than a reader may", READING, kept(MOST_PIECES // UNITS + 1, whole),
               Answered("E2BIG", f"at most {MOST_PIECES} tensors can be kept"))
    yield Case("a refresh of 100,000 pieces", READING, kept(100000, b""), Answered("E2BIG", "cut it into smaller ones"))
    yield Case("a refresh of 10,000 pieces of which none is right", READING, kept(10000, b""), Answered("ENODATA", "there is no state"))
    yield Case("a refresh of 10,000 pieces of which the last is wrong", READING,
               (READER_REFRESH, kept(9999, piece())[1] + data(3, piece(unit=UNITS))), Answered("EINVAL", f"no unit {UNITS}"))
    yield Case("a refresh with a piece that ends in a tag", READING, (READER_REFRESH, HERE + number(2, 1) + data(3, b"\x08")),
               Refused("EPROTO", "a malformed request"))
    for field in (READER_OPEN, READER_UNITS, READER_CLOSE):
        body = data(1, "hostile") if field == READER_OPEN else number(1, BEYOND)
        yield Case(f"{KINDS[field]} with a megabyte in it", GREETED, (field, body + data(1000, bytes(1000000))),
                   Answered("ENOENT" if field == READER_OPEN else "EINVAL", ""))


def join(client, tensors):
    """A job of one unit, ready, and a reader of it. The reader's number, and the request that opened it."""
    status, text, opened = open_job(client, "hostile")
    assert status == 0, text
    described = b"".join(data(3, data(1, f"t{index}") + each) for index, each in enumerate(tensors))
    assert client.call(DEFINE, number(1, opened[1]) + data(2, "u") + described)[0] == 0
    status, text, _ = client.call(READY, number(1, opened[1]) + number(2, 20000))
    assert status == 0, text
    status, text, reader = client.call(READER_OPEN, data(1, "hostile"))
    assert status == 0, text
    return reader[1]


def refuses(client, field, body, error, words):
    status, text, _ = client.call(field, body)
    assert status == code[error] and words in text, (status, text)


LARGE = number(3, 1) + data(4, varint(300000)) + number(7, 2)


def asks_beyond_its_window(client):
    reader = join(client, [LARGE])
    refuses(client, READER_READ, of_reader(reader, count=300000)[READER_READ], "E2BIG", "the window has room for 1048576 bytes")


def keeps_more_than_memory(client):
    reader = join(client, [LARGE])
    body = number(1, reader) + number(2, 1)
    refuses(client, READER_REFRESH, body + data(3, piece(count=300000)) * 400, "ENOMEM", "of host memory")
    # What it kept before is gone; it goes on.
    assert client.call(READER_REFRESH, body)[0] == 0


def looks_at_more_than_it_keeps(client):
    """Of a state that frozen tensors do not have: nothing is chosen, and all of them are looked at."""
    count = 2000
    reader = join(client, [number(3, 1) + data(4, b"\x01") + number(6, 1) + number(7, 2)] * count)
    body = number(1, reader) + number(2, 1)
    whole = data(3, piece(state="m", tensors=1))
    assert client.call(READER_REFRESH, body + whole * (MOST_LOOKS // count))[0] == 0
    refuses(client, READER_REFRESH, body + whole * (MOST_LOOKS // count + 1), "E2BIG", "at most 65536 tensors")


def opens_too_many(client):
    """As many as a connection may have, with one more; then with others as many as a user."""
    crowd = [Client() for _ in range(4)]
    for one, already in ((client, 1), *((each, 0) for each in crowd)):
        refused = 0
        for _ in range(17 - already):
            status, text, _ = one.call(READER_OPEN, data(1, "hostile"))
            assert status in (0, code["EBUSY"]), (status, text)
            refused += status != 0
        assert refused == (17 if one is crowd[3] else 1), refused
        limit = "this user has 64" if one is crowd[3] else "this connection has 16"
        assert f"{limit} readers; close one" in text, text
    for one in crowd:
        one.close()


def opens_and_closes(client):
    """In one piece: all are answered, in whatever order."""
    asked = []
    for index in range(1, 1001):
        asked.append(client.send(READER_OPEN, data(1, "hostile")))
        asked.append(client.send(READER_CLOSE, number(1, READER + index)))
    assert not any(answers(client, *asked))


def asks_twice(field, body):
    """2,000 times at once, where one may wait: the others are refused, and all are answered."""

    def act(client):
        status = answers(client, *[client.send(field, body) for _ in range(2000)])
        assert set(status) == {0, code["EBUSY"]}, status

    return act


def never_reads(field, body):
    return lambda client: fills(client, field, body)


def reads_late(field, body):
    def act(client):
        for _ in range(fills(client, field, body)):
            assert client.answer(7)[0] in (0, code["EBUSY"])

    return act


def closes_while_it_works(field, body):
    def act(client):
        status, closed = answers(client, client.send(field, body), client.send(READER_CLOSE, HERE))
        assert status in (0, code["ECANCELED"]) and closed == 0, (status, closed)

    return act


def goes_while_it_works(field, body):
    return lambda client: client.send(field, body)


def leaves_its_rank(client):
    """The rank leaves its job, and the reader reads on."""
    assert client.call(LEAVE, number(1, JOB) + number(2, 1))[0] == 0
    for field, body in of_reader().items():
        assert client.call(field, body)[0] == 0


# ---- Beside the victim, which trains ----

def of_victim(client):
    status, text, opened = client.call(READER_OPEN, data(1, "victim"))
    assert status == 0, text
    return number(1, opened[1])


def refreshes_on_and_on(client):
    """It keeps all of each step, and looks at little of it."""
    here = of_victim(client)
    for _ in range(50):
        status, text, refreshed = client.call(READER_REFRESH, here + ALL)
        assert status == 0, text
        body = here + data(4, "parameter") + number(6, 10) + number(7, refreshed.get(1, 0))
        assert client.call(READER_READ, body)[0] == 0


def keeps_and_goes(client):
    """Others come, keep all, and go before they have it."""
    for _ in range(20):
        other = Client()
        other.send(READER_REFRESH, of_victim(other) + ALL)
        other.close()


def window_of(client):
    return client.descriptors[-1]


def writes_into_its_window(client):
    """What it writes there while it reads is its own affair."""
    with mmap.mmap(window_of(client), 1 << 20) as window:
        asked = client.send(READER_READ, of_reader(count=ELEMENTS)[READER_READ])
        for place in range(0, 1 << 20, 4096):
            window[place] = 0xFF
        assert client.answer(asked)[0] == 0


def resizes_its_window(client):
    for size in (0, 4096, 1 << 30):
        try:
            os.ftruncate(window_of(client), size)
        except PermissionError:
            continue
        raise AssertionError(f"a window of {size} bytes")
    assert client.call(READER_READ, of_reader(count=ELEMENTS)[READER_READ])[0] == 0


# ---- Memory of the client's own ----

SIZE = 1 << 16
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
TO_MEMORY = of_reader(count=ELEMENTS)[READER_READ] + number(8, 1)


def gets_file(client, here=HERE):
    status, text, _ = client.call(READER_MEMORY, here)
    assert status == 0, text
    return client.descriptors[-1]


def says_ready(client, size=SIZE, here=HERE):
    return client.call(READER_MEMORY, here + number(2, size))


def gives(prepare, words):
    """A file of which one thing is wrong: another one is taken after that."""

    def act(client):
        prepare(gets_file(client))
        status, text, _ = says_ready(client)
        assert status == code["EINVAL"] and words in text, (status, text)
        refuses(client, READER_READ, TO_MEMORY, "EINVAL", "no memory of its client's")
        whole(gets_file(client))
        assert says_ready(client)[0] == 0
        assert client.call(READER_READ, TO_MEMORY)[0] == 0

    return act


def whole(file, size=SIZE, missing=0, seals=SEALS):
    os.ftruncate(file, size)
    os.pwrite(file, bytes(size - missing), 0)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)


def has_pages_behind_its_end(file):
    whole(file, seals=0)
    assert libc.fallocate(file, KEEP_SIZE, ctypes.c_long(SIZE), ctypes.c_long(8192)) == 0
    assert libc.fallocate(file, KEEP_SIZE | PUNCH_HOLE, ctypes.c_long(4096), ctypes.c_long(8192)) == 0
    assert os.fstat(file).st_blocks * 512 >= SIZE
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)


def is_reserved_only(file):
    """Its pages are there, and nobody has written to them."""
    os.posix_fallocate(file, 0, SIZE)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)


def takes_pages_away(client):
    file = gets_file(client)
    whole(file)
    assert says_ready(client)[0] == 0
    for _ in range(20):
        assert libc.fallocate(file, KEEP_SIZE | PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(SIZE)) < 0
        for size in (0, 4096, 1 << 30):
            try:
                os.ftruncate(file, size)
            except PermissionError:
                continue
            raise AssertionError(f"memory of {size} bytes")
        assert client.call(READER_READ, TO_MEMORY)[0] == 0


def has_it_once(client):
    whole(gets_file(client))
    assert says_ready(client)[0] == 0
    refuses(client, READER_MEMORY, HERE, "EBUSY", "has memory of its client's already")
    refuses(client, READER_MEMORY, HERE + number(2, SIZE), "EBUSY", "has memory of its client's already")
    for place, error in ((SIZE - 4 * ELEMENTS + 4, "E2BIG"), (SIZE, "E2BIG"), (-4, "E2BIG"), (1, "EINVAL")):
        refuses(client, READER_READ, TO_MEMORY + number(9, place), error, "")
    assert client.call(READER_READ, TO_MEMORY + number(9, SIZE - 4 * ELEMENTS))[0] == 0


def writes_into_its_memory(client):
    """While tierd does: that is its own affair."""
    file = gets_file(client)
    whole(file, SIZE, 0, 0)
    with mmap.mmap(file, SIZE) as memory:
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
        assert says_ready(client)[0] == 0
        asked = [client.send(READER_READ_MANY, HERE + data(3, piece_to_read(count=ELEMENTS)) * 10 + number(4, 1))]
        for place in range(0, SIZE, 64):
            memory[place] = 0xFF
        assert not any(answers(client, *asked))


def lends_and_goes(client):
    """Files that nobody fills, and memory that is still looked at, go with their readers."""
    for index in range(60):
        other = Client()
        status, text, opened = other.call(READER_OPEN, data(1, "hostile"))
        assert status == 0, text
        here = number(1, opened[1])
        file = gets_file(other, here)
        if index % 3:
            whole(file, 1 << 20)
            other.send(READER_MEMORY, here + number(2, 1 << 20))
        if index % 3 == 2:
            other.send(READER_CLOSE, here)
        other.close()


def memory():
    refused = {
        "is not sealed": (lambda file: whole(file, seals=0), "not sealed"),
        "can still grow": (lambda file: whole(file, seals=fcntl.F_SEAL_SHRINK), "not sealed"),
        "can still shrink": (lambda file: whole(file, seals=fcntl.F_SEAL_GROW), "not sealed"),
        "is too small": (lambda file: whole(file, SIZE // 2), "another size"),
        "is too large": (lambda file: whole(file, SIZE * 2), "another size"),
        "is empty": (lambda file: None, "not sealed"),
        "was never written": (lambda file: whole(file, missing=SIZE), "never written"),
        "lacks its last page": (lambda file: whole(file, missing=4096), "never written"),
        "is reserved only": (is_reserved_only, "never written"),
        "has pages behind its end, and holes": (has_pages_behind_its_end, "never written"),
        "cannot be sealed": (lambda file: whole(file, seals=SEALS | fcntl.F_SEAL_SEAL), "cannot be sealed"),
        "cannot be written any more": (lambda file: whole(file, seals=SEALS | fcntl.F_SEAL_WRITE), "cannot be mapped"),
    }
    for what, (prepare, words) in refused.items():
        yield Case(f"memory of a reader that {what}", READING, gives(prepare, words), None)
    for size in (1, 4095, SIZE + 1, (1 << 40) + 4096, -1, 1 << 63):
        yield Case(f"memory of a reader of {size} bytes", READING,
                   lambda client, size=size: (gets_file(client), refuses(client, READER_MEMORY, HERE + number(2, size), "EINVAL", "a multiple of 4096")),
                   None)
    yield Case("memory of a reader without a file", READING, (READER_MEMORY, HERE + number(2, SIZE)), Answered("EINVAL", "has no file"))
    yield Case("values to memory that is not there", READING, (READER_READ, TO_MEMORY), Answered("EINVAL", "no memory of its client's"))
    yield Case("many values to memory that is not there", READING,
               (READER_READ_MANY, of_reader()[READER_READ_MANY] + number(4, 1)), Answered("EINVAL", "no memory of its client's"))


CASES = [
    *memory(),
    Case("a client that takes pages of its reader's memory away", READING, takes_pages_away, None),
    Case("a reader that has memory once", READING, has_it_once, None),
    Case("a client that writes into its reader's memory", READING, writes_into_its_memory, None),
    Case("60 readers that go with files and memory", READING, lends_and_goes, None),
    *at_the_wrong_stage(),
    *values(),
    *packings(),
    Case("a reader of a job that all have left, and that is dropped", LEFT, outlives_its_rank, None),
    Case("a reader whose job is dropped while it keeps", READING, loses_its_job, None),
    Case("a reader that asks for more than its window holds", GREETED, asks_beyond_its_window, None),
    Case("a reader that keeps more than there is memory", GREETED, keeps_more_than_memory, None),
    Case("a reader that looks at more than it may keep", GREETED, looks_at_more_than_it_keeps, None),
    Case("more readers than a connection and a user may have", READING, opens_too_many, None),
    Case("1,000 readers that are opened and closed in one piece", READING, opens_and_closes, None),
    Case("2,000 refreshes at once", READING, asks_twice(READER_REFRESH, HERE + ALL), None),
    Case("2,000 reads at once", READING, asks_twice(READER_READ, of_reader()[READER_READ]), None),
]
for asked, about in ((READER_UNITS, HERE), (READER_MEMORY, HERE), (READER_REFRESH, HERE + ALL), (READER_READ, of_reader()[READER_READ])):
    CASES += [
        Case(f"a client that floods with {KINDS[asked]} and reads late", READING, reads_late(asked, about), None),
        Case(f"a client that floods with {KINDS[asked]} and never reads", READING, never_reads(asked, about), None),
        Case(f"a reader that is closed behind {KINDS[asked]}", READING, closes_while_it_works(asked, about), None),
        Case(f"a client that goes behind {KINDS[asked]}", READING, goes_while_it_works(asked, about), None),
    ]
CASES += [
    Case("a reader whose rank leaves", READING, leaves_its_rank, None),
    Case("a reader of the victim that refreshes on and on", GREETED, refreshes_on_and_on, None),
    Case("20 readers of the victim that go in the middle", GREETED, keeps_and_goes, None),
    Case("a client that writes into its reader's window", READING, writes_into_its_window, None),
    Case("a client that resizes its reader's window", READING, resizes_its_window, None),
]
