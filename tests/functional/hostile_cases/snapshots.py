"""Snapshots: of jobs that have none, of names that no snapshot has, many at once, and of those who do not wait for them."""
from hostile_cases.case import DEFINED, GREETED, OPENED, READY, Answered, Case
from hostile_cases.readers import answers
from hostile_cases.request import KINDS, of_snapshot
from messages import (
    DROP, FORK, LEAVE, OPEN, READER_OPEN, READY as READY_FIELD, RESERVE, RETAIN, ROLL_BACK, SHARE, SNAPSHOT, SNAPSHOT_DELETE, SNAPSHOT_DIFF, SNAPSHOTS, Client,
    codes, data, define, number,
)

code = codes() | {"OK": 0}
BEYOND = 0xFFFFFFFF
KEPT = data(1, "kept")


def fork(name="other", snapshot="", count=0):
    return data(1, "hostile") + data(4, snapshot) + data(5, name) + number(6, count)


def at_the_wrong_stage():
    for field, body in (of_snapshot() | {SNAPSHOTS: data(1, "hostile"), RESERVE: data(1, "hostile") + number(4, 3), FORK: fork()}).items():
        for stage, when in ((OPENED, "before its units are defined"), (DEFINED, "before it is ready")):
            yield Case(f"{KINDS[field]} of a job {when}", stage, (field, body), Answered("EBUSY", "has no values yet"))
    for job in (2, BEYOND):
        yield Case(f"a snapshot of job {job}", READY, (SNAPSHOT, number(5, job) + data(4, "kept")),
                   Answered("EINVAL", f"no open job {job}"))
    for field, body in of_snapshot(job="absent").items():
        yield Case(f"{KINDS[field]} of a job that is not there", GREETED, (field, body), Answered("ENOENT", "no job absent"))


def values():
    refused, absent = Answered("EINVAL", "is not allowed"), Answered("ENOENT", "it has none")
    for name in ("", "x" * 64, "x" * 100000, "_up", "a/b", "..", "a..b", ".a", "a b", "a@b", "\t", "%s%n"):
        yield Case(f"a snapshot with the name {name[:70]!r} of {len(name)}", READY, (SNAPSHOT, of_snapshot(snapshot=name)[SNAPSHOT]),
                   refused)
        for field, outcome in ((SNAPSHOT_DELETE, refused), (SNAPSHOT_DIFF, absent), (ROLL_BACK, absent)):
            yield Case(f"{KINDS[field]}, {name[:70]!r} of {len(name)}", READY, (field, of_snapshot(snapshot=name)[field]), outcome)
        yield Case(f"a fork with the name {name[:70]!r} of {len(name)}", READY, (FORK, fork(name)), refused)
        if name:
            yield Case(f"a fork of a snapshot {name[:70]!r} of {len(name)}", READY, (FORK, fork(snapshot=name)), absent)
            yield Case(f"a reader of a snapshot {name[:70]!r} of {len(name)}", READY, (READER_OPEN, data(1, "hostile") + data(140, name)),
                       absent)
    yield Case("a fork of its own name", READY, (FORK, fork("hostile")), Answered("EEXIST", "there is a job hostile"))
    for count in (15, BEYOND):
        yield Case(f"a fork with room for {count} snapshots", READY, (FORK, fork(count=count)), Answered("EINVAL", "at most 14 are possible"))
    yield Case("room for no snapshot", READY, (RESERVE, data(1, "hostile")), Answered("EINVAL", "it only grows"))
    yield Case("each step of a job without room", READY, (RETAIN, data(1, "hostile") + number(4, 1)), Answered("EINVAL", "no room for"))
    yield Case("more steps than there is room for", READY, (RETAIN, data(1, "hostile") + number(5, BEYOND)), Answered("EINVAL", "has room for 0"))
    for sharing in (3, BEYOND):
        yield Case(f"a job to share as {sharing}", READY, (SHARE, data(1, "hostile") + number(4, sharing)), Answered("EINVAL", f"no sharing {sharing}"))
    yield Case("a job to share with no group", READY, (SHARE, data(1, "hostile") + number(4, 1)), Answered("EINVAL", "with which group"))
    yield Case("a job to share that is not there", GREETED, (SHARE, data(1, "absent") + number(4, 1)), Answered("ENOENT", "no job absent"))
    kept = data(1, "hostile") + number(141, 1)
    yield Case("a reader as of a snapshot of a job without room", READY, (READER_OPEN, kept), Answered("ENOSPC", "no room for snapshots"))
    yield Case("a reader of a snapshot, and as of one", READY, (READER_OPEN, kept + data(140, "x")), Answered("EINVAL", "as if there were one"))
    yield Case("a snapshot of a job without room", READY, (SNAPSHOT, of_snapshot()[SNAPSHOT]), Answered("ENOSPC", "no room for snapshots"))
    for count in (15, BEYOND):
        yield Case(f"room for {count} snapshots of a job", READY, (RESERVE, data(1, "hostile") + number(4, count)),
                   Answered("EINVAL", "at most 14 are possible"))
    # The last number is the word for none.
    for count in (15, BEYOND - 1):
        yield Case(f"a job with {count} snapshots", GREETED, (OPEN, data(1, "wide") + number(3, 1) + number(4, 3) + number(140, count)),
                   Answered("EINVAL", "at most 14 are possible"))


