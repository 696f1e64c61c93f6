"""Who loops over requests rests as long as others want something, and they are served in between."""
import os
import select
import threading

import frames
from messages import PING, UNITS, Client, data
from users import ALICE, BOB, Rank

CONNECTIONS, PINGS = 14, 2000


def connect_as(uid):
    """A connection has the user who makes it."""
    os.seteuid(uid)
    try:
        return Client()
    finally:
        os.seteuid(0)


class Raid:
    """Connections of a user that ask, each for the next answer when one has come, until they are told to stop."""

    def __init__(self, uid, request):
        self.clients = [connect_as(uid) for _ in range(CONNECTIONS)]
        self.request, self.is_over, self.answers = request, False, 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        frame = frames.frame(frames.REQUEST, data(*self.request), request=7)
        sockets = [client.socket for client in self.clients]
        for one in sockets:
            one.sendall(frame)
        while not self.is_over:
            for one in select.select(sockets, [], [], 1)[0]:
                frames.receive(one)
                one.sendall(frame)
                self.answers += 1

    def end(self):
        self.is_over = True
        self.thread.join()
        for client in self.clients:
            client.close()
        return self.answers


def others_are_served_while_one_loops():
    """By turns that are counted: less than one for each connection of the one who loops, for one of the other."""
    job = Rank(ALICE, job="many", units=256).ready()
    client = connect_as(BOB)
    raid = Raid(ALICE, (UNITS, data(1, "many")))
    for _ in range(PINGS):
        assert client.call(PING, b"")[0] == 0
    answers = raid.end()
    job.leave()
    # In turns with all of these connections there would be as many for each ping.
    assert 0 < answers < PINGS * CONNECTIONS / 2, f"{answers} answers came to one who loops, {PINGS} to the other"


others_are_served_while_one_loops()
