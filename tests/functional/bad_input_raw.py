#!/usr/bin/env python3
"""A client that speaks the protocol and lies in it: wrong handles, epochs, numbers, and noise in all memory that it may
write. Its session may end; tierd does not, and a job that trains meanwhile gets the same bits as alone.

bad_input_raw.py TRAINER FOLDER"""
import errno
import mmap
import os
import random
import subprocess
import sys
import threading

import frames
from messages import (
    BEGIN, CANCEL, DEFINE, GATHER, LEAVE, PHASE, PREFETCH, PUSH, READ, READY, STATISTICS, STEP, WAIT, WRITE, Client, codes,
    data, get_ready, join, number, open_job, rates, real, varint,
)
from waiting import wait_until

trainer, folder = sys.argv[1:]
chance = random.Random(7)


def requests_that_lie():
    """Each is answered with an error; the connection goes on."""
    code = codes()
    client = Client()
    job, epoch = join(client, "liar")
    other = Client()
    here = number(1, job) + number(2, epoch)
    for name, field, body, expected in [
        ("no job", GATHER, number(1, job + 1) + number(2, epoch), ["EINVAL"]),
        ("job 0", STEP, number(2, epoch) + data(3, rates()), ["EINVAL"]),
        ("job of nobody", LEAVE, number(1, 0xFFFFFFFF), ["EINVAL"]),
        ("epoch before", GATHER, number(1, job) + number(2, epoch - 1), ["ESTALE"]),
        ("epoch after", GATHER, number(1, job) + number(2, epoch + 1), ["ESTALE"]),
        ("push of an old epoch", PUSH, number(1, job) + number(2, epoch - 1), ["ESTALE"]),
        ("step of an old epoch", STEP, number(1, job) + number(2, epoch - 1) + data(3, rates()), ["ESTALE"]),
        ("unit beyond", GATHER, here + number(3, 3), ["EINVAL"]),
        ("unit far beyond", PUSH, here + number(3, 0xFFFFFFFF), ["EINVAL"]),
        ("version ahead of every step", GATHER, here + number(4, 1 << 60), ["EINVAL"]),
        ("buffer beyond", PUSH, here + number(4, 2), ["EINVAL"]),
        ("buffer far beyond", PUSH, here + number(4, 0xFFFFFFFF), ["EINVAL"]),
        ("cancel of nothing", CANCEL, number(1, job) + number(2, 77777), ["OK"]),
        ("hint beyond", PREFETCH, number(1, job) + data(2, b"\x09\xff\xff\xff\xff\x0f"), ["OK", "EINVAL"]),
        ("phase without a name", PHASE, number(1, job), ["EINVAL"]),
        ("step without rates", STEP, here, ["EINVAL"]),
        ("step at loss scale -1", STEP, here + data(3, real(3, -1.0)), ["EINVAL"]),
        ("announcement without rates", BEGIN, here + number(4, 1), ["EINVAL"]),
        ("read of no state", READ, number(1, job) + data(4, "w") + number(6, 1), ["ENODATA"]),
        ("read beyond", READ, number(1, job) + data(4, "m") + number(5, 999) + number(6, 2), ["ERANGE", "EINVAL"]),
        ("read around", READ, number(1, job) + data(4, "m") + number(5, -1) + number(6, 2), ["ERANGE", "EINVAL"]),
        ("read of no tensor", READ, number(1, job) + number(3, 1) + data(4, "m") + number(6, 1), ["EINVAL"]),
        ("read of the future", READ, number(1, job) + data(4, "m") + number(6, 1) + number(7, 1 << 60), ["EINVAL"]),
        ("write when trained", WRITE, number(1, job) + number(5, 1), ["EBUSY"]),
        ("late unit", DEFINE, number(1, job) + data(2, "more") + data(3, data(1, "t") + number(3, 1)), ["EINVAL"]),
        ("second ready", READY, number(1, job), ["EINVAL"]),
        ("unknown request", 15000, b"", ["EOPNOTSUPP", "EPROTO"]),
    ]:
        answer, text, _ = client.call(field, body)
        assert answer in [code.get(each, 0) for each in expected] and (text or answer == 0), (name, answer, text)
        # Of no use on another connection.
        if field not in (READY, 15000):
            answer, text, _ = other.call(field, body)
            assert answer == code["EINVAL"] and "no open job" in text, (name, answer, text)

    # A buffer that was not filled is as good as one that was; twice at once is one too many, unless it is summed already.
    for _ in range(50):
        client.send(PUSH, here + number(4, 1) + number(5, 1))
    # The step does not go on without those that were refused, unless this client says that it knows of them.
    for refused in range(50):
        answer, text, _ = client.call(STEP, here + data(3, rates()) + number(4, refused))
        if answer == 0:
            break
        assert answer == code["EINVAL"] and "an earlier push failed" in text, text
    assert answer == 0, text
    client.close()
    other.close()


