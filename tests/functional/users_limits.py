"""Users and their jobs keep to the budgets that the configuration gives them (see users.sh)."""
import math
import os
import re
import signal

from users import ADMINISTRATOR, ALICE, BOB, Rank, jobs, node, refused, tierctl, train
from waiting import wait_until

# Of both groups: the more generous one counts, word by word.
STUDENT, GROUPS = 60004, "60019,60020"
MIB = 1 << 20
RESUME = 2


def a_user_has_a_maximum_of_host_memory():
    train(ALICE, job="first", mib=16)
    first = jobs(ALICE)["first"]["host_bytes"]
    assert 32 * MIB < first < 64 * MIB
    text = refused(
        ALICE, "ENOMEM", "what is left of this user's host_maximum, 64.0 MiB", "; first has", job="second", mib=16
    )
    assert "other users" not in text and "tierctl drop" in text, text
    # Definitions count too, before there is a plan.
    refused(ALICE, "ENOMEM", "host_maximum", job="second", mib=16, units=20000)
    train(BOB, job="his", mib=16)
    tierctl(ALICE, "drop", "first", "--yes")
    train(ALICE, job="second", mib=16)
    tierctl(ALICE, "drop", "second", "--yes")
    # What is said of everyone.
    refused(BOB, "ENOMEM", "host_maximum, 128.0 MiB", "; his has", job="large", mib=32, units=2)
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


def a_reload_changes_limits_and_administrators():
    """For new jobs; those that are there keep what they had."""
    train(ALICE, job="old", mib=4)
    assert jobs(ADMINISTRATOR) == {}
    with open(os.environ["CONF"], "w", encoding="utf-8") as configuration:
        configuration.write(f"[users]\nadministrators = {ADMINISTRATOR}\nlimit = {ALICE} host_maximum=20M\n")
    os.kill(int(os.environ["TIERD_PID"]), signal.SIGHUP)
    wait_until(lambda: "old" in jobs(ADMINISTRATOR))
    refused(ALICE, "ENOMEM", "host_maximum, 20.0 MiB", "; old has", job="new", mib=4)
    train(BOB, job="his", mib=32, units=4)
    Rank(ALICE, job="old", mib=4, mode=RESUME).ready().leave()
    tierctl(ADMINISTRATOR, "drop", "old", "--yes")
    tierctl(ADMINISTRATOR, "drop", "his", "--yes")
    log = open(os.environ["TIERD_LOG"], encoding="utf-8").read()
    assert f"administrators in [users] is {ADMINISTRATOR} from now on" in log
    assert f"limit in [users] is {ALICE} host_maximum=20M from now on" in log


begin = node()["host"]["used_bytes"]
a_user_has_a_maximum_of_host_memory()
a_user_has_a_maximum_on_nvme()
a_job_has_budgets_of_its_own()
what_is_said_to_be_needed_would_do()
a_job_that_names_no_budget_gets_the_default()
a_reload_changes_limits_and_administrators()
wait_until(lambda: node()["host"]["used_bytes"] == begin and node()["nvme"][0]["used_bytes"] == 0)
