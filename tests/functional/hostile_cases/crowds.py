"""Much of something: connections, descriptors, requests, answers that nobody reads, jobs that nobody finishes."""
import os
import select
import socket

import frames
from frames import PING, REQUEST, frame, hello
from hostile_cases.case import BARE, EPOCH, GREETED, JOB, READY, Case
from messages import (
    DEFINE, GATHER, JOBS, LEAVE, NODE, OPEN, PREFETCH, PUSH, STEP, Client, codes, data, define, number, rates,
    varint,
)
from messages import READY as READY_FIELD

code = codes()
good = frame(REQUEST, PING, request=7)


# ---- Descriptors, which tierd takes from nobody ----

def passes(count, times, content, finishes=True):
    def act(client):
        ends = os.pipe()
        for _ in range(times):
            socket.send_fds(client.socket, [content], [ends[0]] * count)
        for end in ends:
            os.close(end)
        if finishes:
            for _ in range(times):
                assert client.answer(7)[0] == 0

    return act


def passes_itself(client):
    """A socket in its own queue: nobody but the kernel's collector can free it."""
    socket.send_fds(client.socket, [good], [client.socket.fileno()])
    assert client.answer(7)[0] == 0


def descriptors():
    for count in (1, 8, 253):
        yield Case(f"{count} descriptors with a request", GREETED, passes(count, 1, good), None)
        yield Case(f"{count} descriptors with half of a request", GREETED, passes(count, 1, good[:9], finishes=False), None)
    for count, times in ((1, 500), (16, 100), (253, 60)):
        yield Case(f"{times} requests with {count} descriptors each", GREETED, passes(count, times, good), None)
    yield Case("the connection itself as a descriptor", GREETED, passes_itself, None)


def passes_before(client):
    ends = os.pipe()
    socket.send_fds(client.socket, [hello()], list(ends))
    for end in ends:
        os.close(end)
    assert client.next_frame()[0] == frames.HELLO_REPLY


# ---- Connections ----

def connects(count, speaks):
    """All at once; those that are one too many may be refused."""

    def act(client):
        crowd = []
        for _ in range(count):
            crowd.append(frames.connect())
            frames.send(crowd[-1], hello() if speaks else b"")
        for one in crowd:
            one.close()

    return act


def comes_and_goes(count, content):
    def act(client):
        for _ in range(count):
            one = frames.connect()
            frames.send(one, content)
            one.close()

    return act


def resets(client):
    """Closes with answers unread, which resets the connection."""
    client.socket.sendall(good * 50)
    select.select([client.socket], [], [])
    client.socket.close()
    client.__init__()


def half_closes(client):
    client.socket.sendall(good[:9])
    client.socket.shutdown(socket.SHUT_WR)
    assert frames.is_closed(client.socket)


def half_closes_behind(client):
    """What was whole before the end of the stream is answered, if the answer is faster than the end."""
    client.socket.sendall(good)
    assert client.answer(7)[0] == 0
    client.socket.shutdown(socket.SHUT_WR)
    assert frames.is_closed(client.socket)


def reads_no_more(client):
    client.socket.shutdown(socket.SHUT_RD)
    frames.send(client.socket, good * 10)


# ---- Answers that are read late, or never ----

def fills(client, request, body=b""):
    """Until tierd takes no more. How many requests it has sent whole."""
    client.socket.setblocking(False)
    whole = frame(REQUEST, data(request, body), request=7)
    sent = 0
    try:
        while sent < 1 << 26:
            sent += client.socket.send(whole * 1000 if sent % len(whole) == 0 else whole[sent % len(whole):])
    except BlockingIOError:
        pass
    client.socket.setblocking(True)
    client.socket.settimeout(30)
    assert sent < 1 << 26, "it reads on and on"
    return sent // len(whole)


def reads_late(request):
    def act(client):
        for _ in range(fills(client, request)):
            assert client.answer(7)[0] == 0

    return act


def never_reads(request):
    return lambda client: fills(client, request)


# ---- Requests that wait ----

