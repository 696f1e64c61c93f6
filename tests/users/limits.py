#!/usr/bin/env python3
"""Users and their jobs keep to the budgets that the configuration gives them."""

import json
import math
import os
import re
import signal
import struct
import tempfile

from harness import Node
from waiting import wait_until

# Without a name. The student is in the first two, or in the others: the more generous one counts, word by word.
GROUPS, KEEPERS = (60019, 60020), (60021, 60022)
NO_SNAPSHOTS = (1 << 32) - 1
MIB = 1 << 20
RESUME, REPLACE = 2, 3


def a_user_has_a_maximum_of_host_memory(node):
    rank = node.alice.rank(job="first", mib=16).ready()
    first = node.alice.jobs()["first"]["host_bytes"]
    assert 32 * MIB < first < 64 * MIB
    text = node.alice.refused(
        "ENOMEM", "what is left of this user's host_maximum, 64.0 MiB", "; first has", job="second", mib=16
    )
    assert "other users" not in text, text
    # Definitions count too, before there is a plan.
    node.alice.refused("ENOMEM", "host_maximum", job="second", mib=16, units=20000)
    his = node.bob.rank(job="his", mib=16).ready()
    # Nor is another user's memory of any help.
    node.bob.train(job="idle", mib=4)
    node.alice.refused("ENOMEM", "host_maximum", job="second", mib=16)
    assert not node.bob.jobs()["idle"]["is_released"]
    node.bob.tierctl("drop", "idle", "--yes")
    rank.leave()
    node.alice.tierctl("drop", "first", "--yes")
    node.alice.train(job="second", mib=16)
    node.alice.tierctl("drop", "second", "--yes")
    # What is said of everyone.
    node.bob.refused("ENOMEM", "host_maximum, 128.0 MiB", "; his has", job="large", mib=32, units=2)
    his.leave()
    node.bob.tierctl("drop", "his", "--yes")


def a_user_has_a_maximum_on_nvme(node):
    node.alice.train(job="first", mib=8)
    node.alice.refused(
        "ENOSPC", "left of this user's nvme_maximum, 120.0 MiB", "; first has", job="second", mib=8, units=8
    )
    node.alice.tierctl("drop", "first", "--yes")
    node.alice.train(job="second", mib=8, units=8)
    node.alice.tierctl("drop", "second", "--yes")


def a_job_has_budgets_of_its_own(node):
    node.bob.refused("ENOSPC", "its nvme_budget is 20.0 MiB", job="own", mib=8, nvme_budget=20 * MIB)
    node.bob.train(job="own", mib=8, nvme_budget=200 * MIB)
    assert node.bob.jobs()["own"]["nvme_budget"] == 200 * MIB
    node.bob.refused("EINVAL", "NVMe budget is 0 here, 209715200 in the job", job="own", mib=8)
    node.bob.tierctl("drop", "own", "--yes")


def what_is_said_to_be_needed_would_do(node):
    keys = {"job": "least", "mib": 8, "units": 4}
    text = node.bob.refused("ENOMEM", "windows and definitions", host_budget=MIB, **keys)
    assert "place more on NVMe" not in text, text
    said = re.search(r"at least ([0-9.]+) MiB of host memory", text)[1]
    text = node.bob.refused("ENOMEM", f"at least {said} MiB", host_budget=int((float(said) - 0.1) * MIB), **keys)
    assert f"there are {said} MiB" not in text, text
    node.bob.train(host_budget=math.ceil(float(said) * MIB), **keys)
    node.bob.tierctl("drop", "least", "--yes")
    node.bob.train(**keys)
    needed = node.bob.jobs()["least"]["nvme_bytes"]
    node.bob.tierctl("drop", "least", "--yes")
    text = node.bob.refused("ENOSPC", f"it needs {needed / MIB:.1f} MiB", nvme_budget=needed - 1, **keys)
    assert f"its nvme_budget is {needed / MIB:.1f} MiB" not in text, text


