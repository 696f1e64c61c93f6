#!/usr/bin/env python3
"""What tierctl shows of jobs that are there, in tables and in JSON.

reports.py CLIENT    the client is reports.c; TIERCTL names tierctl"""
import json
import os
import subprocess
import sys

tierctl = os.environ["TIERCTL"]


class Client:
    """A client that stays where it is until it is told to go on."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.argv[1], *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def expect(self, word):
        line = self.process.stdout.readline()
        assert line == word + "\n", f"{line!r} instead of {word}"

    def go_on(self):
        self.process.stdin.write("\n")

    def end(self):
        self.process.stdin.close()
        assert self.process.wait() == 0, "see above"
        self.process.stdout.close()


def run(*arguments):
    result = subprocess.run([tierctl, *arguments], capture_output=True, text=True, check=True)
    assert result.stderr == "", result.stderr
    return result.stdout


def table(*arguments):
    """Rows by column; the last column may have blanks, others here have none but before a unit of measure."""
    titles, *rows = run(*arguments).splitlines()
    return titles.split(), [row.split() for row in rows]


def units(job):
    return json.loads(run("--json", "units", job))


def jobs():
    return json.loads(run("--json", "jobs"))


def job_of(name):
    return next(job for job in jobs() if job["name"] == name)


def leases(job):
    return {unit["unit"]: unit["leases"] for unit in units(job) if unit["leases"]}


def many_units_are_shown_page_by_page():
    client = Client("many")
    client.expect("held")
    shown = units("many")
    assert [unit["unit"] for unit in shown] == list(range(5000))
    assert [unit["name"] for unit in shown] == [f"u{i}" for i in range(5000)]
    assert all(unit["elements"] == 1000 and sum(unit["shard_elements"]) == 1024 for unit in shown)
    assert all(unit["bytes"] == 4096 and not unit["is_frozen"] and unit["version"] == 0 for unit in shown)
    # A pack has at most 2^20 elements, and its units are in the same place.
    assert [unit["pack"] for unit in shown] == [i // 1024 for i in range(5000)]
    assert all(unit["state"] == "resident" and unit["tiers"] == "host+nvme" for unit in shown[:1025])
    assert leases("many") == {unit: 1 for unit in (0, 511, 512, 1023, 1024, 4999)}
    assert job_of("many")["units"] == 5000

    titles, rows = table("units", "many")
    assert titles[0] == "UNIT" and titles[-1] == "NAME"
    assert [row[0] for row in rows] == [str(i) for i in range(5000)]
    assert [row[-1] for row in rows] == [f"u{i}" for i in range(5000)]
    # From the right: name, pack, frozen, dirty, version, leases, state.
    assert {int(row[0]) for row in rows if row[-6] == "1"} == {0, 511, 512, 1023, 1024, 4999}
    assert all(row[-6] in "01" and row[-7] == "resident" for row in rows[:1025])
    client.go_on()
    client.expect("released")
    assert not leases("many")
    client.end()


def leases_of_all_ranks_are_added():
    client = Client("shared")
    client.expect("both")
    assert leases("shared") == {1: 3, 2: 1}
    assert [len(unit["shard_elements"]) for unit in units("shared")] == [2, 2, 2]
    assert [member["activity"] for member in job_of("shared")["members"]] == ["training", "training"]
    assert all(member["silent_ms"] >= 0 for member in job_of("shared")["members"])
    assert json.loads(run("--json", "jobs", "shared"))["name"] == "shared"
    text = run("jobs", "shared").splitlines()
    assert text[0].startswith("shared: training, step 0") and text[2].split()[0] == "RANK"
    assert [line.split()[0] for line in text[3:]] == ["0", "1"] and all(" ago  training" in line for line in text[3:])
    client.go_on()
    client.expect("one")
    assert leases("shared") == {1: 1, 2: 1}
    assert run("jobs", "shared").splitlines()[-1].endswith("not here")
    shown = job_of("shared")
    assert [(member["rank"], member["activity"]) for member in shown["members"]] == [(0, "stale")]
    assert shown["status"] == "waiting for its ranks" and shown["world_size"] == 2
    client.end()
    assert not leases("shared") and not job_of("shared")["members"]


def what_is_written_is_dirty_until_it_is_stored():
    client = Client("frozen")
    client.expect("written")
    trained, frozen = units("frozen")
    assert (trained["is_dirty"], trained["is_frozen"], trained["tiers"]) == (False, False, "nvme")
    assert (frozen["is_dirty"], frozen["is_frozen"], frozen["tiers"]) == (True, True, "host+nvme")
    assert frozen["state"] == "forming" and job_of("frozen")["status"] == "filling"
    # Before the name: pack, frozen, dirty.
    assert [row[-4:-2] for row in table("units", "frozen")[1]] == [["no", "no"], ["yes", "yes"]]
    client.go_on()
    client.expect("ready")
    trained, frozen = units("frozen")
    assert not frozen["is_dirty"] and frozen["state"] in ("resident", "absent")
    client.end()


def units_are_seen_while_a_step_changes_them():
    client = Client("steps")
    seen, lines, step = set(), set(), 0
    # What the step is about to do, does, and has done: not every look meets all three.
    while not {"updating", "dirty", "ahead"} <= seen or "updating" not in lines:
        step += 1
        assert step <= 100, f"in 100 steps only {seen} and {lines}"
        client.expect("ready")
        client.go_on()
        client.expect("stepping")
        while True:
            shown = units("steps")
            assert all(unit["version"] in (step - 1, step) for unit in shown)
            seen |= {unit["state"] for unit in shown} | {"dirty" for unit in shown if unit["is_dirty"]}
            # A unit has the step before the job has.
            if job_of("steps")["step"] == step:
                break
            if any(unit["version"] == step for unit in shown):
                seen.add("ahead")
            lines |= {row[-7] for row in table("units", "steps")[1]}
        client.go_on()
    client.expect("ready")
    assert [unit["version"] for unit in units("steps")] == [step] * 6
    assert job_of("steps")["statistics"]["job_steps"] == step
    client.end()


def sums_that_are_spilled_are_shown():
    client = Client("spilled")
    client.expect("ready")
    shown = job_of("spilled")
    assert shown["gradient_placement"] == "nvme" and 0 < shown["spill_bytes"] < 6 << 22
    assert shown["statistics"]["job_gradient_read_bytes"] == 0
    client.go_on()
    client.expect("stepping")
    client.go_on()
    client.expect("ready")
    counts = job_of("spilled")["statistics"]
    spilled = (6 << 22) - shown["spill_bytes"]
    assert counts["job_gradient_written_bytes"] == counts["job_gradient_read_bytes"] == spilled, counts
    titles, rows = table("jobs")
    assert titles[-2:] == ["SUMS", "ON"]
    assert all((row[-1] == "nvme") == (row[0] == "spilled") for row in rows)
    assert f'job="spilled",kind="gradient",direction="written"}} {spilled}' in run("metrics")
    assert "  GRADIENT\n" in run("top", "--once")
    client.end()


def a_job_of_very_many_ranks_is_shown():
    client = Client("wide")
    client.expect("defined")
    shown = units("wide")
    assert [unit["unit"] for unit in shown] == list(range(100))
    assert all(unit["shard_elements"] == [1 << 26] * 1024 for unit in shown)
    assert all(unit["state"] == "forming" and unit["tiers"] == "" for unit in shown)
    assert len(table("units", "wide")[1]) == 100
    client.end()


def all_jobs_are_shown(count):
    others = [job["name"] for job in jobs()]
    names = others + [f"job{i}" for i in range(count)]
    client = Client("jobs", str(count))
    client.expect("open")
    shown = jobs()
    assert [job["name"] for job in shown] == names, f"{len(shown)} of {len(names)} jobs are shown"
    assert all(len(job["members"]) == 1 for job in shown[len(others) :])
    rows = table("jobs")[1]
    assert [row[0] for row in rows] == names
    assert json.loads(run("--json", "status"))["jobs"] == len(names)
    client.end()


many_units_are_shown_page_by_page()
leases_of_all_ranks_are_added()
what_is_written_is_dirty_until_it_is_stored()
units_are_seen_while_a_step_changes_them()
sums_that_are_spilled_are_shown()
a_job_of_very_many_ranks_is_shown()
for jobs_more in (70, 240):
    all_jobs_are_shown(jobs_more)
