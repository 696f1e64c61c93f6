"""A daemon that is told to end, again and again, under a trainer that reconnects: stops.py GPT [SCENARIO CONFIGURATION ARGUMENT]

Each ends in good order, the next one is started at once or after a while, and the trainer goes on to the bits of a training that nobody
disturbed. $SCRATCH, $NVME and $TIERD_SOCKET are as of kills.py; $TIERD_STOPS_MOMENTS is the number of random moments in each
configuration, $TIERD_STOPS_STRIDE the distance between the requests that are tried. A failure says what repeats it.
"""
import itertools
import os
import random
import re
import struct
import sys
import threading

from cutting_proxy import Line, listen
from kills import OUTPUT, PATIENCE_MS, SCRATCH, await_end, check_log, content, daemon, forget, told, trainer
from waiting import wait_until

MOMENTS = int(os.environ.get("TIERD_STOPS_MOMENTS", "6"))
STRIDE = int(os.environ.get("TIERD_STOPS_STRIDE", "29"))
# Of a training that is disturbed at requests; at moments.
STEPS, MORE_STEPS = 4, 200
SOCKET, PROXY = os.environ["TIERD_SOCKET"], f"{SCRATCH}/proxy"
LOG, DUMP, LOCK = f"{SCRATCH}/log", f"{SCRATCH}/dump", f"{SCRATCH}/state/lock"
# How long a daemon lives at most, and how long there is none for once, in milliseconds.
LONGEST_LIFE, GAP = 250, 5000
# Where state lies, whether steps are announced, one rank or two, one micro-batch or two.
CONFIGURATIONS = {
    "nvme": "--parameters-on nvme --optimizer-on nvme",
    "nvme-silent": "--parameters-on nvme --optimizer-on nvme --no-announce --ranks 2 --micro-batches 2",
    "host": "--parameters-on host --optimizer-on host --ranks 2",
    "host-silent": "--parameters-on host --optimizer-on host --no-announce",
    "mixed": "--parameters-on host --optimizer-on nvme --stage 1 --micro-batches 2",
    "mixed-silent": "--parameters-on host --optimizer-on nvme --stage 1 --no-announce --ranks 2 --durability 60",
}


# ---- When a daemon is told to end


def await_lock(tierd):
    """Or its end. Before that it may not know yet what a signal means."""
    wait_until(lambda: tierd.poll() is not None or (os.path.exists(LOCK) and content(LOCK) == b"%d\n" % tierd.pid))


class Moments:
    """Some time after it was started, and how long there is none then."""

    socket = SOCKET

    def __init__(self, lives):
        self.lives = iter(lives)
        self.count = 0

    def await_one(self, tierd, gpt):
        """How long there is to be none then; None: the trainer has ended."""
        life, gap = next(self.lives, (None, 0))
        await_lock(tierd)
        if await_end(gpt, patience_ms=life):
            return None
        tierd.terminate()
        self.count += 1
        return gap


class Requests:
    """When a request is on its way to it, which it gets when it has heard that."""

    socket = PROXY

    def __init__(self):
        self.lock, self.tierd = threading.Lock(), None

    def begin(self, places):
        """0: none."""
        self.places = iter(places)
        self.count = self.left = 0

    def await_one(self, tierd, gpt):
        with self.lock:
            self.tierd, self.left = tierd, next(self.places, 0)
        if await_end(tierd, gpt) is gpt:
            return None
        with self.lock:
            assert self.left < 0, "tierd has ended by itself"
        return 0

    def pass_one(self):
        with self.lock:
            self.left -= 1
            if self.left == 0:
                self.left = -1
                self.tierd.terminate()
                wait_until(lambda: not os.path.exists(SOCKET))
                self.count += 1


