"""Jobs of two ranks, beside users who ask tierctl for everything at random, while ranks and daemons die:
chaos.py PROGRAM SECONDS SEED

Each answer comes, and says either that it is done or why it cannot be; who is told to try again is done in the end.
When all is left alone, each job goes on, its steps become durable, and its values are those of its step. What happens
follows the seed, but not the moments in which it meets tierd. $TIERD_CHAOS: what may happen, separated by commas."""
import os
import random
import re
import signal
import subprocess
import sys
import time

from waiting import PATIENCE

PROGRAM, SECONDS, SEED = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
SCRATCH, NVME = os.environ["SCRATCH"], os.environ["NVME"]
# Of a verb; what takes longer hangs.
VERB_SECONDS = 60
# At a time.
VERBS_MOST = 5
chance = random.Random(SEED)
JOBS = {
    "one": ["stage=3", "snapshots=2"],
    "two": ["stage=2", "parameters=host", "snapshots=1", "seconds=1"],
    "three": ["stage=3", "snapshots=3", "every=7", "optimizer=host"],
}
FORKS = ["fork-a", "fork-b"]
NAMES = ["s1", "s2"]
RANKS = 2
begun = time.monotonic()

# ---- What may be said at some moment

RANK_MAY = [
    r"EAGAIN: .*try again",
    r"tierd drains",
    # Before it was ready once.
    r"ESTALE.*was rolled back",
]
VERB_MAY = [
    # Of the daemon, which dies.
    r"no tierd listens|(closed|has ended) the connection|tierd is stopping|does not answer within",
    # Of names.
    r"there is no job|there is a job|has no snapshot|has a snapshot|it was dropped meanwhile",
    # Of what there is room for.
    r"the room of job|cannot be kept: it has room for|it only grows|cannot be forked|a store has room for",
    # Of a reader, when it was dropped.
    r"it is gone",
    # Of the state of the job, or of the node.
    r"no values yet|when it has a state|is in use by rank|keeps its parameters in host memory",
    r"tierd drains|ha(s|ve) not left|has ended before that was done|wait for their turn|by another process",
]
TRY_AGAIN = r"try again|ask again"
# In the log, of a node with good disks.
NEVER = r"mistake of tierd|one turn after the other|is broken at|does not come back|cannot be opened"


def may_be_said(patterns, text):
    return any(re.search(pattern, text) for pattern in patterns)


def note(text):
    with open(f"{SCRATCH}/story", "a", encoding="utf-8") as file:
        print(f"{time.monotonic() - begun:8.3f} {text}", file=file)


# ---- Who takes part


class Daemon:
    """One after the other."""

    def __init__(self):
        self.launch()

    def launch(self):
        command = [os.environ["TIERD"], "--socket", os.environ["TIERD_SOCKET"], "--state-dir", f"{SCRATCH}/state"]
        command += ["--host-budget", "192M", "--nvme", f"{NVME}:1G", "--workers", "1", "--file-system", "memory"]
        with open(f"{SCRATCH}/log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen([*command, "--log-level", "debug"], stderr=log)
        note(f"daemon {self.process.pid}")

    def end(self, number):
        note(f"daemon gets {number}")
        self.process.send_signal(number)

    def go_on(self):
        """Once it has ended, which takes a moment if it was told to."""
        status = self.process.poll()
        if status is not None:
            # One that is told so at once has not heard of that signal yet.
            assert status in (0, -signal.SIGKILL, -signal.SIGTERM), f"tierd has ended by itself, with {status}"
            self.launch()


class Rank:
    def __init__(self, job, number):
        self.name, self.output = f"rank {number} of {job}", f"{SCRATCH}/{job}-{number}"
        self.command = [PROGRAM, f"job={job}", f"rank={number}", *JOBS[job]]
        self.begin()

    def begin(self):
        with open(self.output, "a", encoding="utf-8") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=output)
        note(f"{self.name} is {self.process.pid}")

    def lines(self):
        with open(self.output, encoding="utf-8") as output:
            return output.read().splitlines()

    def durable(self):
        """How often it has seen a step become durable."""
        return sum(line.startswith("durable") for line in self.lines())

    def kill(self):
        note(f"{self.name} is killed")
        self.process.kill()
        self.process.wait()

    def go_on(self):
        """One that has ended is started again, if it may have."""
        status = self.process.poll()
        if status is None:
            return
        if status != -signal.SIGKILL:
            said = (self.lines() or [""])[-1]
            note(f"{self.name} ends: {said}")
            assert may_be_said(RANK_MAY, said), f"{self.name} ends with {status}: {said}"
        self.begin()


class Verb:
    def __init__(self, words):
        self.words, self.text, self.process, self.output = words, " ".join(words), None, ""
        self.begun = self.due = time.monotonic()
        note(f"{self.text} is asked for")

    def start(self):
        command = [os.environ["TIERCTL"], *self.words]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(command, text=True, **pipes)

    def read(self):
        self.output, status = self.process.stdout.read().strip(), self.process.returncode
        self.process.stdout.close()
        self.process = None
        note(f"{self.text}: {status}: {self.output[-300:]}")
        return status

    def go_on(self):
        """Whether it has ended, for good."""
        now = time.monotonic()
        assert now < self.begun + VERB_SECONDS, f"tierctl {self.text} takes longer than {VERB_SECONDS} s: {self.output}"
        if self.process is None:
            if now >= self.due:
                self.start()
            return False
        if self.process.poll() is None:
            return False
        status = self.read()
        if status and re.search(TRY_AGAIN, self.output):
            self.due = now + 0.05
            return False
        assert not status or may_be_said(VERB_MAY, self.output), f"tierctl {self.text}: {status}: {self.output}"
        return True


