#!/usr/bin/env python3
"""What tierctl says of a program that listens where tierd should, and answers something else: it names the place, and ends.

usage: strangers.py FOLDER"""
import os
import socket
import subprocess
import sys

from frames import HELLO_REPLY, REPLY, frame

path = os.path.join(sys.argv[1], "stranger")
hello = frame(HELLO_REPLY, b"\x0a\x00\x10\x01", request=1)


def meets(*answers):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        asker = subprocess.Popen(
            [os.environ["TIERCTL"], "--socket", path, "ping"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        connection, _ = listener.accept()
        with connection:
            for answer in answers:
                connection.recv(4096)
                connection.sendall(answer)
            said = asker.communicate()[0]
    os.unlink(path)
    assert asker.returncode == 3 and f"what listens at {path} does not speak tierd's protocol" in said, (answers, said)


meets(b"HTTP/1.1 400 Bad Request\r\n\r\n")
meets(frame(HELLO_REPLY, b"", request=1))
meets(frame(REPLY, b"\x0a\x00", request=1))
meets(hello, frame(REPLY, b"", request=2))
meets(hello, frame(REPLY, b"\xff", request=2))
