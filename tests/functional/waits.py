"""Which rank the others wait for, for what and since when: it is shown, and told to who watches.

waits.py: all of it; waits.py RANK: a rank in a process of its own, which does what its standard input says."""
import json
import signal
import subprocess
import sys

import messages
from messages import OPEN, READY, STEP, Client, data, number
from programs import TIERCTL, tierctl
from waiting import wait_until

RANKS = 3


class Rank:
    def __init__(self, rank):
        self.client = Client()
        code, text, opened = self.client.call(
            OPEN, data(1, "gpt") + number(2, rank) + number(3, RANKS) + number(4, 3) + number(12, 2) + number(14, 1)
        )
        assert code == 0, text
        self.job = opened[1]
        code, text, _ = messages.define(self.client, self.job, "unit", 1000)
        assert code == 0, text

    def send_ready(self):
        return self.client.send(READY, number(1, self.job) + number(2, 2**31 - 1))

    def take_ready(self, request):
        code, text, ready = self.client.answer(request)
        assert code == 0, text
        self.epoch = ready[3]

    def close_step(self):
        return self.client.send(STEP, number(1, self.job) + number(2, self.epoch) + data(3, messages.rates()))


def be_rank(rank):
    own = Rank(rank)
    for line in sys.stdin:
        if line == "ready\n":
            own.take_ready(own.send_ready())
        elif line == "step\n":
            own.client.answer(own.close_step())
        print(line, end="", flush=True)


class Other:
    """A rank that is a process, which can be stopped."""

    def __init__(self, rank):
        self.process = subprocess.Popen([sys.executable, __file__, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self, word):
        assert self.process.stdout.readline() == word + "\n"


def job():
    return json.loads(tierctl("--json", "jobs", "gpt"))


def stopped():
    return [member["rank"] for member in job()["members"] if member["is_stopped"]]


def waited():
    """For what, and for whom; the ranks themselves say the same."""
    shown = job()
    there = {member["rank"]: member["is_waited_for"] for member in shown["members"]}
    if shown["waits"] is None:
        assert not any(there.values()), shown
        return None
    ranks = shown["waits"]["ranks"]
    assert shown["waits"]["rank_count"] == len(ranks) and shown["waits"]["seconds"] >= 0, shown
    assert [rank for rank in there if there[rank]] == [rank for rank in ranks if rank in there], shown
    return shown["waits"]["for"], ranks


def rows():
    return {line.split()[0]: line for line in tierctl("jobs", "gpt").splitlines()[3:]}


def event_of(watch):
    while True:
        event = json.loads(watch.stdout.readline())
        if event["event"] == "waiting":
            return event


def main():
    watch = subprocess.Popen([TIERCTL, "--json", "watch", "gpt"], stdout=subprocess.PIPE, text=True)
    assert json.loads(watch.stdout.readline())["event"] == "watching"
    first = Rank(0)
    # Nobody waits as long as none asks for anything.
    assert waited() is None
    ready = first.send_ready()
    wait_until(lambda: waited() == ("ready", [1, 2]))
    assert rows()["1"].endswith("not here; others wait for it"), rows()
    second, third = Other(1), Other(2)
    second.tell("ready")
    wait_until(lambda: waited() == ("ready", [2]))
    third.tell("ready")
    first.take_ready(ready)
    for other in second, third:
        other.hear("ready")
    assert waited() is None

    # One is stopped, another has only not closed its step yet.
    step = first.close_step()
    wait_until(lambda: waited() == ("step", [1, 2]))
    assert stopped() == []
    third.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: stopped() == [2])
    second.tell("step")
    wait_until(lambda: waited() == ("step", [2]))
    event = event_of(watch)
    assert event["rank"] == 2 and event["job"] == "gpt", event
    said = f" s for rank 2 (pid {third.process.pid}, stopped by a signal) to close step 1"
    assert event["text"].startswith("others have waited ") and event["text"].endswith(said), event
    assert job()["waits"]["seconds"] >= 10
    text = tierctl("jobs", "gpt").splitlines()
    assert text[0].startswith("gpt: training, step 0, waits for rank 2 for "), text
    assert rows()["2"].endswith("training, stopped by a signal; others wait for it"), text
    assert "others" not in rows()["0"] + rows()["1"], text
    assert "training, waits for rank 2 for " in tierctl("jobs"), tierctl("jobs")

    # It goes on, and so do all.
    third.tell("step")
    third.process.send_signal(signal.SIGCONT)
    assert first.client.answer(step)[0] == 0
    for other in second, third:
        other.hear("step")
    assert waited() is None and stopped() == []
    watch.terminate()
    watch.stdout.close()
    watch.wait()
    for other in second, third:
        other.process.communicate()


if len(sys.argv) > 1:
    be_rank(int(sys.argv[1]))
else:
    main()
