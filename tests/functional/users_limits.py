"""Users and their jobs keep to the budgets that the configuration gives them (see users.sh)."""
import json
import math
import os
import re
import signal
import struct
import tempfile

from users import ADMINISTRATOR, ALICE, BOB, Rank, jobs, node, refused, tierctl, train
from waiting import wait_until

# Of both groups: the more generous one counts, word by word.
STUDENT, GROUPS = 60004, "60019,60020"
# Of another two, in the same way; and one who may have none.
KEEPER, KEEPERS, NOBODY = 60004, "60021,60022", 60005
NO_SNAPSHOTS = (1 << 32) - 1
MIB = 1 << 20
RESUME, REPLACE = 2, 3


def a_user_has_a_maximum_of_host_memory():
    rank = Rank(ALICE, job="first", mib=16).ready()
    first = jobs(ALICE)["first"]["host_bytes"]
    assert 32 * MIB < first < 64 * MIB
    text = refused(
        ALICE, "ENOMEM", "what is left of this user's host_maximum, 64.0 MiB", "; first has", job="second", mib=16
    )
    assert "other users" not in text, text
    # Definitions count too, before there is a plan.
    refused(ALICE, "ENOMEM", "host_maximum", job="second", mib=16, units=20000)
    his = Rank(BOB, job="his", mib=16).ready()
    # Nor is another user's memory of any help.
    train(BOB, job="idle", mib=4)
    refused(ALICE, "ENOMEM", "host_maximum", job="second", mib=16)
    assert not jobs(BOB)["idle"]["is_released"]
    tierctl(BOB, "drop", "idle", "--yes")
    rank.leave()
    tierctl(ALICE, "drop", "first", "--yes")
    train(ALICE, job="second", mib=16)
    tierctl(ALICE, "drop", "second", "--yes")
    # What is said of everyone.
    refused(BOB, "ENOMEM", "host_maximum, 128.0 MiB", "; his has", job="large", mib=32, units=2)
    his.leave()
    tierctl(BOB, "drop", "his", "--yes")


def a_user_has_a_maximum_on_nvme():
    train(ALICE, job="first", mib=8)
    refused(ALICE, "ENOSPC", "left of this user's nvme_maximum, 120.0 MiB", "; first has", job="second", mib=8, units=8)
    tierctl(ALICE, "drop", "first", "--yes")
    train(ALICE, job="second", mib=8, units=8)
    tierctl(ALICE, "drop", "second", "--yes")


def a_job_has_budgets_of_its_own():
    refused(BOB, "ENOSPC", "its nvme_budget is 20.0 MiB", job="own", mib=8, nvme_budget=20 * MIB)
    train(BOB, job="own", mib=8, nvme_budget=200 * MIB)
    assert jobs(BOB)["own"]["nvme_budget"] == 200 * MIB
    refused(BOB, "EINVAL", "NVMe budget is 0 here, 209715200 in the job", job="own", mib=8)
    tierctl(BOB, "drop", "own", "--yes")


def what_is_said_to_be_needed_would_do():
    keys = {"job": "least", "mib": 8, "units": 4}
    text = refused(BOB, "ENOMEM", "windows and definitions", host_budget=MIB, **keys)
    assert "place more on NVMe" not in text, text
    said = re.search(r"at least ([0-9.]+) MiB of host memory", text)[1]
    text = refused(BOB, "ENOMEM", f"at least {said} MiB", host_budget=int((float(said) - 0.1) * MIB), **keys)
    assert f"there are {said} MiB" not in text, text
    train(BOB, host_budget=math.ceil(float(said) * MIB), **keys)
    tierctl(BOB, "drop", "least", "--yes")
    train(BOB, **keys)
    needed = jobs(BOB)["least"]["nvme_bytes"]
    tierctl(BOB, "drop", "least", "--yes")
    text = refused(BOB, "ENOSPC", f"it needs {needed / MIB:.1f} MiB", nvme_budget=needed - 1, **keys)
    assert f"its nvme_budget is {needed / MIB:.1f} MiB" not in text, text


