#!/usr/bin/env python3
"""Stands between library and daemon, and cuts each connection after some bytes, anywhere in a frame.

cutting_proxy.py SOCKET SEED LEAST MOST CUTS   listens at SOCKET, for the daemon at $TIERD_SOCKET, and cuts CUTS times; says
how often it has when its standard input ends
"""
import os
import random
import socket
import sys
import threading

least, most, maximum = (int(word) for word in sys.argv[3:6])
chance = random.Random(int(sys.argv[2]))
cuts = 0


class Line:
    """Two sockets, and the bytes that they have left to live."""

    def __init__(self, client):
        self.client = client
        self.daemon = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.daemon.connect(os.environ["TIERD_SOCKET"])
        self.left = chance.randint(least, most)
        self.lock = threading.Lock()
        for source, target in ((self.client, self.daemon), (self.daemon, self.client)):
            threading.Thread(target=self.forward, args=(source, target), daemon=True).start()

    def take(self, length):
        """How much of it may still pass."""
        global cuts
        with self.lock:
            if cuts >= maximum and self.left >= 0:
                return length
            passes = min(length, self.left)
            if passes < length and self.left >= 0:
                cuts += 1
                self.left = -1
            elif self.left >= 0:
                self.left -= length
            return max(passes, 0)

    def forward(self, source, target):
        try:
            while True:
                data, descriptors, _, _ = socket.recv_fds(source, 65536, 16)
                passes = self.take(len(data)) if data else 0
                if passes:
                    if descriptors:
                        socket.send_fds(target, [data[:passes]], descriptors)
                    else:
                        target.sendall(data[:passes])
                for descriptor in descriptors:
                    os.close(descriptor)
                if passes < len(data) or not data:
                    break
        except OSError:
            pass
        # Both at once: what is on its way in the other direction is lost, too.
        for end in (self.client, self.daemon):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def listen():
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(sys.argv[1])
    listening.listen(64)
    print("listening", flush=True)
    while True:
        client, _ = listening.accept()
        try:
            Line(client)
        except OSError:
            client.close()


threading.Thread(target=listen, daemon=True).start()
sys.stdin.read()
print(cuts)
