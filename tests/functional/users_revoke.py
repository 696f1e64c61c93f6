"""Whom a job is shared with changes while it is there: who loses a right by that loses what he has open, and nobody else does."""

import json
import os
import subprocess
import sys

from users import ADMINISTRATOR, ALICE, BOB, Rank, jobs, refused, tierctl, train
from waiting import wait_until

READ, TRAIN = 1, 2
GROUP, OTHERS, MEMBER, OWNER = 60100, 60101, f"{BOB},60100", {"owner": ALICE}


def share(job, *words, uid=ALICE, **keys):
    return tierctl(uid, "share", job, *words, **keys)


def reader(uid, job, reads="parameter", **keys):
    follows = reads != "all" and "snapshot" not in keys
    return Rank(uid, job=job, reads=reads, paced=1, follows=int(follows), **keys).ready()


def ask(rank):
    rank.process.stdin.write("\n")
    rank.process.stdin.flush()
    return rank.line()


def ended(rank, *texts):
    """Its next question is refused, and it ends."""
    line = ask(rank)
    for text in texts:
        assert text in line, f"{text!r} is not in {line!r}"
    rank.process.stdin.close()
    assert rank.process.wait() == 1
    rank.process.stdout.close()


def goes_on(rank):
    line = ask(rank)
    assert line.startswith("step "), line
    return line


def it_is_said_and_shown():
    train(ALICE, job="said")
    assert share("said") == "said is shared with nobody\n"
    assert json.loads(share("said", "--json")) == {"job": "said", "sharing": "no", "share_group": None}
    share("said", "read", status=1, says=["say with which group"])
    share("said", "write", status=2, says=["'write' is not 'none|read|train'"])
    share("said", "read", "no-such-group", status=2, says=["no group 'no-such-group'"])
    assert share("said", "read", str(GROUP)) == f"said is shared with group {GROUP}, to read\n"
    assert share("said", "train") == f"said is shared with group {GROUP}, to train\n"
    shown = json.loads(share("said", "--json", "read", str(OTHERS)))
    assert shown == {"job": "said", "sharing": "read", "share_group": OTHERS, "ended_ranks": 0, "ended_readers": 0}
    assert share("said", uid=BOB, groups=[OTHERS]) == f"said is shared with group {OTHERS}, to read\n"
    share("said", "train", uid=BOB, groups=[OTHERS], status=1, says=["is for its owner to say"])
    share("said", "none", uid=BOB, status=1, says=["there is no job said"])
    share("said", "none", "--user", str(ALICE), uid=ADMINISTRATOR)
    # What it was opened with is said again by each of its ranks.
    train(ALICE, job="said", sharing=TRAIN, share_group=GROUP)
    assert jobs(ALICE)["said"]["sharing"] == "no" and jobs(BOB, groups=[GROUP, OTHERS]) == {}
    tierctl(ALICE, "drop", "said", "--yes")


def readers_that_may_not_read_any_more_end():
    trainer = Rank(ALICE, job="read", paced=1, sharing=READ, share_group=GROUP, snapshots=1, takes="kept").ready()
    kept = [reader(ALICE, "read"), reader(ADMINISTRATOR, "read", "m", **OWNER)]
    lost = [
        reader(BOB, "read", groups=MEMBER, **OWNER),
        reader(BOB, "read", groups=MEMBER, snapshot="kept", **OWNER),
        reader(BOB, "read", groups=f"{BOB},{GROUP},{OTHERS}", **OWNER),
    ]
    first = {goes_on(rank) for rank in lost}
    assert len(first) == 1, first
    share("read", "read", str(OTHERS), says=["; 0 ranks and 2 readers have lost it"])
    for rank in lost[:2]:
        ended(rank, "EPERM", f"user {ALICE} has shared job read with group {OTHERS}, to read")
    assert ask(trainer) == "applied 2"
    for rank in [*kept, lost[2]]:
        goes_on(rank)
    share("read", "none", says=["0 ranks and 1 reader have lost it"])
    ended(lost[2], "EPERM", f"user {ALICE} has shared job read with nobody")
    refused(BOB, "ENOENT", job="read", reads="parameter", groups=MEMBER, **OWNER)
    assert ask(trainer) == "applied 3"
    for rank in kept:
        goes_on(rank)
        rank.leave()
    trainer.leave()
    tierctl(ALICE, "drop", "read", "--yes")


def the_optimizers_state_is_for_those_who_may_train():
    train(ALICE, job="state", sharing=TRAIN, share_group=GROUP)
    parameters, state = (reader(BOB, "state", reads, groups=MEMBER, **OWNER) for reads in ("parameter", "m"))
    goes_on(parameters)
    goes_on(state)
    share("state", "read", str(GROUP))
    goes_on(parameters)
    ended(state, "EPERM", f"user {ALICE} has shared job state with group {GROUP}, to read")
    parameters.leave()
    tierctl(ALICE, "drop", "state", "--yes")