# ---- What happens

# How often, and of a verb what is asked for: of a job, a snapshot's name, and what is one or the other.
EVENTS = {
    "snapshot": (6, lambda job, name, either: ["snapshot", job, name]),
    "delete": (4, lambda job, name, either: ["snapshot", job, name, "--delete"]),
    "rollback": (6, lambda job, name, either: ["rollback", job, name, "--force", "--yes"]),
    "fork": (4, lambda job, name, either: ["fork", either, chance.choice(FORKS)]),
    "drop": (3, lambda job, name, either: ["drop", chance.choice(FORKS), "--force", "--yes"]),
    "release": (2, lambda job, name, either: ["release", job]),
    "evict": (2, lambda job, name, either: ["evict", job]),
    "reserve": (2, lambda job, name, either: ["reserve", job, str(chance.randrange(1, 5))]),
    "retain": (2, lambda job, name, either: ["retain", job, *chance.choice([["0"], ["5"], ["8", "1"], ["3", "2"]])]),
    "share": (2, lambda job, name, either: ["share", job, chance.choice(["none", "read", "train"]), "7"]),
    "verify": (2, lambda job, name, either: ["verify", job]),
    "scrub": (1, lambda job, name, either: ["scrub", chance.choice(["--now", "--stop"])]),
    "drain": (1, lambda job, name, either: ["drain", "--timeout", chance.choice(["0", "1"])]),
    "undo": (2, lambda job, name, either: ["drain", "--undo"]),
    "export": (2, lambda job, name, either: ["export", either, "--with-optimizer", "--force", "-o", f"{SCRATCH}/out"]),
    "snapshots": (1, lambda job, name, either: ["snapshots", job]),
    "jobs": (1, lambda job, name, either: ["jobs"]),
    "kill-rank": (3, None),
    "kill": (1, None),
    "terminate": (1, None),
}
KINDS = os.environ.get("TIERD_CHAOS", ",".join(EVENTS)).split(",")


class Play:
    def __init__(self):
        self.daemon, self.verbs = Daemon(), []
        self.ranks = [Rank(job, number) for job in JOBS for number in range(RANKS)]

    def go_on(self):
        self.daemon.go_on()
        for rank in self.ranks:
            rank.go_on()
        self.verbs = [verb for verb in self.verbs if not verb.go_on()]

    def act(self):
        kind = chance.choices(KINDS, [EVENTS[kind][0] for kind in KINDS])[0]
        job, name = chance.choice([*JOBS, *JOBS, *FORKS]), chance.choice(NAMES)
        if kind == "kill-rank":
            chance.choice(self.ranks).kill()
        elif kind in ("kill", "terminate"):
            self.daemon.end(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        else:
            self.verbs.append(Verb(EVENTS[kind][1](job, name, chance.choice([job, f"{job}@{name}"]))))

    def wait_for(self, condition, describe):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, describe()
            time.sleep(0.02)
            self.go_on()

    def end_verbs(self):
        self.wait_for(lambda: not self.verbs, lambda: f"no end of {[verb.text for verb in self.verbs]}")

    def come_to_rest(self):
        note("all is left alone")
        self.end_verbs()
        self.verbs.append(Verb(["drain", "--undo"]))
        self.end_verbs()
        aims = [(rank, rank.durable() + 2) for rank in self.ranks]
        self.wait_for(
            lambda: all(rank.durable() >= aim for rank, aim in aims),
            lambda: f"no step becomes durable: {[(rank.name, rank.lines()[-3:]) for rank, _ in aims]}",
        )

    def compare(self):
        for job in [*JOBS, *FORKS]:
            look = [PROGRAM, "look=1", f"job={job}"]
            said = subprocess.run(look, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=False).stdout
            note(f"{job}: {said}")
            assert said.startswith("step ") or (job in FORKS and "no job" in said), f"job {job}: {said}"

    def run(self):
        while time.monotonic() - begun < SECONDS:
            # Not to wait for anything: so that what comes next comes at any time.
            time.sleep(chance.random() * chance.choice([0.01, 0.1]))
            self.go_on()
            if len(self.verbs) < VERBS_MOST:
                self.act()
        self.come_to_rest()
        self.compare()
        for rank in self.ranks:
            rank.kill()
        self.daemon.end(signal.SIGTERM)
        assert self.daemon.process.wait(PATIENCE) == 0, "tierd ends with an error"
        with open(f"{SCRATCH}/log", encoding="utf-8") as log:
            for line in log:
                assert not re.search(NEVER, line), line

    def end(self):
        for part in [*self.ranks, *self.verbs, self.daemon]:
            if part.process:
                part.process.kill()


def main():
    play = Play()
    try:
        play.run()
    except AssertionError:
        with open(f"{SCRATCH}/story", encoding="utf-8") as story:
            print(*story.read().splitlines()[-60:], sep="\n")
        raise
    finally:
        play.end()


main()
