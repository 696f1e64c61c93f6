#!/usr/bin/env python3
"""What tierctl says of a program that listens where tierd should, and answers something else: it names the place, and ends.
What it says of answers with characters that no terminal should get.

usage: strangers.py FOLDER"""
import os
import socket
import subprocess
import sys

from frames import HELLO_REPLY, REPLY, frame
from messages import data, number

path = os.path.join(sys.argv[1], "stranger")
hello = frame(HELLO_REPLY, b"\x0a\x00\x10\x01", request=1)


def ask(answers, *flags):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        asker = subprocess.Popen(
            [os.environ["TIERCTL"], *flags, "--socket", path, "ping"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        connection, _ = listener.accept()
        with connection:
            for answer in answers:
                connection.recv(4096)
                connection.sendall(answer)
            said = asker.communicate()[0]
    os.unlink(path)
    return asker.returncode, said


def meets(*answers):
    status, said = ask(answers)
    assert status == 3 and f"what listens at {path} does not speak tierd's protocol" in said, (answers, said)


meets(b"HTTP/1.1 400 Bad Request\r\n\r\n")
meets(frame(HELLO_REPLY, b"", request=1))
meets(frame(REPLY, b"\x0a\x00", request=1))
meets(hello, frame(REPLY, b"", request=2))
meets(hello, frame(REPLY, b"\xff", request=2))

# An error's message echoes what a user has named: escapes and overrides, the ends of a line, half of a character.
message = "unit \x1b[2J exe\u202egpj\u2028 \U000e0041 Übung".encode() + b"\xe2\x80"
refusal = frame(REPLY, data(1, number(1, 22) + data(2, message)), request=2)
status, said = ask([hello, refusal])
assert status == 1 and said == "tierctl: unit ?[2J exe???gpj??? ???? Übung??\n", said
status, said = ask([hello, refusal], "--json")
assert status == 1 and r'"unit \u001b[2J exe\u202egpj\u2028 \udb40\udc41 Übung??"' in said, said
