"""A job that nobody trains gives its host memory up to who would be refused without it, and to who says so. By itself it would not in the
600 s of the default."""
import json

from users import ALICE, BOB, Rank, digest, jobs, node, refused, tierctl, train
from waiting import wait_until

RESUME = 2
# The daemon has 256 MiB, which is room for one of these.
LARGE = {"mib": 60, "units": 4, "parameters": "host"}
begin = node()["host"]["used_bytes"]


def is_released(job, uid=ALICE):
    return jobs(uid)[job]["is_released"]


def state_of(job):
    line = digest(ALICE, job=job, mode=RESUME, steps=2, digest=1, **LARGE)
    assert line.startswith("step 5: "), line
    return line


def drop(uid, *names):
    for name in names:
        tierctl(uid, "drop", name, "--yes")


def everything_is_given_back():
    wait_until(lambda: node()["host"]["used_bytes"] == begin and node()["nvme"][0]["used_bytes"] == 0)


def who_needs_it_gets_it_at_once():
    train(ALICE, job="gpt", steps=3, **LARGE)
    expected = state_of("gpt")
    drop(ALICE, "gpt")
    train(ALICE, job="gpt", steps=3, **LARGE)
    held = jobs(ALICE)["gpt"]["promised_bytes"]
    assert held > 128 << 20, held
    train(BOB, job="next", **LARGE)
    assert is_released("gpt") and jobs(ALICE)["gpt"]["host_bytes"] < 1 << 20
    # And back, from who has it now: with all that it was.
    assert state_of("gpt") == expected
    assert is_released("next", BOB) and jobs(ALICE)["gpt"]["promised_bytes"] == held
    # Not from who trains, who is named; and nothing is said that would destroy a state.
    rank = Rank(BOB, job="next", mode=RESUME, **LARGE).ready()
    text = refused(ALICE, "ENOMEM", "other users have", job="gpt", mode=RESUME, **LARGE)
    assert "drop" not in text, text
    rank.leave()
    assert not is_released("next", BOB)
    drop(ALICE, "gpt")
    drop(BOB, "next")
    everything_is_given_back()


def what_is_in_host_memory_alone_stays_and_is_named():
    train(ALICE, job="volatile", optimizer="host", durability="none", **LARGE)
    refused(ALICE, "ENOMEM", "volatile has ", "(idle, with its state in host memory)", "drop ends an idle job and destroys its state",
            job="next", **LARGE)
    assert not is_released("volatile")
    drop(ALICE, "volatile")
    everything_is_given_back()


def it_is_given_back_by_hand():
    train(ALICE, job="gpt")
    held = jobs(ALICE)["gpt"]["host_bytes"]
    result = json.loads(tierctl(ALICE, "--json", "release", "gpt"))
    assert is_released("gpt") and result == {"bytes": held - jobs(ALICE)["gpt"]["host_bytes"], "step": 1}, result
    tierctl(ALICE, "release", "gpt", says=["nothing to give back; the state of step 1 is on NVMe"])
    rank = Rank(ALICE, job="gpt", mode=RESUME).ready()
    tierctl(ALICE, "release", "gpt", status=1, says=["job gpt: it is in use by rank 0 (pid", "end them first"])
    rank.kill()
    # What it holds until its last step is on the devices is waited for.
    wait_until(lambda: jobs(ALICE)["gpt"]["status"] == "idle")
    tierctl(ALICE, "release", "gpt", says=[" given back; the state of step 2 stays on NVMe"])
    train(ALICE, job="volatile", optimizer="host", durability="none")
    tierctl(ALICE, "release", "volatile", status=1, says=["in host memory alone", "not durable", "would be lost"])
    assert not is_released("volatile")
    tierctl(BOB, "release", "gpt", status=1, says=["there is no job gpt"])
    tierctl(ALICE, "release", status=2, says=["JOB is missing"])
    drop(ALICE, "gpt", "volatile")


who_needs_it_gets_it_at_once()
what_is_in_host_memory_alone_stays_and_is_named()
it_is_given_back_by_hand()