def pair(client):
    """Two ranks of a job, of which the second does nothing. Epoch 1."""
    other = Client()
    for one, rank in ((client, 0), (other, 1)):
        status, text, _ = one.call(OPEN, data(1, "hostile") + number(2, rank) + number(3, 2) + number(4, 3))
        assert status == 0, text
        for unit in range(3):
            assert define(one, JOB, f"unit{unit}", 1000)[0] == 0
    asked = [one.send(READY_FIELD, number(1, JOB) + number(2, 20000)) for one in (client, other)]
    for one, request in zip((client, other), asked):
        assert one.answer(request)[0] == 0
    return other


HERE = number(1, JOB) + number(2, EPOCH)


def waits(field, body, limit=64, before=()):
    """More than may wait: those are refused, the others wait on."""

    def act(client):
        other = pair(client)
        for each in before:
            client.send(*each)
        asked = [client.send(field, body) for _ in range(2 * limit)]
        refused = 0
        # Behind them all, a request that does not wait.
        last = client.send(NODE, b"")
        while True:
            kind, request, reply = client.next_frame()
            if request == last:
                break
            status = frames.fields(reply.get(1, b""))
            if kind == frames.REPLY and request in asked and status.get(1, 0) == code["EBUSY"]:
                assert b"wait for their answers, and tierd takes no more" in status[2], status
                refused += 1
        assert limit - 2 <= refused <= limit + 2, refused
        other.close()

    return act


def buffers_twice(client):
    """The same buffer again and again: it is with tierd, and is not summed a second time."""
    other = pair(client)
    asked = [client.send(PUSH, HERE + number(4, 0)) for _ in range(20)]
    last = client.send(NODE, b"")
    refused = 0
    while True:
        _, request, reply = client.next_frame()
        if request == last:
            break
        refused += request in asked and frames.fields(reply[1]).get(1, 0) == code["EINVAL"]
    assert refused >= 18, refused
    other.close()


def prefetches(client):
    for _ in range(2000):
        client.send(PREFETCH, number(1, JOB) + data(2, b"\x00\x01\x02" * 30))
    for request in range(client.requests - 1999, client.requests + 1):
        client.answer(request)


# ---- Jobs that are not finished ----

def opens_many(client):
    """As many as a connection may have, and some more."""
    refused = 0
    for index in range(70):
        status, text, _ = client.call(OPEN, data(1, f"hostile{index}") + number(3, 1) + number(4, 3))
        assert status in (0, code["EBUSY"], code["ENOMEM"]), text
        refused += status != 0
    assert refused >= 6, refused


def opens_and_leaves(client):
    for index in range(1, 201):
        assert client.call(OPEN, data(1, "hostile") + number(3, 1) + number(4, 3))[0] == 0
        if index % 2:
            assert client.call(LEAVE, number(1, index) + number(2, 1))[0] == 0
        else:
            client.close()
            client.__init__()
            client.call(OPEN, data(1, "other") + number(3, 1))
            client.call(LEAVE, number(1, 1))
            # Handles count by connection.
            return


def waits_alone(client):
    """One rank of two: it is never ready."""
    assert client.call(OPEN, data(1, "hostile") + number(3, 2) + number(4, 3))[0] == 0
    assert define(client, JOB, "u", 1000)[0] == 0
    client.send(READY_FIELD, number(1, JOB) + number(2, -1))


def gives_up(client):
    assert client.call(OPEN, data(1, "hostile") + number(3, 2) + number(4, 3))[0] == 0
    assert define(client, JOB, "u", 1000)[0] == 0
    assert client.call(READY_FIELD, number(1, JOB) + number(2, 1))[0] == code["ETIMEDOUT"]


def differs(client):
    """A second rank that defines other units."""
    other = Client()
    for one, rank in ((client, 0), (other, 1)):
        assert one.call(OPEN, data(1, "hostile") + number(2, rank) + number(3, 2) + number(4, 3))[0] == 0
    assert define(client, JOB, "u", 1000)[0] == 0
    status, text, _ = define(other, JOB, "u", 1001)
    assert status == code["EINVAL"] and "shape [1001] here, [1000] in the job" in text, text
    other.close()


