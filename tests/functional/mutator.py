"""A client that writes noise over all memory that it may write, while the daemon works with that memory: a process of it
mutates, the other sends requests, right and wrong ones. Its session may end, and it comes back.

mutator.py SEED ROUNDS: the same seed sends the same requests"""
import mmap
import os
import random
import signal
import sys

from messages import GATHER, OPEN, PING, PREFETCH, PUSH, READ, READY, STEP, WAIT, Client, data, define, number, rates, varint

UNITS, ELEMENTS, BUFFERS, REQUESTS = 4, 5000, 2, 400
# Of the five descriptors of a ready: the window, leases and gradients.
WRITABLE, LEASES = (0, 3, 4), 1
STATES = ("parameter", "master", "m", "v", "no such state")
LENGTHS = (1, 4, 8, 64, 512)


def mutate(regions, seed):
    noise = random.Random(seed)
    while True:
        region = noise.choice(regions)
        length = noise.choice(LENGTHS)
        place = noise.randrange(len(region) - length)
        kind = noise.randrange(4)
        if kind == 0:  # counters and states are small numbers in whole words
            place, written = place // 4 * 4, noise.randrange(3).to_bytes(4, "little")
        else:
            written = (bytes(length), b"\xff" * length, noise.randbytes(length))[kind - 1]
        region[place : place + len(written)] = written


def join():
    client = Client()
    code, text, _ = client.call(OPEN, data(1, "mutator") + number(3, 1) + number(4, 3) + number(12, BUFFERS) + number(14, 1))
    assert code == 0, text
    for unit in range(UNITS):
        code, text, _ = define(client, 1, f"u{unit}", ELEMENTS)
        assert code == 0, text
    code, text, ready = client.call(READY, number(1, 1) + number(2, 100000))
    assert code == 0, text
    return client, ready[3]


def mutating(client, regions, seed):
    """A process that does nothing else, until it is killed. The connection is not its own."""
    child = os.fork()
    if child == 0:
        client.close()
        mutate(regions, seed)
    return child


def any_request(chosen, epoch):
    def choose(count):  # mostly one that is there
        return chosen.getrandbits(32) if chosen.randrange(16) == 0 else chosen.randrange(count)

    job, now = number(1, 1), number(1, 1) + number(2, epoch)
    push = now + number(3, choose(UNITS)) + number(4, choose(BUFFERS))
    return chosen.choice((
        (GATHER, now + number(3, choose(UNITS)) + number(4, choose(2)) + number(5, choose(2) != 0)),
        # The step would have to say how many silent ones were refused.
        (PUSH, push + number(5, choose(64) == 1)),
        (PUSH, push),
        (STEP, now + data(3, rates(0.1)) + number(4, choose(1))),
        (PREFETCH, job + data(2, b"".join(varint(choose(UNITS)) for _ in range(3)))),
        (READ, job + number(2, choose(UNITS)) + data(4, chosen.choice(STATES)) + number(5, choose(ELEMENTS))
            + number(6, choose(1000))),
        (WAIT, now + number(3, choose(UNITS)) + number(4, choose(BUFFERS + 1))),
    ))


def play(chosen):
    """One session. An answer takes the daemon through what was asked before it: so this is never far ahead."""
    client, epoch = join()
    regions = [mmap.mmap(client.descriptors[i], 0) for i in WRITABLE]
    child = mutating(client, regions, chosen.getrandbits(32))
    try:
        for i in range(REQUESTS):
            client.send(*any_request(chosen, epoch))
            if i % 16 == 0:
                client.call(PING, b"")
    except (EOFError, OSError):
        pass  # tierd has ended the session
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    # The noise has left leases, which a process that lives holds its places with.
    regions[LEASES][:] = bytes(len(regions[LEASES]))
    client.close()


RANDOM = random.Random(int(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    play(RANDOM)