def a_rank_that_loses_its_right_leaves_a_whole_step():
    keys = {"world_size": 2, "stage": 2}
    pair = [Rank(ALICE, job="alone", rank=rank, steps=2, **keys) for rank in range(2)]
    for rank in pair:
        rank.ready()
    for rank in pair:
        rank.leave()
    mine = Rank(ALICE, job="torn", sharing=TRAIN, share_group=GROUP, paced=1, **keys)
    wait_until(lambda: "torn" in jobs(ALICE))
    theirs = Rank(BOB, job="torn", rank=1, groups=MEMBER, paced=1, **keys, **OWNER)
    mine.ready()
    theirs.ready()
    # Half of the second step is there.
    mine.process.stdin.write("\n")
    mine.process.stdin.flush()
    wait_until(lambda: jobs(ALICE)["torn"]["members"][0]["pushes"] == 4)
    share("torn", "none", says=["1 rank"])
    assert "ESTALE" in (line := mine.line()) and f"user {ALICE} has shared job torn with nobody" in line, line
    mine.process.stdin.close()
    mine.process.wait()
    ended(theirs, "ESTALE", f"user {ALICE} has shared job torn with nobody")
    refused(BOB, "ENOENT", "shared with you", job="torn", rank=1, groups=MEMBER, **keys, **OWNER)
    assert jobs(ALICE)["torn"]["step"] == 1
    pair = [Rank(ALICE, job="torn", rank=rank, **keys, **{"from": 1}) for rank in range(2)]
    for rank in pair:
        rank.ready()
    for rank in pair:
        rank.leave()
    digests = set()
    for job in ("alone", "torn"):
        rank = reader(ALICE, job, "all")
        digests.add(goes_on(rank))
        rank.leave()
        tierctl(ALICE, "drop", job, "--yes")
    assert len(digests) == 1 and digests.pop().startswith("step 2: "), digests


def ranks_that_keep_it_go_on():
    rank = Rank(BOB, job="kept", world_size=1, groups=f"{BOB},{GROUP},{OTHERS}", **OWNER)
    rank.leave(line="ENOENT")
    train(ALICE, job="kept")
    share("kept", "train", str(GROUP))
    rank = Rank(BOB, job="kept", paced=1, groups=f"{BOB},{GROUP},{OTHERS}", **OWNER).ready()
    share("kept", "train", str(OTHERS), says=[f"kept is shared with group {OTHERS}, to train\n"])
    assert ask(rank) == "applied 2"
    rank.leave()
    tierctl(ALICE, "drop", "kept", "--yes")


def what_was_taken_does_not_come_back_with_a_snapshot():
    train(ALICE, job="back", sharing=TRAIN, share_group=GROUP, snapshots=2, takes="old")
    share("back", "none")
    tierctl(ALICE, "fork", "back@old", "forked")
    tierctl(ALICE, "rollback", "back", "old", "--yes")
    assert {job["sharing"] for job in jobs(ALICE).values()} == {"no"}
    assert jobs(BOB, groups=[GROUP]) == {}
    tierctl(ALICE, "drop", "forked", "--yes")
    tierctl(ALICE, "drop", "back", "--yes")


def a_trace_ends():
    train(ALICE, job="traced", sharing=READ, share_group=GROUP)
    tracing = subprocess.Popen(
        [os.environ["TIERCTL"], "trace", "traced", "--user", str(ALICE), "--seconds", "60", "-o", "-"],
        user=BOB,
        group=BOB,
        extra_groups=[GROUP],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "is traced" in tracing.stderr.readline()
    share("traced", "none")
    said = tracing.communicate()[1]
    assert tracing.returncode == 1 and f"user {ALICE} has shared job traced with nobody" in said, said
    tierctl(ALICE, "drop", "traced", "--yes")


def it_is_kept():
    train(ALICE, job="taken", sharing=TRAIN, share_group=GROUP)
    share("taken", "none")
    train(ALICE, job="given")
    share("given", "read", str(GROUP))


def it_was_kept():
    shown = {name: (job["sharing"], job["share_group"]) for name, job in jobs(ALICE).items()}
    assert shown == {"taken": ("no", 0), "given": ("read", GROUP)}, shown
    assert set(jobs(BOB, groups=[GROUP])) == {"given"}


if sys.argv[2] == "again":
    it_was_kept()
    sys.exit()
it_is_said_and_shown()
readers_that_may_not_read_any_more_end()
the_optimizers_state_is_for_those_who_may_train()
a_rank_that_loses_its_right_leaves_a_whole_step()
ranks_that_keep_it_go_on()
what_was_taken_does_not_come_back_with_a_snapshot()
a_trace_ends()
it_is_kept()