# ---- Of a job that has room for two ----

def keeps(client):
    """A job that is ready."""
    options = data(1, "kept") + number(3, 1) + number(4, 3) + number(12, 2) + number(140, 2)
    status, text, opened = client.call(OPEN, options)
    assert status == 0, text
    status, text, _ = define(client, opened[1], "unit", 1000)
    assert status == 0, text
    status, text, _ = client.call(READY_FIELD, number(1, opened[1]) + number(2, 20000))
    assert status == 0, text
    return opened[1]


def drops(client):
    status, text, _ = client.call(DROP, KEPT + number(4, 1))
    assert status == 0, text


def asks_at_once(client):
    """Each is answered; of equal ones the first is done."""
    job = keeps(client)
    taken = [client.send(SNAPSHOT, number(5, job) + data(4, "one")) for _ in range(8)]
    others = [client.send(field, KEPT + data(4, "one")) for field in (SNAPSHOT_DIFF, SNAPSHOT_DELETE, SNAPSHOT_DELETE)]
    others.append(client.send(SNAPSHOTS, KEPT + number(4, 1)))
    got = answers(client, *taken, *others)
    assert got[:8] == [0] + [code["EEXIST"]] * 7, got
    # What was not there yet when it was asked for is not compared.
    assert got[8] in (0, code["ENOENT"]) and got[9:] == [0, code["ENOENT"], 0], got
    drops(client)


def makes_room_at_once(client):
    """Each that is more than what it has by then; and of one who does not wait for it."""
    keeps(client)
    got = answers(client, *(client.send(RESERVE, KEPT + number(4, count)) for count in (3, 3, 2, 4, BEYOND, 4, 3)))
    refused = code["EINVAL"]
    assert got == [0, refused, refused, 0, refused, refused, refused], got
    other = Client()
    other.send(RESERVE, KEPT + number(4, 5))
    other.close()
    drops(client)


def does_not_wait(client):
    """It goes as soon as it has asked: what it has asked for happens, or not, and nobody is told."""
    other = Client()
    job = keeps(other)
    for name in ("one", "two", "three"):
        other.send(SNAPSHOT, number(5, job) + data(4, name))
    other.send(SNAPSHOTS, KEPT + number(4, 1))
    other.send(SNAPSHOT_DIFF, KEPT + data(4, "one"))
    other.send(LEAVE, number(1, job))
    other.send(ROLL_BACK, KEPT + data(4, "one") + number(5, 1))
    other.close()
    drops_when_it_is_there(client)


def drops_when_it_is_there(client):
    """It may be on its way back."""
    while client.call(DROP, KEPT + number(4, 1))[0] == code["ENOENT"]:
        pass


def rolls_back_under_itself(client):
    """Its own rank is sent away."""
    job = keeps(client)
    assert client.call(SNAPSHOT, number(5, job) + data(4, "one"))[0] == 0
    status, text, _ = client.call(ROLL_BACK, KEPT + data(4, "one"))
    assert status == code["EBUSY"] and "in use by rank 0" in text, (status, text)
    got = answers(client, *(client.send(ROLL_BACK, KEPT + data(4, "one") + number(5, 1)) for _ in range(4)))
    # While it is on its way back it is not there.
    assert got[0] == 0 and set(got) <= {0, code["EAGAIN"], code["ENOENT"]}, got
    assert client.call(SNAPSHOT, number(5, job) + data(4, "two"))[0] in (code["EINVAL"], code["ESTALE"])
    drops(client)


CASES = [
    *at_the_wrong_stage(),
    *values(),
    Case("twelve requests for snapshots at once", GREETED, asks_at_once, None),
    Case("seven requests for room at once", GREETED, makes_room_at_once, None),
    Case("snapshots of one who does not wait", GREETED, does_not_wait, None),
    Case("a job rolled back under its own rank", GREETED, rolls_back_under_itself, None),
]
