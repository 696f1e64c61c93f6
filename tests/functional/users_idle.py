"""A job that nobody trains gives its host memory back, and is the same when its ranks return."""
import json
import os

from users import ALICE, BOB, Rank, digest, jobs, node, refused, tierctl, train
from waiting import wait_until

RESUME = 2
begin = node()["host"]["used_bytes"]


def is_released(job, uid=ALICE):
    return jobs(uid)[job]["is_released"]


def units(job):
    return {unit["state"] for unit in json.loads(tierctl(ALICE, "--json", "units", job))}


def the_state_is_the_same_after_it(**keys):
    train(ALICE, job="kept", steps=3, **keys)
    expected = digest(ALICE, job="kept", mode=RESUME, steps=2, digest=1, **keys)
    train(ALICE, job="released", steps=3, **keys)
    held = jobs(ALICE)["released"]
    wait_until(lambda: is_released("released"))
    shown = jobs(ALICE)["released"]
    assert shown["status"] == "idle" and shown["idle_ms"] > 0
    # What is left: definitions and the map of its blocks.
    assert shown["host_bytes"] < 1 << 20 < held["host_bytes"] and shown["nvme_bytes"] == held["nvme_bytes"]
    tierctl(ALICE, "jobs", says=[", on NVMe only"])
    tierctl(ALICE, "units", "released", says=["absent"])
    assert digest(ALICE, job="released", mode=RESUME, steps=2, digest=1, **keys) == expected
    # And a second time.
    wait_until(lambda: is_released("released"))
    rank = Rank(ALICE, job="released", mode=RESUME, steps=0, **keys).ready()
    assert not is_released("released") and jobs(ALICE)["released"]["promised_bytes"] >= held["promised_bytes"]
    rank.kill()
    wait_until(lambda: is_released("released") and is_released("kept"))
    assert node()["host"]["used_bytes"] == begin + sum(job["host_bytes"] for job in jobs(ALICE).values())
    for job in ("kept", "released"):
        tierctl(ALICE, "drop", job, "--yes")
    wait_until(lambda: node()["host"]["used_bytes"] == begin and node()["nvme"][0]["used_bytes"] == 0)
    # Nor are buffers that all jobs share kept for nobody.
    wait_until(lambda: node()["host"]["pinned_bytes"] == 0)


def what_has_been_gathered_is_not_read_again():
    """Parameters that live in host memory come back there once, all of them."""
    keys = {"mib": 8, "units": 4, "frozen": 2, "parameters": "host"}
    train(ALICE, job="copied", steps=1, **keys)
    wait_until(lambda: is_released("copied"))
    tierctl(ALICE, "units", "copied", says=["absent", "nvme"])
    rank = Rank(ALICE, job="copied", mode=RESUME, steps=0, **keys).ready()
    wait_until(lambda: units("copied") == {"resident"})
    tierctl(ALICE, "evict", "copied", status=1, says=["keeps its parameters in host memory"])
    rank.leave()
    tierctl(ALICE, "drop", "copied", "--yes")


def what_is_in_host_memory_alone_stays():
    train(ALICE, job="host", optimizer="host", durability="none")
    train(ALICE, job="nvme")
    held = jobs(ALICE)["host"]["host_bytes"]
    wait_until(lambda: is_released("nvme"))
    wait_until(lambda: jobs(ALICE)["host"]["idle_ms"] > 3000)
    assert not is_released("host") and jobs(ALICE)["host"]["host_bytes"] == held
    tierctl(ALICE, "jobs", says=[", state in host memory"])
    for job in ("host", "nvme"):
        tierctl(ALICE, "drop", job, "--yes")


def who_returns_may_have_to_wait_for_memory():
    """The daemon has 256 MiB."""
    train(ALICE, job="away", mib=32)
    wait_until(lambda: is_released("away"))
    guest = Rank(BOB, job="large", mib=40, optimizer="host", parameters="host").ready()
    refused(ALICE, "ENOMEM", "what tierd has left", "other users have", job="away", mib=32, mode=RESUME)
    assert is_released("away") and jobs(ALICE)["away"]["status"] == "idle"
    # Nor does it keep the windows of ranks that came in vain.
    wait_until(lambda: jobs(ALICE)["away"]["host_bytes"] < 1 << 20)
    refused(ALICE, "ENOENT", job="no-such", mode=RESUME)
    refused(ALICE, "EEXIST", job="away", mib=32, mode=1)
    guest.leave()
    tierctl(BOB, "drop", "large", "--yes")
    Rank(ALICE, job="away", mib=32, mode=RESUME).ready().leave()
    # What has been released can be replaced, and dropped.
    wait_until(lambda: is_released("away"))
    train(ALICE, job="away", mode=3)
    wait_until(lambda: is_released("away"))
    tierctl(ALICE, "drop", "away", "--yes")
    wait_until(lambda: node()["host"]["used_bytes"] == begin and node()["nvme"][0]["used_bytes"] == 0)


the_state_is_the_same_after_it(mib=4)
the_state_is_the_same_after_it(mib=8, units=4, frozen=2, host_budget=24 << 20)
the_state_is_the_same_after_it(mib=8, units=4, frozen=2, parameters="host")
what_has_been_gathered_is_not_read_again()
the_state_is_the_same_after_it(mib=8, units=4, frozen=2, parameters="host", optimizer="host")
the_state_is_the_same_after_it(mib=8, units=4, frozen=2, parameters="nvme", optimizer="host")
what_is_in_host_memory_alone_stays()
who_returns_may_have_to_wait_for_memory()
log = open(os.environ["TIERD_LOG"], encoding="utf-8").read()
assert "host memory are given back, its state of step 5 stays on NVMe" in log