def a_job_that_names_no_budget_gets_the_default():
    keys = {"groups": GROUPS, "job": "default", "mib": 2}
    train(STUDENT, **keys)
    shown = jobs(STUDENT)["default"]
    assert shown["host_budget"] == 16 * MIB and shown["nvme_budget"] == 30 * MIB, shown
    tierctl(STUDENT, "drop", "default", "--yes")
    keys["mib"] = 16
    refused(STUDENT, "ENOMEM", "16.0 MiB (the job's host_budget)", **keys)
    refused(STUDENT, "ENOSPC", "its nvme_budget is 30.0 MiB", host_budget=100 * MIB, **keys)
    train(STUDENT, host_budget=100 * MIB, nvme_budget=200 * MIB, **keys)
    tierctl(STUDENT, "drop", "default", "--yes")
    # With one of the groups.
    keys.update(groups="60020", mib=2)
    train(STUDENT, **keys)
    shown = jobs(STUDENT)["default"]
    assert shown["host_budget"] == 12 * MIB and shown["nvme_budget"] == 0, shown
    tierctl(STUDENT, "drop", "default", "--yes")


def room_of(uid, job):
    return json.loads(tierctl(uid, "--json", "snapshots", job))["maximum"]


def room_for_snapshots_has_a_default():
    def made(**keys):
        train(KEEPER, job="kept", mib=1, groups=KEEPERS, **keys)
        room = room_of(KEEPER, "kept")
        # Who does not say it means what the job has.
        Rank(KEEPER, job="kept", mib=1, groups=KEEPERS, mode=RESUME).ready().leave()
        tierctl(KEEPER, "drop", "kept", "--yes")
        return room

    # One group gives three, and the other no more than two.
    assert made() == 2
    assert made(snapshots=1) == 1
    assert made(snapshots=NO_SNAPSHOTS) == 0
    refused(KEEPER, "EINVAL", "room for no snapshot", job="kept", groups=KEEPERS, snapshots=NO_SNAPSHOTS, every=1)
    train(KEEPER, job="kept", mib=1, groups=KEEPERS, every=1, steps=3)
    # Of steps that become durable together the last is kept.
    wait_until(lambda: "step-3" in tierctl(KEEPER, "snapshots", "kept"))
    # What is not durable has none, whatever would be its default.
    train(KEEPER, job="fleeting", mib=1, groups=KEEPERS, durability="none")
    # Later there is more room, and a rank that says nothing may come all the same.
    train(BOB, job="grown", mib=1)
    assert room_of(BOB, "grown") == 0
    tierctl(BOB, "reserve", "grown", "1")
    Rank(BOB, job="grown", mib=1, mode=RESUME).ready().leave()
    for uid, job in (KEEPER, "kept"), (KEEPER, "fleeting"), (BOB, "grown"):
        tierctl(uid, "drop", job, "--yes")


def what_is_imported_has_room_if_it_is_trained():
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = os.path.join(folder, "w.safetensors")
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + struct.pack("<4f", 1, 2, 3, 4))
        for flags, room in ([], 0), (["--optimizer", "adamw"], 2), (["--optimizer", "adamw", "--snapshots", "0"], 0):
            tierctl(KEEPER, "import", "imported", path, *flags, groups=[60021, 60022])
            assert room_of(KEEPER, "imported") == room, flags
            tierctl(KEEPER, "drop", "imported", "--yes")
        says = ["room for 3 snapshots is more", "snapshots_maximum"]
        flags = ["--optimizer", "adamw", "--snapshots", "3"]
        tierctl(KEEPER, "import", "imported", path, *flags, groups=[60021, 60022], status=1, says=says)


def room_for_snapshots_has_a_maximum():
    says = ["room for 3 snapshots is more than a job of this user may have, 2 (snapshots_maximum)", "an administrator"]
    refused(ALICE, "EPERM", *says, job="three", mib=1, snapshots=3)
    train(ALICE, job="two", mib=1, snapshots=1)
    tierctl(ALICE, "reserve", "two", "3", status=1, says=says)
    tierctl(ALICE, "reserve", "two", "2")
    tierctl(ALICE, "drop", "two", "--yes")
    says = ["room for 1 snapshot is more than a job of this user may have, 0"]
    refused(NOBODY, "EPERM", *says, job="one", mib=1, snapshots=1)
    train(NOBODY, job="one", mib=1)
    tierctl(NOBODY, "reserve", "one", "1", status=1, says=says)
    tierctl(NOBODY, "drop", "one", "--yes")


