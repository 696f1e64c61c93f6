"""Watches: of what nobody may hear, of what is not there, begun again and again, and never read."""
import os

import frames
from hostile_cases.case import GREETED, JOB, LEFT, READING, READY, Answered, Case
from hostile_cases.others import OWNER, as_stranger
from messages import DROP, LEAVE, PING, WATCH, Client, data, number, open_job

BEYOND = 0xFFFFFFFF
HAPPENED, LOST = 110, 111
TOO_LONG = Answered("EINVAL", "at most 63 bytes")
EVERYTHING = number(4, 1)


def told(client):
    """The events that have come, by their names, and how many were lost: up to the answer to a ping behind them. Those of the
    job that is trained beside all cases belong to none, and come at any time."""
    names, lost, last = [], 0, client.send(PING, b"")
    while True:
        _, request, body = client.next_frame()
        if request == last:
            return names, lost
        happened = frames.fields(body[HAPPENED]) if HAPPENED in body else {}
        if happened and happened.get(5) != b"victim":
            names.append(happened[2].decode())
        lost += frames.fields(body[LOST])[1] if LOST in body else 0


def happens(times=1):
    """A job comes and goes."""
    other = Client()
    for handle in range(1, times + 1):
        status, text, _ = open_job(other, "hostile")
        assert status == 0, text
        assert other.call(LEAVE, number(1, handle) + number(2, 1))[0] == 0
    other.call(DROP, data(1, "hostile") + number(4, 1))
    other.close()


def begin(client, body):
    status, text, _ = client.call(WATCH, body)
    assert status == 0, text


def hears(body, *names):
    """Of a job that comes and goes just these."""

    def act(client):
        begin(client, body)
        happens()
        heard = told(client)
        assert heard == (list(names), 0), heard

    return act


def hears_after_leaving(client):
    """The commit of what it has left may end meanwhile."""
    begin(client, EVERYTHING)
    happens()
    names, lost = told(client)
    assert ([name for name in names if name != "durable"], lost) == (["attached", "left", "dropped"], 0), (names, lost)


def begins_again(client):
    """The last one counts, and each event is told once."""
    asked = [client.send(WATCH, data(1, "hostile")) for _ in range(2000)]
    for request in asked:
        assert client.answer(request)[0] == 0
    happens()
    names, lost = told(client)
    assert names.count("opened") == 1 and lost == 0, (names, lost)


def is_refused(client):
    """One that is refused takes the place of none."""
    begin(client, data(1, "hostile"))
    assert client.call(WATCH, data(1, "x" * 64))[0] != 0
    happens()
    assert told(client)[0].count("opened") == 1


def fills(client):
    """More than its queue takes."""
    begin(client, EVERYTHING)
    happens(3000)


def never_reads(client):
    fills(client)


def reads_late(client):
    """It has lost what did not fit, is told how much, and hears what comes then."""
    fills(client)
    lost = told(client)[1]
    # The answer to that may have found a place in the queue before there was room for events.
    lost += told(client)[1]
    assert lost > 0
    happens()
    names, lost = told(client)
    assert names.count("opened") == 1 and lost == 0, (names, lost)


def asks_while_it_is_full(client):
    """Its own answers find room."""
    begin(client, EVERYTHING)
    for _ in range(10):
        happens(300)
        client.send(WATCH, EVERYTHING)
    told(client)


def trains(client):
    """It hears of its own steps, and of the job that it leaves."""
    begin(client, EVERYTHING)
    client.send(LEAVE, number(1, JOB) + number(2, 1))
    names, _ = told(client)
    assert "left" in names, names


def crowd(client):
    """As many connections as a user may have, that all hear everything and do not read."""
    others = [Client() for _ in range(10)]
    for one in others:
        begin(one, EVERYTHING)
    happens(300)
    for one in others:
        one.close()


def comes_and_goes(client):
    for _ in range(300):
        other = Client()
        other.send(WATCH, EVERYTHING)
        other.close()
    happens()


def hears_nothing(body):
    """Another user: what happens to the owner's jobs is not for him."""

    def act(stranger):
        begin(stranger, body)
        os.seteuid(OWNER)
        happens()
        assert told(stranger) == ([], 0)

    return as_stranger(act)


def by_others():
    if os.getuid() != 0:
        return
    theirs = number(2, 1) + number(3, OWNER)
    for body, what in ((b"", "all"), (data(1, "hostile"), "the job"), (data(1, "hostile") + theirs, "the owner's job"),
                       (theirs, "the owner's jobs")):
        yield Case(f"another user's watch of {what}", GREETED, hears_nothing(body + EVERYTHING), None)


CASES = [
    Case("a watch with nothing in it", GREETED, hears(b"", "opened", "attached", "left"), None),
    Case("a watch of a job that is not there", GREETED, hears(data(1, "absent")), None),
    Case("a watch of a job of a user that is not there", GREETED, hears(data(1, "hostile") + number(2, 1) + number(3, BEYOND)), None),
    Case("a watch whose job is a path", GREETED, hears(data(1, "../hostile")), None),
    Case("a watch whose job ends a line", GREETED, hears(data(1, "hostile\n")), None),
    Case("a watch whose job is not UTF-8", GREETED, hears(data(1, b"\xff\xfe")), None),
    Case("a watch whose job is a format", GREETED, hears(data(1, "%s%n")), None),
    Case("a watch whose job has 63 bytes", GREETED, hears(data(1, "x" * 63)), None),
    *(Case(f"a watch whose job has {count} bytes", GREETED, (WATCH, data(1, "x" * count)), TOO_LONG) for count in (64, 256, 1000000)),
    Case("2,000 watches in one piece", GREETED, begins_again, None),
    Case("a watch that is refused after one that is not", GREETED, is_refused, None),
    Case("a watch of one who leaves", READY, trains, None),
    Case("a watch of a reader's connection", READING, trains, None),
    Case("a watch of one who has left", LEFT, hears_after_leaving, None),
    Case("a watch that is never read", GREETED, never_reads, None),
    Case("a watch that is read late", GREETED, reads_late, None),
    Case("a watch that asks while its queue is full", GREETED, asks_while_it_is_full, None),
    Case("ten watches that are not read", GREETED, crowd, None),
    Case("300 watches that come and go", GREETED, comes_and_goes, None),
    *by_others(),
]
