"""Messages of tierd's protocol by hand, and a client that sends them, right or wrong."""
import os
import socket
import struct

import frames
from frames import HELLO_REPLY, REPLY, REQUEST

# The fields of a Request.
OPEN, DEFINE, READY, LEAVE, GATHER, CANCEL, PREFETCH, PHASE, WAIT, PUSH, BEGIN, STEP, WRITE, READ, STATISTICS = range(1, 16)
PING, NODE, JOBS, UNITS, AWAIT = range(16, 21)
DROP, MAP, LEASES, EVICT, DRAIN, RELEASE, FINISH, WATCH, HURRY = 30, 40, 50, 51, 52, 53, 60, 110, 160
VERIFY, SCRUB, TRACE, TRACE_READ = 180, 181, 190, 191
BLOB_WRITE, BLOB_READ, BLOBS = 161, 162, 163
GPU_ATTACH, GPU_GATHER, GPU_GRADIENTS = 240, 241, 242
WRITE_BEGIN, WRITE_END, READ_MANY, GROUPS_SET, GROUPS_GET, READER_READ_MANY, READER_MEMORY = 61, 62, 63, 64, 65, 76, 77
READER_OPEN, READER_UNITS, READER_REFRESH, READER_READ, READER_CLOSE, TENSORS = range(70, 76)
SNAPSHOT, SNAPSHOT_DELETE, SNAPSHOTS, SNAPSHOT_DIFF, ROLL_BACK, RESERVE, RETAIN, FORK, SHARE = range(140, 149)


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

    def __init__(self, greets=True):
        self.socket = frames.connect()
        self.buffer, self.descriptors, self.requests = b"", [], 1
        if greets:
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
        return self.answer(self.send(field, body))

    def answer(self, request):
        while True:
            kind, answered, reply = self.next_frame()
            if kind == REPLY and answered == request:
                status = frames.fields(reply.pop(1, b""))
                body = frames.fields(next(iter(reply.values()))) if reply else {}
                return status.get(1, 0), status.get(2, b"").decode(errors="replace"), body

    def drop_descriptors(self):
        while self.descriptors:
            os.close(self.descriptors.pop())

    def close(self):
        self.socket.close()
        self.drop_descriptors()


def open_job(client, name, buffers=2, room=0):
    return client.call(
        OPEN,
        data(1, name) + number(3, 1) + number(4, 3) + number(12, buffers) + number(14, 1) + number(23, room),
    )


def define(client, job, name, elements):
    tensor = data(1, name) + number(3, 1) + data(4, varint(elements)) + number(6, 0) + number(7, 2)
    return client.call(DEFINE, number(1, job) + data(2, name) + data(3, tensor))
