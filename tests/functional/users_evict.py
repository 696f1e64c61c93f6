"""Who holds a unit is shown, and what nobody holds leaves host memory when its owner or an administrator says so."""
import json
import os

from users import ADMINISTRATOR, ALICE, BOB, Rank, digest, tierctl, train
from waiting import wait_until

MIB = 1 << 20


def leases(uid, *arguments):
    return json.loads(tierctl(uid, "--json", "leases", *arguments))


def evict(uid, *arguments):
    return json.loads(tierctl(uid, "--json", "evict", *arguments))


def tiers(job):
    return [unit["tiers"] for unit in json.loads(tierctl(ALICE, "--json", "units", job))]


def state_of(job):
    return digest(ALICE, job=job, mib=16, units=4, steps=0, digest=1)


def the_holder_is_named():
    rank = Rank(ALICE, job="gpt", mib=16, units=4, hold=1).ready()
    [lease] = leases(ALICE, "gpt")
    assert (lease["job"], lease["uid"], lease["unit"], lease["name"]) == ("gpt", ALICE, 1, "u1"), lease
    assert lease["rank"] == 0 and lease["pid"] == rank.process.pid and lease["count"] == 1 and not lease["has_left"]
    assert [other["unit"] for other in leases(ALICE)] == [1]
    assert leases(BOB) == [] and leases(ADMINISTRATOR)[0]["pid"] == rank.process.pid
    tierctl(ALICE, "leases", says=[str(rank.process.pid), "u1"])
    tierctl(BOB, "leases", "gpt", status=1, says=["there is no job gpt"])
    tierctl(ALICE, "leases", "gpt", "other", status=2)
    tierctl(ALICE, "leases", "--frobnicate", status=2, says=["unknown flag --frobnicate of leases"])
    return rank


def what_nobody_holds_leaves(rank):
    assert tiers("gpt") == ["host+nvme"] * 4
    first = evict(ALICE, "gpt", "0")
    assert first["units"] == 1 and first["bytes"] >= 4 * MIB and first["leased_units"] == 0, first
    assert tiers("gpt") == ["nvme"] + ["host+nvme"] * 3
    assert evict(ALICE, "gpt", "0")["bytes"] == 0
    # By its name, too, beside a number.
    assert evict(ALICE, "gpt", "u0", "0") == {"units": 0, "bytes": 0, "leased_units": 0, "busy_units": 0}
    assert evict(ALICE, "gpt", "u1", "0") == {"units": 0, "bytes": 0, "leased_units": 1, "busy_units": 0}
    assert evict(ALICE, "gpt", "1") == {"units": 0, "bytes": 0, "leased_units": 1, "busy_units": 0}
    rest = evict(ADMINISTRATOR, "gpt")
    assert rest["units"] == 2 and rest["bytes"] == 2 * first["bytes"] and rest["leased_units"] == 1, rest
    assert tiers("gpt") == ["nvme", "host+nvme", "nvme", "nvme"]
    tierctl(ALICE, "evict", "gpt", says=["no unit left host memory; held, see tierctl leases: 1"])
    rank.leave()
    assert leases(ALICE) == []
    assert evict(ALICE, "gpt")["units"] == 1


def what_was_not_evicted_is_not_told():
    lines = [line for line in open(os.environ["TIERD_LOG"], encoding="utf-8") if "has evicted" in line]
    assert [line.split(" has evicted ")[1].split(",")[0] for line in lines[:2]] == ["1 unit", "2 units"], lines


def a_killed_rank_holds_nothing():
    rank = Rank(ALICE, job="killed", mib=16, units=4, hold=2).ready()
    assert leases(ALICE, "killed")[0]["unit"] == 2
    rank.kill()
    wait_until(lambda: leases(ALICE, "killed") == [])
    assert evict(ALICE, "killed", "u3", "1", "u0")["units"] == 3
    assert tiers("killed") == ["nvme", "nvme", "host+nvme", "nvme"]


def values_come_back():
    train(ALICE, job="untouched", mib=16, units=4)
    assert state_of("gpt") == state_of("untouched")


def refusals_say_why():
    tierctl(ALICE, "evict", status=2, says=["JOB is missing"])
    tierctl(ALICE, "evict", "gpt", "u1", "u9", "u", status=1, says=["job gpt has no unit u9; see tierctl units gpt"])
    tierctl(ALICE, "evict", "gpt", "--", "-1", status=1, says=["job gpt has no unit -1"])
    tierctl(ALICE, "evict", "gpt", "4", status=1, says=["job gpt has no unit 4; it has 4"])
    tierctl(BOB, "evict", "gpt", status=1, says=["there is no job gpt"])
    tierctl(BOB, "evict", "gpt", "--user", str(ALICE), status=1, says=["there is no job gpt"])
    train(ALICE, job="host", parameters="host")
    tierctl(ALICE, "evict", "host", status=1, says=["keeps its parameters in host memory"])
    waiting = Rank(ALICE, job="waiting", world_size=2)
    wait_until(lambda: "waiting" in tierctl(ALICE, "jobs"))
    tierctl(ALICE, "evict", "waiting", status=1, says=["when it has a state"])
    waiting.kill()


what_nobody_holds_leaves(the_holder_is_named())
what_was_not_evicted_is_not_told()
a_killed_rank_holds_nothing()
values_come_back()
refusals_say_why()
for name in ("gpt", "killed", "untouched", "host"):
    tierctl(ALICE, "drop", name, "--yes")