def a_job_that_names_no_budget_gets_the_default(node):
    student, keys = node.student.among(*GROUPS), {"job": "default", "mib": 2}
    student.train(**keys)
    shown = student.jobs()["default"]
    assert shown["host_budget"] == 16 * MIB and shown["nvme_budget"] == 30 * MIB, shown
    student.tierctl("drop", "default", "--yes")
    keys["mib"] = 16
    student.refused("ENOMEM", "16.0 MiB (the job's host_budget)", **keys)
    student.refused("ENOSPC", "its nvme_budget is 30.0 MiB", host_budget=100 * MIB, **keys)
    student.train(host_budget=100 * MIB, nvme_budget=200 * MIB, **keys)
    student.tierctl("drop", "default", "--yes")
    # With one of the groups.
    student, keys["mib"] = node.student.among(GROUPS[1]), 2
    student.train(**keys)
    shown = student.jobs()["default"]
    assert shown["host_budget"] == 12 * MIB and shown["nvme_budget"] == 0, shown
    student.tierctl("drop", "default", "--yes")


def room_of(person, job):
    return json.loads(person.tierctl("--json", "snapshots", job))["maximum"]


def room_for_snapshots_has_a_default(node):
    keeper = node.student.among(*KEEPERS)

    def made(**keys):
        keeper.train(job="kept", mib=1, **keys)
        room = room_of(keeper, "kept")
        # Who does not say it means what the job has.
        keeper.rank(job="kept", mib=1, mode=RESUME).ready().leave()
        keeper.tierctl("drop", "kept", "--yes")
        return room

    # One group gives three, and the other no more than two.
    assert made() == 2
    assert made(snapshots=1) == 1
    assert made(snapshots=NO_SNAPSHOTS) == 0
    keeper.refused("EINVAL", "room for no snapshot", job="kept", snapshots=NO_SNAPSHOTS, every=1)
    keeper.train(job="kept", mib=1, every=1, steps=3)
    # Of steps that become durable together the last is kept.
    wait_until(lambda: "step-3" in keeper.tierctl("snapshots", "kept"))
    # What is not durable has none, whatever would be its default.
    keeper.train(job="fleeting", mib=1, durability="none")
    # Later there is more room, and a rank that says nothing may come all the same.
    node.bob.train(job="grown", mib=1)
    assert room_of(node.bob, "grown") == 0
    node.bob.tierctl("reserve", "grown", "1")
    node.bob.rank(job="grown", mib=1, mode=RESUME).ready().leave()
    for person, job in (keeper, "kept"), (keeper, "fleeting"), (node.bob, "grown"):
        person.tierctl("drop", job, "--yes")


def what_is_imported_has_room_if_it_is_trained(node):
    keeper = node.student.among(*KEEPERS)
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = os.path.join(folder, "w.safetensors")
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + struct.pack("<4f", 1, 2, 3, 4))
        for flags, room in ([], 0), (["--optimizer", "adamw"], 2), (["--optimizer", "adamw", "--snapshots", "0"], 0):
            keeper.tierctl("import", "imported", path, *flags)
            assert room_of(keeper, "imported") == room, flags
            keeper.tierctl("drop", "imported", "--yes")
        says = ["room for 3 snapshots is more", "snapshots_maximum"]
        flags = ["--optimizer", "adamw", "--snapshots", "3"]
        keeper.tierctl("import", "imported", path, *flags, status=1, says=says)


def room_for_snapshots_has_a_maximum(node):
    says = ["room for 3 snapshots is more than a job of this user may have, 2 (snapshots_maximum)", "an administrator"]
    node.alice.refused("EPERM", *says, job="three", mib=1, snapshots=3)
    node.alice.train(job="two", mib=1, snapshots=1)
    node.alice.tierctl("reserve", "two", "3", status=1, says=says)
    node.alice.tierctl("reserve", "two", "2")
    node.alice.tierctl("drop", "two", "--yes")
    says = ["room for 1 snapshot is more than a job of this user may have, 0"]
    node.nobody.refused("EPERM", *says, job="one", mib=1, snapshots=1)
    node.nobody.train(job="one", mib=1)
    node.nobody.tierctl("reserve", "one", "1", status=1, says=says)
    node.nobody.tierctl("drop", "one", "--yes")


def the_share_of_the_devices_is_the_users_and_weights_have_a_maximum(node):
    """Who is next by them, counted in bytes, is of the unit test schedule_users: a device does not wait for a test."""
    says = "io_weight 51 is more than a job of this user may have, 50 (io_weight_maximum)"
    node.nobody.refused("EPERM", says, job="heavy", mib=1, io_weight=51)
    for asked, has in (0, 50), (50, 50), (7, 7):
        node.nobody.train(job="light", mib=1, io_weight=asked)
        assert (node.nobody.jobs()["light"]["io_weight"], node.nobody.jobs()["light"]["io_share"]) == (has, 7)
        # Who does not say it means what the job has.
        node.nobody.rank(job="light", mib=1, mode=RESUME).ready().leave()
        node.nobody.tierctl("drop", "light", "--yes")
    node.bob.train(job="heavy", mib=1, io_weight=10000)
    assert (node.bob.jobs()["heavy"]["io_weight"], node.bob.jobs()["heavy"]["io_share"]) == (10000, 100)
    node.bob.tierctl("drop", "heavy", "--yes")


