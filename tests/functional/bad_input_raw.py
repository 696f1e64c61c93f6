#!/usr/bin/env python3
"""A client that speaks the protocol and lies in it: wrong handles, epochs, numbers, and noise in all memory that it may
write. Its session may end; tierd does not, and a job that trains meanwhile gets the same bits as alone.

bad_input_raw.py TRAINER FOLDER"""
import errno
import mmap
import os
import random
import select
import socket
import struct
import subprocess
import sys
import threading

import frames
from frames import HELLO_REPLY, REPLY, REQUEST

trainer, folder = sys.argv[1:]
chance = random.Random(7)
OPEN, DEFINE, READY, LEAVE, GATHER, CANCEL, PREFETCH, PHASE, WAIT, PUSH, BEGIN, STEP, WRITE, READ, STATISTICS = range(1, 16)


def codes():
    """Status codes by errno, from the table itself."""
    with open(os.path.join(os.path.dirname(__file__), "../../proto/status.c"), encoding="utf-8") as file:
        text = file.read()
    table = text[text.index("{", text.index("[]")) + 1 : text.index("};")]
    names = [entry.strip() for entry in table.split(",")]
    return {name: index for index, name in enumerate(names)}


def varint(value):
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value % (1 << 64))


def data(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def real(field, value):
    return varint(field << 3 | 5) + struct.pack("<f", value)


def rates(learning_rate=0.0):
    return real(1, learning_rate) + real(2, 1.0) + real(3, 1.0)


class Client:
    """A connection that keeps the descriptors that come with the answers."""

    def __init__(self):
        self.socket = frames.connect()
        self.buffer, self.descriptors, self.requests = b"", [], 1
        frames.send(self.socket, frames.hello())
        assert self.next_frame()[0] == HELLO_REPLY

    def fill(self):
        received, descriptors, _, _ = socket.recv_fds(self.socket, 65536, 16)
        self.descriptors += descriptors
        if not received:
            raise EOFError
        self.buffer += received

    def next_frame(self):
        while True:
            if len(self.buffer) >= 16:
                _, _, kind, length, request = struct.unpack("<IHHII", self.buffer[:16])
                if len(self.buffer) >= 16 + length:
                    body, self.buffer = self.buffer[16 : 16 + length], self.buffer[16 + length :]
                    return kind, request, frames.fields(body)
            self.fill()

    def send(self, field, body):
        self.requests += 1
        self.socket.sendall(frames.frame(REQUEST, data(field, body), request=self.requests))
        return self.requests

    def call(self, field, body):
        """Status code, message, and the fields of the answer's body."""
        request = self.send(field, body)
        while True:
            kind, answered, reply = self.next_frame()
            if kind == REPLY and answered == request:
                status = frames.fields(reply.pop(1, b""))
                body = frames.fields(next(iter(reply.values()))) if reply else {}
                return status.get(1, 0), status.get(2, b"").decode(), body

    def drain(self):
        """Reads what is there. False: tierd takes nothing more, as too many requests wait for their answers."""
        while select.select([self.socket], [], [], 0)[0]:
            self.fill()
        self.buffer = b""
        return bool(select.select([], [self.socket], [], 0)[1])

    def close(self):
        self.socket.close()
        for descriptor in self.descriptors:
            os.close(descriptor)


def open_job(client, name, mode=0, stage=3, buffers=2):
    return client.call(
        OPEN,
        data(1, name) + number(3, 1) + number(4, stage) + number(5, mode) + number(12, buffers) + number(14, 1),
    )


def define(client, job, name, elements):
    tensor = data(1, name) + number(3, 1) + data(4, varint(elements)) + number(6, 0) + number(7, 2)
    return client.call(DEFINE, number(1, job) + data(2, name) + data(3, tensor))


def join(client, name, mode=0):
    code, text, opened = open_job(client, name, mode)
    assert code == 0, text
    job = opened[1]
    for unit in range(3):
        code, text, _ = define(client, job, f"unit{unit}", 1000)
        assert code == 0, text
    code, text, ready = client.call(READY, number(1, job) + number(2, 20000))
    assert code == 0, text
    return job, ready[3]


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


def scribble(requests):
    """Joins, fills what it shares with noise while it asks for anything, and goes without a word."""
    client = Client()
    stop, writer = threading.Event(), None
    try:
        job, epoch = join(client, "scribbler", mode=chance.choice([0, 3]))
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
