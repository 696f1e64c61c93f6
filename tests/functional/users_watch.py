"""What happens is told to those who watch: each hears of what it may see, and nobody has to wait for who does not read."""
import json
import os
import signal
import subprocess
import threading

from users import ADMINISTRATOR, ALICE, BOB, Rank, refused, tierctl, train

TIERCTL = os.environ["TIERCTL"]


class Watch:
    """A tierctl watch --json; lines are read as they come."""

    def __init__(self, uid, *arguments, groups=()):
        self.process = subprocess.Popen(
            [TIERCTL, "--json", "watch", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            user=uid, group=uid, extra_groups=list(groups))
        self.events = []
        assert self.next()["event"] == "watching"
        self.events = []

    def next(self):
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        event = json.loads(line)
        self.events.append(event)
        return event

    def until(self, name):
        """The events up to the next one of that name; when a step is durable is not ordered with the rest."""
        start = len(self.events)
        while self.next()["event"] != name:
            pass
        return [event for event in self.events[start:] if name == "durable" or event["event"] != "durable"]

    def durable_steps(self):
        return [event["step"] for event in self.events if event["event"] == "durable"]

    def end(self, status=-signal.SIGINT):
        if status == -signal.SIGINT:
            self.process.send_signal(signal.SIGINT)
        rest = [json.loads(line) for line in self.process.stdout]
        errors = self.process.stderr.read()
        assert self.process.wait() == status, (self.process.returncode, errors)
        self.process.stdout.close()
        self.process.stderr.close()
        return rest, errors


def names(events):
    return [event["event"] for event in events]


def a_job_is_followed_from_its_opening_to_its_drop():
    watch = Watch(ALICE, "--steps")
    rank = Rank(ALICE, job="gpt", steps=2).ready()
    seen = watch.until("ready") + watch.until("applied") + watch.until("applied")
    assert names(seen) == ["opened", "attached", "initialized", "ready", "applied", "applied"], names(seen)
    assert all(event["job"] == "gpt" and event["uid"] == ALICE for event in seen), seen
    assert [event["step"] for event in seen[-2:]] == [1, 2], seen
    assert seen[3]["text"] == "epoch 1 begins at step 0, with 1 rank", seen[3]
    while watch.durable_steps()[-1:] != [2]:
        watch.until("durable")
    assert watch.durable_steps() == sorted(set(watch.durable_steps())), watch.durable_steps()
    assert seen[0]["time"][:3] == "202" and "T" in seen[0]["time"] and seen[0]["time"][-6] in "+-", seen[0]
    rank.kill()
    lost, ended = watch.until("epoch-ended")
    assert lost["event"] == "lost" and lost["rank"] == 0 and "its process died" in lost["text"], lost
    assert "is lost" in ended["text"] and "tierd_job_ready" in ended["text"], ended
    rank = Rank(ALICE, job="gpt", steps=0).ready()
    assert names(watch.until("ready")) == ["attached", "ready"]
    rank.leave()
    assert names(watch.until("left")) == ["left"]
    tierctl(ALICE, "evict", "gpt")
    tierctl(ALICE, "drop", "gpt", "--yes")
    assert names(watch.until("dropped")) == ["evicted", "dropped"]
    assert watch.end() == ([], "")


def each_hears_of_what_it_may_see():
    watches = {uid: Watch(uid) for uid in (ALICE, BOB, ADMINISTRATOR)}
    train(ALICE, job="hers")
    train(BOB, job="his")
    tierctl(ADMINISTRATOR, "drain")
    tierctl(ADMINISTRATOR, "drain", "--undo")
    seen = {uid: watch.until("drain-ended") for uid, watch in watches.items()}
    for uid, own in ((ALICE, ["hers"]), (BOB, ["his"]), (ADMINISTRATOR, ["hers", "his"])):
        assert sorted({event["job"] for event in seen[uid] if "job" in event}) == own, seen[uid]
        assert names(seen[uid])[-2:] == ["draining", "drain-ended"], seen[uid]
        # Steps only where they were asked for.
        assert "applied" not in names(seen[uid]), seen[uid]
    # The configuration is the administrators' business.
    os.kill(int(os.environ["TIERD_PID"]), signal.SIGHUP)
    watches[ADMINISTRATOR].until("reloaded")
    for uid in (ALICE, BOB):
        tierctl(uid, "drop", "hers" if uid == ALICE else "his", "--yes")
        assert names(watches[uid].until("dropped")) == ["dropped"]
    for watch in watches.values():
        watch.end()


def one_job_can_be_watched():
    watch = Watch(ADMINISTRATOR, "gpt", "--user", str(BOB), "--count", "3", "--timeout", "60")
    train(ALICE, job="gpt")
    train(BOB, job="other")
    train(BOB, job="gpt")
    rest, _ = watch.end(status=0)
    assert names(rest) == ["opened", "attached", "initialized"] and {event["uid"] for event in rest} == {BOB}, rest
    for uid, job in ((ALICE, "gpt"), (BOB, "gpt"), (BOB, "other")):
        tierctl(uid, "drop", job, "--yes")


def lines_are_for_people():
    watch = subprocess.Popen([TIERCTL, "watch", "--count", "2"], stdout=subprocess.PIPE, text=True, user=ALICE,
                             group=ALICE, extra_groups=[])
    assert watch.stdout.readline().endswith(" watching: what happens is told from now on\n")
    train(ALICE, job="gpt")
    opened, attached = watch.stdout.read().splitlines()
    assert watch.wait() == 0
    watch.stdout.close()
    assert f" opened gpt ({ALICE}): it is opened, for 1 rank at stage 3" in opened, opened
    assert f" attached gpt ({ALICE}): rank 0 (pid " in attached, attached
    tierctl(ALICE, "drop", "gpt", "--yes")


def what_fails_is_told():
    watch = Watch(ALICE)
    refused(ALICE, "the job's host_budget", job="large", host_budget=1 << 20)
    # Its plan, or the first of its ranks.
    seen = watch.until("refused")[-1]
    assert "host_budget" in seen["text"] and seen["job"] == "large" and seen["priority"] == 6, seen
    watch.end()


def a_watch_ends_when_it_is_told_to():
    tierctl(ALICE, "watch", "--timeout", "1")
    tierctl(ALICE, "watch", "--timeout", "1", "--count", "2", status=1, says=["0 of 2 events came within 1 s"])
    tierctl(ALICE, "watch", "--count", "none", status=2, says=["--count cannot be 'none'"])
    tierctl(ALICE, "watch", "--frobnicate", status=2, says=["--frobnicate of watch"])
    tierctl(ALICE, "watch", "a", "b", status=2, says=["'b' is one argument too many"])
    tierctl(ALICE, "watch", "--user", str(BOB), status=2, says=["watch JOB --user USER"])
    tierctl(ALICE, "--socket", "/nowhere", "watch", status=3, says=["no tierd listens"])


def who_does_not_read_loses_events_and_slows_nobody():
    slow, quick = Watch(ALICE, "--steps"), Watch(ALICE, "--steps")
    slow.process.send_signal(signal.SIGSTOP)
    steps = 4000
    reader = threading.Thread(target=quick.until, args=["left"])
    reader.start()
    Rank(ALICE, job="gpt", steps=steps, units=1, mib=1, parameters="host", optimizer="host").ready().leave()
    reader.join()
    assert [event["step"] for event in quick.events if event["event"] == "applied"] == list(range(1, steps + 1))
    slow.process.send_signal(signal.SIGCONT)
    # The end is told, or is among the lost.
    lost = slow.until("events-lost")[-1]["count"]
    heard = len(slow.events) - 1
    assert lost > 0 and heard > 100, (lost, heard)
    assert lost + heard == len(quick.events), (lost, heard, len(quick.events))
    # It is not cut off.
    tierctl(ALICE, "drop", "gpt", "--yes")
    assert names(slow.until("dropped")) == ["dropped"]
    slow.end()
    quick.end()


def the_end_of_the_daemon_is_told():
    watch = Watch(ALICE)
    os.kill(int(os.environ["TIERD_PID"]), signal.SIGTERM)
    rest, errors = watch.end(status=3)
    assert names(rest) == ["stopping"] and "closed the connection" in errors, (rest, errors)


a_job_is_followed_from_its_opening_to_its_drop()
each_hears_of_what_it_may_see()
one_job_can_be_watched()
lines_are_for_people()
what_fails_is_told()
a_watch_ends_when_it_is_told_to()
who_does_not_read_loses_events_and_slows_nobody()
the_end_of_the_daemon_is_told()