def what_is_there_stays_whatever_the_maximum_has_become(node):
    node.alice.rank(job="two", mib=1, snapshots=2, mode=RESUME).ready().leave()
    node.alice.tierctl("reserve", "two", "3", status=1, says=["may have, 1 (snapshots_maximum)"])
    node.alice.refused("EPERM", "may have, 1", job="two", mib=1, snapshots=2, mode=REPLACE)
    # An administrator may know better.
    node.admin.tierctl("reserve", "two", "3", "--user", str(node.alice.uid))
    assert room_of(node.alice, "two") == 3
    node.alice.tierctl("drop", "two", "--yes")


def a_reload_changes_limits_and_administrators(node):
    """For new jobs; those that are there keep what they had."""
    node.alice.train(job="two", mib=1, snapshots=2)
    node.bob.train(job="early", mib=1)
    old = node.alice.rank(job="old", mib=4).ready()
    assert node.admin.jobs() == {}
    alice, bob, admin = node.alice.uid, node.bob.uid, node.admin.uid
    node.configure(
        "[users]",
        f"administrators = {admin}",
        f"limit = {alice} host_maximum=20M snapshots_maximum=1",
        f"limit = {bob} snapshots_default=1",
        f"limit = {admin} snapshots_maximum=0",
    )
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "old" in node.admin.jobs())
    what_is_there_stays_whatever_the_maximum_has_become(node)
    node.bob.rank(job="early", mib=1, mode=RESUME).ready().leave()
    assert room_of(node.bob, "early") == 0
    node.bob.tierctl("drop", "early", "--yes")
    node.alice.refused("ENOMEM", "host_maximum, 20.0 MiB", "; old has", job="new", mib=4)
    old.leave()
    node.bob.train(job="his", mib=32, units=4)
    node.alice.rank(job="old", mib=4, mode=RESUME).ready().leave()
    node.admin.tierctl("drop", "old", "--yes")
    node.admin.tierctl("drop", "his", "--yes")
    log = node.log()
    assert f"administrators in [users] is {admin} from now on" in log
    assert f"limit in [users] is {alice} host_maximum=20M snapshots_maximum=1, {bob} snapshots_default=1, " in log


def used(node):
    status = json.loads(node.admin.tierctl("--json", "status"))
    return status["host"]["used_bytes"], status["nvme"][0]["used_bytes"]


with Node() as daemon:
    daemon.student, daemon.nobody, daemon.admin = (daemon.add(name) for name in ("student", "nobody", "admin"))
    daemon.configure(
        "[users]",
        f"limit = {daemon.alice.uid} host_maximum=64M nvme_maximum=120M snapshots_maximum=2",
        f"limit = @{GROUPS[1]} host_default=12M",
        f"limit = @{GROUPS[0]} host_default=16M nvme_default=30M",
        f"limit = @{KEEPERS[0]} snapshots_default=3",
        f"limit = @{KEEPERS[1]} snapshots_default=1 snapshots_maximum=2",
        f"limit = {daemon.nobody.uid} snapshots_maximum=0 io_share=7 io_weight_maximum=50",
        "limit = * host_maximum=128M",
    )
    daemon.start("--config", daemon.configuration)
    begin = used(daemon)
    a_user_has_a_maximum_of_host_memory(daemon)
    a_user_has_a_maximum_on_nvme(daemon)
    a_job_has_budgets_of_its_own(daemon)
    what_is_said_to_be_needed_would_do(daemon)
    a_job_that_names_no_budget_gets_the_default(daemon)
    room_for_snapshots_has_a_default(daemon)
    what_is_imported_has_room_if_it_is_trained(daemon)
    room_for_snapshots_has_a_maximum(daemon)
    the_share_of_the_devices_is_the_users_and_weights_have_a_maximum(daemon)
    a_reload_changes_limits_and_administrators(daemon)
    wait_until(lambda: used(daemon) == (begin[0], 0))
    daemon.stop()