def values_in_part(client):
    """Half of a tensor's values, and then nothing."""
    assert client.call(OPEN, data(1, "hostile") + number(3, 1) + number(4, 3))[0] == 0
    tensor = data(1, "t") + number(3, 1) + data(4, varint(1000))
    assert client.call(DEFINE, HERE[:2] + data(2, "u") + data(3, tensor))[0] == 0
    assert client.call(13, number(1, JOB) + number(5, 500))[0] == 0
    status, text, _ = client.call(READY_FIELD, number(1, JOB) + number(2, 20000))
    assert status == code["ENODATA"], (status, text)


def spans(client):
    """Every second value of a tensor: more pieces than tierd keeps account of."""
    assert client.call(OPEN, data(1, "hostile") + number(3, 1) + number(4, 3))[0] == 0
    tensor = data(1, "t") + number(3, 1) + data(4, varint(100000))
    assert client.call(DEFINE, number(1, JOB) + data(2, "u") + data(3, tensor))[0] == 0
    for first in range(0, 10000, 2):
        status, text, _ = client.call(13, number(1, JOB) + number(4, first) + number(5, 1))
        if status != 0:
            assert status == code["E2BIG"], text
            return
    raise AssertionError("there is no bound")


def takes_over(client):
    """Two connections that take a rank from each other."""
    other = Client()
    for turn in range(40):
        one = (client, other)[turn % 2]
        assert one.call(OPEN, data(1, "hostile") + number(3, 1) + number(4, 3) + number(14, 1))[0] == 0
    other.close()


def floods_epochs(client):
    """A rank that leaves and joins ends the epoch of the other each time."""
    other = pair(client)
    for _ in range(20):
        other.close()
        other = Client()
        # That it is gone may be seen later than that it is back.
        status, text, _ = other.call(OPEN, data(1, "hostile") + number(2, 1) + number(3, 2) + number(4, 3) + number(14, 1))
        assert status == 0, text
    other.close()


CASES = [
    *descriptors(),
    Case("descriptors with a Hello", BARE, passes_before, None),
    Case("300 connections that say nothing", BARE, connects(300, False), None),
    Case("300 connections that say hello and no more", BARE, connects(300, True), None),
    Case("1,000 connections that come and go", BARE, comes_and_goes(1000, b""), None),
    Case("1,000 connections that go after a Hello", BARE, comes_and_goes(1000, hello()), None),
    Case("1,000 connections that go after a request", BARE, comes_and_goes(1000, hello() + good), None),
    Case("300 connections that go after half a Hello", BARE, comes_and_goes(300, hello()[:9]), None),
    Case("300 connections of garbage", BARE, comes_and_goes(300, b"\xff" * 100), None),
    Case("a connection that is reset with answers unread", GREETED, resets, None),
    Case("a stream that ends in a request", GREETED, half_closes, None),
    Case("a stream that ends behind a request", GREETED, half_closes_behind, None),
    Case("a client that cannot read any more", GREETED, reads_no_more, None),
    Case("a client that asks for the node and reads late", GREETED, reads_late(NODE), None),
    Case("a client that asks for the jobs and reads late", GREETED, reads_late(JOBS), None),
    Case("a client that asks for the node and never reads", GREETED, never_reads(NODE), None),
    Case("a client that asks for the jobs and never reads", GREETED, never_reads(JOBS), None),
    Case("more gathers than may wait", GREETED,
         waits(GATHER, HERE + number(4, 1), before=((STEP, HERE + data(3, rates())),)), None),
    Case("a buffer that is pushed 20 times at once", GREETED, buffers_twice, None),
    Case("2,000 prefetches of 90 units", READY, prefetches, None),
    Case("70 jobs of one connection", GREETED, opens_many, None),
    Case("jobs that are opened and left", GREETED, opens_and_leaves, None),
    Case("one rank of two that waits for ever", GREETED, waits_alone, None),
    Case("one rank of two that gives up", GREETED, gives_up, None),
    Case("a rank that defines other units", GREETED, differs, None),
    Case("values for half of a tensor", GREETED, values_in_part, None),
    Case("every second value of a tensor", GREETED, spans, None),
    Case("two connections that take a rank from each other", GREETED, takes_over, None),
    Case("a rank that joins again 20 times", GREETED, floods_epochs, None),
]
