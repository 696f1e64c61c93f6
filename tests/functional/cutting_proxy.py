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


class Line:
    """Two sockets, and what passes between them."""

    def __init__(self, client, address):
        self.client = client
        self.daemon = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.daemon.connect(address)
        for source, target in ((self.client, self.daemon), (self.daemon, self.client)):
            threading.Thread(target=self.forward, args=(source, target), daemon=True).start()

    def split(self, source, data):
        """Yields the parts in which it goes on; EOFError: there the line ends."""
        raise NotImplementedError

    def forward(self, source, target):
        descriptors = []
        try:
            while True:
                data, descriptors, _, _ = socket.recv_fds(source, 65536, 16)
                if not data:
                    break
                for part in self.split(source, data):
                    # They go with the first byte.
                    socket.send_fds(target, [part[:1]], descriptors)
                    while descriptors:
                        os.close(descriptors.pop())
                    target.sendall(part[1:])
        except (OSError, EOFError):
            pass
        while descriptors:
            os.close(descriptors.pop())
        # Both at once: what is on its way in the other direction is lost, too.
        for end in (self.client, self.daemon):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def listen(path, make_line):
    """In a thread of its own, for as long as this process lives."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen(64)

    def accept():
        while True:
            client, _ = listening.accept()
            try:
                make_line(client)
            except OSError:
                client.close()

    threading.Thread(target=accept, daemon=True).start()


class Cuts:
    """How many there have been, of how many."""

    def __init__(self, seed, least, most, maximum):
        self.chance = random.Random(seed)
        self.least, self.most, self.maximum = least, most, maximum
        self.count = 0


class CutLine(Line):
    """Has some bytes left to live."""

    def __init__(self, client, cuts):
        self.cuts = cuts
        self.left = cuts.chance.randint(cuts.least, cuts.most)
        self.lock = threading.Lock()
        super().__init__(client, os.environ["TIERD_SOCKET"])

    def take(self, length):
        """How much of it may still pass."""
        with self.lock:
            if self.cuts.count >= self.cuts.maximum and self.left >= 0:
                return length
            passes = min(length, self.left)
            if passes < length and self.left >= 0:
                self.cuts.count += 1
                self.left = -1
            elif self.left >= 0:
                self.left -= length
            return max(passes, 0)

    def split(self, source, data):
        passes = self.take(len(data))
        if passes:
            yield data[:passes]
        if passes < len(data):
            raise EOFError


def main():
    cuts = Cuts(*(int(word) for word in sys.argv[2:6]))
    listen(sys.argv[1], lambda client: CutLine(client, cuts))
    print("listening", flush=True)
    sys.stdin.read()
    print(cuts.count)


if __name__ == "__main__":
    main()
