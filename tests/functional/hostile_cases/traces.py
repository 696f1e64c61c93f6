"""Traces: of what is not there, of what is another user's, more than there may be, never read, and left in any way."""
from hostile_cases.case import DEFINED, FINE, GREETED, LEFT, READY, Answered, Case
from messages import DROP, PING, TRACE, TRACE_READ, Client, data, number

MINE = data(1, "hostile")
IS_OVER = 3


def begin(client, body=MINE):
    status, text, _ = client.call(TRACE, body)
    assert status == 0, text


def look(client):
    """All that there is."""
    while True:
        status, text, body = client.call(TRACE_READ, b"")
        assert status == 0, text
        if not body.get(5):
            return body


def is_refused_beyond_the_bound(client):
    client.call(TRACE, data(1, "absent"))
    others = [Client() for _ in range(4)]
    for one in others:
        begin(one)
    status, text, _ = client.call(TRACE, MINE)
    assert status != 0 and "wait until one of them has ended" in text, (status, text)
    others.pop().close()
    for one in others:
        one.close()


def begins_again(client):
    """The last one counts."""
    asked = [client.send(TRACE, MINE) for _ in range(500)]
    for request in asked:
        assert client.answer(request)[0] == 0
    look(client)


def never_reads(client):
    """Its questions wait, and nobody else's."""
    begin(client)
    for _ in range(2000):
        client.send(TRACE_READ, b"")
    other = Client()
    assert other.call(PING, b"")[0] == 0
    other.close()


def loses_the_job(client):
    """It hears of the end, again and again, and another job of that name is not its own."""
    begin(client)
    assert client.call(DROP, MINE + number(4, 1))[0] == 0
    while not look(client).get(IS_OVER):
        pass
    assert look(client).get(IS_OVER)


def comes_and_goes(client):
    for _ in range(300):
        other = Client()
        other.send(TRACE, MINE)
        other.send(TRACE_READ, b"")
        other.close()


CASES = [
    Case("a trace with nothing in it", GREETED, (TRACE, b""), Answered("ENOENT", "there is no job")),
    Case("a trace of a job that is not there", GREETED, (TRACE, data(1, "absent")), Answered("ENOENT", "there is no job absent")),
    Case("a trace of a job whose name is long", GREETED, (TRACE, data(1, "x" * 100000)), Answered("ENOENT", "there is no job")),
    Case("a trace that is read before it is begun", GREETED, (TRACE_READ, b""), Answered("EINVAL", "begin with Trace")),
    Case("a trace of a job that has no state yet", DEFINED, (TRACE, MINE), FINE),
    Case("a trace of one's own job", READY, (TRACE, MINE), FINE),
    Case("traces beyond the bound", READY, is_refused_beyond_the_bound, None),
    Case("500 traces in one piece", READY, begins_again, None),
    Case("a trace that is never read", READY, never_reads, None),
    Case("a trace of a job that is dropped", LEFT, loses_the_job, None),
    Case("300 traces that come and go", READY, comes_and_goes, None),
]