class RequestLine(Line):
    def __init__(self, client, requests):
        self.requests, self.rest = requests, b""
        super().__init__(client, SOCKET)

    def split(self, source, data):
        if source is self.daemon:
            yield data
            return
        self.rest += data
        while len(self.rest) >= 16 and len(self.rest) >= (length := 16 + struct.unpack_from("<8xI", self.rest)[0]):
            self.requests.pass_one()
            yield self.rest[:length]
            self.rest = self.rest[length:]


# ---- Trainings


def train(flags, steps, dump, stops):
    """Through all of them, one daemon after the other."""
    with open(LOG, "w", encoding="utf-8") as log, open(OUTPUT, "w", encoding="utf-8") as output:
        tierd = daemon(None, log)
        gpt = trainer(output, *flags.split(), "--steps", str(steps), "--dump", dump, "--socket", stops.socket)
        try:
            while (gap := stops.await_one(tierd, gpt)) is not None:
                assert tierd.wait(PATIENCE_MS / 1000) == 0, f"tierd ends with {tierd.returncode}"
                await_end(gpt, patience_ms=gap)
                tierd = daemon(None, log)
            assert gpt.wait() == 0, f"the trainer ends with {gpt.returncode}: {content(OUTPUT)[-800:].decode()}"
            await_lock(tierd)
            tierd.terminate()
            assert tierd.wait(PATIENCE_MS / 1000) == 0, f"tierd ends with {tierd.returncode}"
        finally:
            for process in (gpt, tierd):
                process.kill()
                process.wait()
    assert check_log(LOG) == steps, "the last step is not durable"
    check_order(LOG)
    forget()


def check_order(path):
    """Daemons that end in good order lose no step that they have applied."""
    applied = 0
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if said := re.search(r": step (\d+) is applied", line):
                applied = int(said[1])
            elif back := re.search(r"it is back at step (\d+), its last durable one", line):
                assert int(back[1]) == applied, f"step {applied} was applied: {line}"


def expected(name, steps):
    """Of a configuration that nobody disturbs."""
    path = f"{SCRATCH}/{name}-{steps}"
    if not os.path.exists(path):
        train(CONFIGURATIONS[name], steps, path, Moments([]))
    return content(path)


def disturb(name, steps, stops):
    bits = expected(name, steps)
    train(CONFIGURATIONS[name], steps, DUMP, stops)
    assert content(DUMP) == bits, "other bits"


# ---- Scenarios


requests = Requests()


@told
def request(name, place):
    """Whether there is one of that number. Only the first daemon is told."""
    requests.begin([int(place)])
    disturb(name, STEPS, requests)
    return requests.count


@told
def later_requests(name, first, step):
    """How often: each daemon takes a few more than the one before it."""
    requests.begin(itertools.count(int(first), int(step)))
    disturb(name, STEPS, requests)
    return requests.count


@told
def moments(name, seed, gaps):
    """As many as there are to be, in as many trainings as it takes; so often none is there for a while."""
    chance, left, gaps = random.Random(f"{name} {seed}"), MOMENTS, int(gaps)
    while left > 0:
        stops = Moments([(chance.uniform(0, LONGEST_LIFE), GAP if i < gaps else 0) for i in range(left)])
        disturb(name, MORE_STEPS, stops)
        left, gaps = left - stops.count, max(0, gaps - stops.count)


def main():
    listen(PROXY, lambda client: RequestLine(client, requests))
    if len(sys.argv) > 2:
        {"request": request, "later_requests": later_requests, "moments": moments}[sys.argv[2]](*sys.argv[3:])
        return
    seed = random.randrange(1 << 16)
    print(f"seed {seed}", flush=True)
    for name in CONFIGURATIONS:
        place = 1 + seed % STRIDE
        while request(name, str(place)):
            place += STRIDE
        assert place > 60, "there are fewer requests than there were"
        step = min(STRIDE, 4)
        assert later_requests(name, str(1 + seed % step), str(step)) > 10
        moments(name, str(seed), str(MOMENTS // 40 or int(name == "nvme")))


if __name__ == "__main__":
    main()
