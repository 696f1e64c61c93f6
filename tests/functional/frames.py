"""Frames of tierd's protocol by hand, right and wrong ones, for tests of the daemon."""
import os
import socket
import struct

HELLO, HELLO_REPLY, REQUEST, REPLY = 1, 2, 3, 4
MAGIC = 0x31726974
# In proto/status.c, the index of the errno.
EBUSY, ETIMEDOUT, EPROTO, EPROTONOSUPPORT, EMSGSIZE = 5, 13, 15, 17, 27
PING = bytes([0x82, 0x01, 0x00])  # Request: field 16, empty


def frame(kind, message=b"", request=0, version=1, magic=MAGIC, length=None):
    length = len(message) if length is None else length
    return struct.pack("<IHHII", magic, version, kind, length, request) + message


def hello(minimum=1, maximum=1):
    return frame(HELLO, bytes([0x08, minimum, 0x10, maximum]), request=1)


def hello_of_trainer():
    """As the library says it, which maps pages, of whatever version; tierctl maps none."""
    return frame(HELLO, bytes([0x08, 1, 0x10, 1, 0xA0, 0x06, 1, 0xA8, 0x06, 99]), request=1)


def connect():
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Blocking, as the library's: behind a crowd, when the backlog is full, it waits for a place.
    connection.connect(os.environ["TIERD_SOCKET"])
    connection.settimeout(30)
    return connection


def send(connection, data):
    try:
        connection.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused before all was sent


def receive_exactly(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def varint(data, place):
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place


def fields(data):
    """The fields of a message: {number: value}; enough for a Status."""
    found, place = {}, 0
    while place < len(data):
        key, place = varint(data, place)
        if key & 7 == 0:
            value, place = varint(data, place)
        elif key & 7 == 2:
            length, place = varint(data, place)
            value, place = data[place : place + length], place + length
        elif key & 7 == 1:
            value, place = data[place : place + 8], place + 8
        else:
            value, place = data[place : place + 4], place + 4
        found[key >> 3] = value
    return found


def receive(connection):
    """The next frame: (type, request, status code, message for a person)."""
    magic, version, kind, length, request = struct.unpack("<IHHII", receive_exactly(connection, 16))
    assert magic == MAGIC and version == 1, (magic, version)
    status = fields(fields(receive_exactly(connection, length)).get(1, b""))
    return kind, request, status.get(1, 0), status.get(2, b"").decode()


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def greet():
    connection = connect()
    send(connection, hello())
    kind, _, code, text = receive(connection)
    assert kind == HELLO_REPLY and code == 0, (kind, code, text)
    return connection


def ping(connection):
    send(connection, frame(REQUEST, PING, request=5))
    assert receive(connection) == (REPLY, 5, 0, "")