def the_share_of_the_devices_is_the_users_and_weights_have_a_maximum():
    says = "io_weight 51 is more than a job of this user may have, 50 (io_weight_maximum)"
    refused(NOBODY, "EPERM", says, job="heavy", mib=1, io_weight=51)
    for asked, has in (0, 50), (50, 50), (7, 7):
        train(NOBODY, job="light", mib=1, io_weight=asked)
        assert (jobs(NOBODY)["light"]["io_weight"], jobs(NOBODY)["light"]["io_share"]) == (has, 7)
        # Who does not say it means what the job has.
        Rank(NOBODY, job="light", mib=1, mode=RESUME).ready().leave()
        tierctl(NOBODY, "drop", "light", "--yes")
    train(BOB, job="heavy", mib=1, io_weight=10000)
    assert (jobs(BOB)["heavy"]["io_weight"], jobs(BOB)["heavy"]["io_share"]) == (10000, 100)
    tierctl(BOB, "drop", "heavy", "--yes")


def what_is_there_stays_whatever_the_maximum_has_become():
    Rank(ALICE, job="two", mib=1, snapshots=2, mode=RESUME).ready().leave()
    tierctl(ALICE, "reserve", "two", "3", status=1, says=["may have, 1 (snapshots_maximum)"])
    refused(ALICE, "EPERM", "may have, 1", job="two", mib=1, snapshots=2, mode=REPLACE)
    # An administrator may know better.
    tierctl(ADMINISTRATOR, "reserve", "two", "3", "--user", str(ALICE))
    assert room_of(ALICE, "two") == 3
    tierctl(ALICE, "drop", "two", "--yes")


def a_reload_changes_limits_and_administrators():
    """For new jobs; those that are there keep what they had."""
    train(ALICE, job="two", mib=1, snapshots=2)
    train(BOB, job="early", mib=1)
    old = Rank(ALICE, job="old", mib=4).ready()
    assert jobs(ADMINISTRATOR) == {}
    with open(os.environ["CONF"], "w", encoding="utf-8") as configuration:
        configuration.write(
            f"[users]\nadministrators = {ADMINISTRATOR}\nlimit = {ALICE} host_maximum=20M snapshots_maximum=1\n"
            f"limit = {BOB} snapshots_default=1\nlimit = {ADMINISTRATOR} snapshots_maximum=0\n"
        )
    os.kill(int(os.environ["TIERD_PID"]), signal.SIGHUP)
    wait_until(lambda: "old" in jobs(ADMINISTRATOR))
    what_is_there_stays_whatever_the_maximum_has_become()
    Rank(BOB, job="early", mib=1, mode=RESUME).ready().leave()
    assert room_of(BOB, "early") == 0
    tierctl(BOB, "drop", "early", "--yes")
    refused(ALICE, "ENOMEM", "host_maximum, 20.0 MiB", "; old has", job="new", mib=4)
    old.leave()
    train(BOB, job="his", mib=32, units=4)
    Rank(ALICE, job="old", mib=4, mode=RESUME).ready().leave()
    tierctl(ADMINISTRATOR, "drop", "old", "--yes")
    tierctl(ADMINISTRATOR, "drop", "his", "--yes")
    log = open(os.environ["TIERD_LOG"], encoding="utf-8").read()
    assert f"administrators in [users] is {ADMINISTRATOR} from now on" in log
    assert f"limit in [users] is {ALICE} host_maximum=20M snapshots_maximum=1, {BOB} snapshots_default=1, " in log


begin = node()["host"]["used_bytes"]
a_user_has_a_maximum_of_host_memory()
a_user_has_a_maximum_on_nvme()
a_job_has_budgets_of_its_own()
what_is_said_to_be_needed_would_do()
a_job_that_names_no_budget_gets_the_default()
room_for_snapshots_has_a_default()
what_is_imported_has_room_if_it_is_trained()
room_for_snapshots_has_a_maximum()
the_share_of_the_devices_is_the_users_and_weights_have_a_maximum()
a_reload_changes_limits_and_administrators()
wait_until(lambda: node()["host"]["used_bytes"] == begin and node()["nvme"][0]["used_bytes"] == 0)