def memory_is_sealed():
    """Arena and directory cannot be written; nothing can be cut off below the daemon."""
    client = Client()
    join(client, "sealed")
    window, directory, arena, leases, gradients = client.descriptors[:5]
    for descriptor in (directory, arena):
        try:
            mmap.mmap(descriptor, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            raise AssertionError("it can be mapped for writing")
        except PermissionError:
            pass
    for descriptor in (window, directory, arena, leases, gradients):
        for length in (0, 1 << 30):
            try:
                os.ftruncate(descriptor, length)
                raise AssertionError("it can be resized")
            except OSError as error:
                assert error.errno in (errno.EPERM, errno.EINVAL), error
    client.close()


def write_noise(maps, stop):
    noise = random.Random(chance.random())
    while not stop.is_set():
        memory = noise.choice(maps)
        length = min(len(memory), noise.choice([1, 4, 8, 64, 4096, 1 << 16]))
        place = noise.randrange(len(memory) - length + 1)
        memory[place : place + length] = noise.choice([noise.randbytes, bytes, lambda n: b"\xff" * n])(length)


def small(limit=4):
    return chance.choice([chance.randrange(limit), chance.randrange(limit), chance.getrandbits(32), chance.getrandbits(64)])


def random_request(job, epoch):
    here = number(1, job if chance.random() < 0.95 else small()) + number(2, epoch if chance.random() < 0.95 else small())
    job_only = number(1, job)
    return chance.choice(
        [
            (GATHER, here + number(3, small()) + number(4, small()) + number(5, small(2))),
            (CANCEL, job_only + number(2, small(100))),
            (PREFETCH, job_only + data(2, varint(small()) + varint(small()))),
            (PHASE, job_only + data(1 + 1, f"phase{small()}")),
            (WAIT, here),
            (PUSH, here + number(3, small()) + number(4, small()) + number(5, small(2))),
            (PUSH, here + number(3, chance.randrange(3)) + number(4, chance.randrange(2)) + number(5, 1)),
            (BEGIN, here + data(3, rates(chance.random())) + number(4, small())),
            (STEP, here + data(3, rates(0.0))),
            (READ, job_only + number(2, small()) + data(4, chance.choice(["parameter", "m", "v"])) + number(6, small(900))),
            (WRITE, job_only + number(2, small()) + number(6, small(900))),
            (STATISTICS, job_only),
        ]
    )


def join_when_alone(client, mode):
    """Who has been here before has gone, and may not be missed yet."""

    def is_alone():
        code, text, reply = open_job(client, "scribbler", mode)
        opened.append(reply)
        assert code == 0 or "of its ranks is alive" in text, text
        return code == 0

    opened = []
    wait_until(is_alone)
    return get_ready(client, opened[-1])


def scribble(requests):
    """Joins, fills what it shares with noise while it asks for anything, and goes without a word."""
    client = Client()
    stop, writer = threading.Event(), None
    try:
        job, epoch = join_when_alone(client, chance.choice([0, 3]))
        window, _, _, leases, gradients = client.descriptors[:5]
        maps = [mmap.mmap(descriptor, 0) for descriptor in (window, leases, gradients)]
        writer = threading.Thread(target=write_noise, args=(maps, stop))
        writer.start()
        for _ in range(requests):
            if not client.drain():
                break
            client.send(*random_request(job, epoch))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # its session was ended
    stop.set()
    if writer:
        writer.join()
    client.close()


def train(path):
    return subprocess.Popen([trainer, "steady", "victim", path])


def main():
    calm, disturbed = os.path.join(folder, "calm"), os.path.join(folder, "disturbed")
    assert train(calm).wait() == 0
    requests_that_lie()
    memory_is_sealed()
    with open(calm, "rb") as file:
        expected = file.read()
    rounds = 0
    for _ in range(3):
        victim = train(disturbed)
        while victim.poll() is None or rounds % 8 != 7:
            scribble(300)
            rounds += 1
        assert victim.returncode == 0
        with open(disturbed, "rb") as file:
            assert file.read() == expected, "another job's state has changed"
    print(f"{rounds} scribblers")
    frames.ping(frames.greet())


main()
