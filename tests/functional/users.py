"""Users of one daemon: their ranks (user_job.c, the first argument), and their tierctl."""
import json
import os
import subprocess
import sys

# Numbers that have no name anywhere.
ALICE, BOB, ADMINISTRATOR, OPERATOR, OPERATORS = 60001, 60002, 60009, 60003, 60019


class Rank:
    """A rank that stays until it is told to leave. within: a program that runs it."""

    def __init__(self, uid, within=(), **keys):
        words = [f"{key}={value}" for key, value in keys.items()]
        self.process = subprocess.Popen(
            [*within, sys.argv[1], f"uid={uid}", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self):
        return self.process.stdout.readline().rstrip("\n")

    def ready(self):
        line = self.line()
        assert line == "ready", line
        return self

    def leave(self, line=None):
        """In good order; or with a line that says why not."""
        self.process.stdin.close()
        if line:
            said = self.line()
            assert line in said, said
        assert self.process.wait() == (1 if line else 0), self.process.returncode
        self.process.stdout.close()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def refused(uid, *texts, **keys):
    """The rank does not get ready."""
    rank = Rank(uid, **keys)
    line = rank.line()
    for text in texts:
        assert text in line, f"{text!r} is not in {line!r}"
    rank.process.stdin.close()
    assert rank.process.wait() == 1
    rank.process.stdout.close()
    return line


def digest(uid, **keys):
    """What a rank, or a reader, says of its state: the step, and a number of all values."""
    rank = Rank(uid, **keys)
    line = rank.line()
    assert line.startswith("step "), line
    rank.ready().leave()
    return line


def train(uid, **keys):
    """A job that is trained and left."""
    Rank(uid, **keys).ready().leave()


def tierctl(uid, *arguments, status=0, group=None, groups=(), says=()):
    result = subprocess.run(
        [os.environ["TIERCTL"], *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        user=uid,
        group=uid if group is None else group,
        extra_groups=list(groups),
    )
    assert result.returncode == status, f"tierctl {arguments}: {result.returncode}: {result.stdout}"
    for text in says:
        assert text in result.stdout, f"{text!r} is not in {result.stdout!r}"
    return result.stdout


def jobs(uid, groups=()):
    return {job["name"]: job for job in json.loads(tierctl(uid, "--json", "jobs", groups=groups))}


def node(uid=ALICE):
    return json.loads(tierctl(uid, "--json", "status"))
