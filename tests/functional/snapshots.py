"""What snapshots.sh plays: snapshots of a job, before and after its daemon was killed. The state of a step is a number that
user_job.c says of all its values."""
import json
import os
import subprocess
import sys

from states import ME, known, read, remember, state_after
from users import Rank, jobs, refused, tierctl
from waiting import wait_until

JOB = {"job": "gpt", "mib": 8, "units": 4, "snapshots": 2}


def snapshots(job="gpt"):
    return {one["name"]: one for one in json.loads(tierctl(ME, "--json", "snapshots", job))["snapshots"]}


def trained(first, steps, **keys):
    return state_after(first, steps, **(JOB | keys))


def states_of_one_that_is_calm():
    """What it is after three and after seven steps, of a job that nothing happens to."""
    states = {"three": trained(0, 3, job="calm"), "seven": trained(3, 4, job="calm")}
    tierctl(ME, "drop", "calm", "--yes")
    return states


def a_job_that_is_trained_is_kept_and_goes_on(states):
    rank = Rank(ME, **JOB, steps=3, paced=1, takes="first").ready()
    assert read(snapshot="first") == (3, states["three"])
    for step in (4, 5, 6, 7):
        rank.process.stdin.write("\n")
        rank.process.stdin.flush()
        assert rank.line() == f"applied {step}"
        if step == 5:
            # A reader that stays is of its step whatever comes.
            assert tierctl(ME, "snapshot", "gpt", "second") == "gpt@second is step 5\n"
    assert read(snapshot="first") == (3, states["three"])
    assert read() == (7, states["seven"])
    rank.leave()
    wait_until(lambda: jobs(ME)["gpt"]["durable_step"] == 7)
    listed = snapshots()
    assert {name: one["step"] for name, one in listed.items()} == {"first": 3, "second": 5}
    assert all(one["own_bytes"] > 0 for one in listed.values()), listed


def what_is_being_read_is_not_measured():
    reader = Rank(ME, job="gpt", reads="all", snapshot="first")
    assert reader.line().startswith("step 3: ")
    listed = snapshots()
    assert listed["first"]["own_bytes"] is None and listed["second"]["own_bytes"] > 0, listed
    assert "not known yet" in tierctl(ME, "snapshots", "gpt")
    reader.ready().leave()
    wait_until(lambda: snapshots()["first"]["own_bytes"] is not None)
    assert snapshots()["first"]["own_bytes"] > 0


def kept_for_readers(job="gpt"):
    return [one["step"] for one in json.loads(tierctl(ME, "--json", "snapshots", job))["readers"]]


def line_by_line(rank):
    rank.process.stdin.write("\n")
    rank.process.stdin.flush()
    return rank.line()


def a_step_is_kept_for_a_reader_alone():
    """It lasts as long as the reader does, whatever is trained, and takes the room of a snapshot meanwhile."""
    states = {step: trained(0, step, job=f"calm-{step}") for step in (2, 3)}
    for step in states:
        tierctl(ME, "drop", f"calm-{step}", "--yes")
    for keys in {}, {"parameters": "host", "optimizer": "host"}:
        keys = JOB | {"job": "read", "snapshots": 1} | keys
        rank = Rank(ME, **keys, steps=2, paced=1).ready()
        reader = Rank(ME, job="read", reads="all", as_snapshot=1, paced=1).ready()
        assert line_by_line(rank) == "applied 3"
        assert kept_for_readers("read") == [2] and not snapshots("read")
        # A second one of the same commit takes no more; of another one it would.
        wait_until(lambda: jobs(ME)["read"]["durable_step"] == 3 or keys.get("optimizer"))
        says = ["room of job read for 1 snapshot is used", "wait for the end of 1 reader"]
        tierctl(ME, "snapshot", "read", "mine", status=1, says=says)
        text = refused(ME, "ENOSPC", *says, job="read", reads="all", as_snapshot=1)
        assert "job read: job read" not in text, text
        assert line_by_line(reader) == f"step 2: {states[2]}"
        reader.leave()
        wait_until(lambda: not kept_for_readers("read"))
        assert read("read", as_snapshot=1) == (3, states[3])
        wait_until(lambda: not kept_for_readers("read"))
        tierctl(ME, "snapshot", "read", "mine")
        # What is read of a snapshot that goes is kept for the reader.
        reader = Rank(ME, job="read", reads="all", snapshot="mine", paced=1).ready()
        assert not kept_for_readers("read")
        assert tierctl(ME, "snapshot", "read", "mine", "--delete") == "read@mine is deleted\n"
        assert kept_for_readers("read") == [3]
        assert line_by_line(reader) == f"step 3: {states[3]}"
        reader.leave()
        rank.leave()
        tierctl(ME, "drop", "read", "--yes")


def what_cannot_be_is_refused():
    tierctl(ME, "snapshot", "gpt", "first", status=1, says=["has a snapshot first already, of step 3", "another name"])
    refusal = tierctl(ME, "snapshot", "gpt", "third", status=1, says=["room of job gpt for 2 snapshots is used", "first, second"])
    assert refusal.count("is used") == 1 and "with this one they would keep" in refusal, refusal
    for name in ("", "u p", "a/b", "..", "-x", "x" * 64):
        tierctl(ME, "snapshot", "gpt", "--", name, status=1, says=["is not allowed"])
    tierctl(ME, "snapshot", "gpt", status=2, says=["NAME is missing"])
    tierctl(ME, "snapshot", "nobody", "x", status=1, says=["no job nobody"])
    tierctl(ME, "snapshot", "gpt", "absent", "--delete", status=1, says=["no snapshot absent; it has first, second"])
    tierctl(ME, "diff", "gpt", "absent", status=1, says=["no snapshot absent"])
    tierctl(ME, "diff", "gpt", "first", "absent", status=1, says=["no snapshot absent"])
    tierctl(ME, "rollback", "gpt", "absent", "--yes", status=1, says=["no snapshot absent; it has first, second"])
    # What cannot be done is said before anybody is asked.
    tierctl(ME, "rollback", "gpt", "absent", status=1, says=["no snapshot absent; it has first, second"])
    tierctl(ME, "rollback", "gpt", "first", status=2, says=["no terminal", "--yes"])
    tierctl(ME, "units", "gpt@first", status=2, says=["takes a job, and no snapshot"])
    tierctl(ME, "read", "gpt@", "u0", "-o", "/dev/null", status=2, says=["no snapshot is named"])
    tierctl(ME, "read", "gpt@absent", "u0", "-o", "/dev/null", status=1, says=["no snapshot absent"])
    assert "ENOENT: job gpt has no snapshot absent" in refused(ME, job="gpt", reads="all", snapshot="absent")


def jobs_without_room_or_devices_have_none():
    rank = Rank(ME, job="narrow", mib=1).ready()
    tierctl(ME, "snapshot", "narrow", "x", status=1, says=["has no room for snapshots", "tierctl reserve"])
    refused(ME, "ENOSPC", "has no room for snapshots", job="narrow", reads="all", as_snapshot=1)
    rank.leave()
    # With its state in host memory it has a copy of that on NVMe, which is what is kept.
    rank = Rank(ME, job="warm", mib=1, snapshots=1, steps=2, takes="x", parameters="host", optimizer="host").ready()
    assert read("warm", snapshot="x") == read("warm")
    rank.leave()
    rank = Rank(ME, job="fleeting", mib=1, durability="none").ready()
    tierctl(ME, "snapshot", "fleeting", "x", status=1, says=["is not durable"])
    tierctl(ME, "snapshots", "fleeting", status=1, says=["is not durable"])
    refused(ME, "EOPNOTSUPP", "is not durable", job="fleeting", reads="all", as_snapshot=1)
    refused(ME, "EINVAL", "not both", job="fleeting", reads="all", as_snapshot=1, snapshot="x")
    rank.leave()
    refused(ME, "room for 15 snapshots; at most 14", job="wide", snapshots=15)
    refused(ME, "number of snapshots is 3 here, 2 in the job", **(JOB | {"snapshots": 3}))
    for job in ("narrow", "warm", "fleeting"):
        tierctl(ME, "drop", job, "--yes")


def a_name_that_is_too_long_is_not_cut():
    longest = "x" * 63
    Rank(ME, job="named", mib=1, snapshots=1, steps=1, takes=longest).ready().leave()
    tierctl(ME, "snapshot", "named", longest + "y", "--delete", status=1, says=["is not allowed"])
    assert set(snapshots("named")) == {longest}
    tierctl(ME, "drop", "named", "--yes")


def what_changed_is_counted():
    def changed(*names):
        done = json.loads(tierctl(ME, "--json", "diff", "gpt", *names))
        # Of what is trained: not of the room around it on the devices.
        assert done["changed_bytes"] <= done["state_bytes"] < snapshots_of_gpt["state_bytes"], done
        return done["changed_bytes"]

    snapshots_of_gpt = json.loads(tierctl(ME, "--json", "snapshots", "gpt"))
    assert changed("first", "first") == 0
    assert changed("first", "second") >= 3 * (8 << 20)
    assert changed("second") >= 3 * (8 << 20)


def room_grows():
    """Under its rank; who says what the job was made with, or has now, may attach all the same."""
    made = JOB | {"job": "grown", "mib": 1, "snapshots": 1, "nvme_budget": 60 << 20}
    Rank(ME, **made, steps=1, takes="one").ready().leave()
    rank = Rank(ME, **made, **{"from": 1}, steps=1).ready()
    tierctl(ME, "snapshot", "grown", "two", status=1, says=["room of job grown for 1 snapshot is used", "tierctl reserve"])
    no_room_is_made()
    before = jobs(ME)["grown"]["nvme_bytes"]
    after = json.loads(tierctl(ME, "--json", "reserve", "grown", "3"))["nvme_bytes"]
    listed = json.loads(tierctl(ME, "--json", "snapshots", "grown"))
    assert after - before == 2 * listed["state_bytes"] and jobs(ME)["grown"]["nvme_bytes"] == after, (before, after, listed)
    tierctl(ME, "snapshot", "grown", "two")
    rank.leave()
    trained(2, 1, **made)
    tierctl(ME, "snapshot", "grown", "three")
    trained(3, 1, **(made | {"snapshots": 3}))
    refused(ME, "number of snapshots is 4 here, 3 in the job", **(made | {"snapshots": 4}))
    has_grown(after)
    return after


def no_room_is_made():
    for count in ("0", "1"):
        tierctl(ME, "reserve", "grown", count, status=1, says=["has room for 1 snapshot, and it only grows"])
    tierctl(ME, "reserve", "grown", "15", status=1, says=["room for 15 snapshots of job grown; at most 14"])
    for count in ("x", "-1", "4294967296", ""):
        tierctl(ME, "reserve", "grown", "--", count, status=2, says=["is no number of snapshots"])
    tierctl(ME, "reserve", "nobody", "2", status=1, says=["no job nobody"])
    says = ["job grown: it needs", "what may change of its state, once more for each snapshot", "its nvme_budget is 60.0 MiB"]
    tierctl(ME, "reserve", "grown", "14", status=1, says=says)
    assert json.loads(tierctl(ME, "--json", "snapshots", "grown"))["maximum"] == 1


def has_grown(nvme_bytes):
    listed = json.loads(tierctl(ME, "--json", "snapshots", "grown"))
    assert listed["maximum"] == 3 and jobs(ME)["grown"]["nvme_bytes"] == nvme_bytes, (listed, nvme_bytes)
    assert {one["name"] for one in listed["snapshots"]} == {"one", "two", "three"}
    tierctl(ME, "snapshot", "grown", "four", status=1, says=["room of job grown for 3 snapshots is used"])


def steps_are_kept_by_themselves():
    Rank(ME, job="auto", mib=1, snapshots=2, every=2, steps=7).ready().leave()
    # Of two that become durable together, the second; the oldest goes before the newest is there.
    wait_until(lambda: {one["step"] // 2 for one in snapshots("auto").values()} == {2, 3})
    assert all(name == f"step-{one['step']}" for name, one in snapshots("auto").items())
    tierctl(ME, "drop", "auto", "--yes")
    # One by itself, and the other one is the user's.
    mine = {"job": "mine", "mib": 1, "snapshots": 2, "every": 3, "keep": 1}
    Rank(ME, **mine, steps=5, takes="mine").ready().leave()
    Rank(ME, **mine, **{"from": 5}, steps=5).ready().leave()
    # The one before goes first; of steps that become durable together the last is kept.
    wait_until(lambda: set(snapshots("mine")) in ({"mine", "step-9"}, {"mine", "step-10"}))
    refused(ME, "snapshot_every is 4 here, 3 in the job", **(mine | {"every": 4}))
    tierctl(ME, "drop", "mine", "--yes")
    # As many as there is room for is what the user's have left.
    rest = {"job": "rest", "mib": 1, "snapshots": 2, "every": 3}
    Rank(ME, **rest, steps=5, takes="mine").ready().leave()
    Rank(ME, **rest, **{"from": 5}, steps=5).ready().leave()
    wait_until(lambda: set(snapshots("rest")) in ({"mine", "step-9"}, {"mine", "step-10"}))
    # If that is nothing no step is kept any more, which is told once.
    tierctl(ME, "snapshot", "rest", next(name for name in snapshots("rest") if name != "mine"), "--delete")
    tierctl(ME, "snapshot", "rest", "last")
    with subprocess.Popen([os.environ["TIERCTL"], "--json", "watch", "rest", "--steps", "--timeout", "60"],
                          stdout=subprocess.PIPE, text=True) as watch:
        assert json.loads(watch.stdout.readline())["event"] == "watching"
        Rank(ME, **rest, **{"from": 10}, steps=8).ready().leave()
        told, is_durable = [], False
        while not told or not is_durable:
            event = json.loads(watch.stdout.readline())
            is_durable = is_durable or event["event"] == "durable" and event["step"] == 18
            if event["event"].startswith("snapshot"):
                told.append(event["text"])
        watch.terminate()
    assert len(told) == 1 and "nor of later ones while that lasts: the room" in told[0], told
    assert set(snapshots("rest")) == {"mine", "last"}
    tierctl(ME, "drop", "rest", "--yes")
    # Their state in host memory is kept like any other's.
    warm = {"job": "warm", "mib": 1, "snapshots": 1, "every": 2, "parameters": "host", "optimizer": "host"}
    Rank(ME, **warm, steps=3).ready().leave()
    wait_until(lambda: {name: one["step"] for name, one in snapshots("warm").items()} == {"step-3": 3})
    tierctl(ME, "drop", "warm", "--yes")
    refused(ME, "room for no snapshot", job="auto", every=3)
    refused(ME, "snapshot_keep is 3, and there is room for 2 snapshots", job="auto", snapshots=2, keep=3)


def retention_changes():
    """Under a rank, which goes on saying what its job was made with; and of a job that nobody trains."""
    made = {"job": "ruled", "mib": 1, "snapshots": 2, "every": 3}
    rank = Rank(ME, **made, steps=1, paced=1).ready()
    assert tierctl(ME, "retain", "ruled", "1", "1") == "ruled keeps each step that 1 divides by itself, and of those the last 1\n"
    wait_until(lambda: set(snapshots("ruled")) == {"step-1"})
    rank.process.stdin.write("\n")
    rank.process.stdin.flush()
    assert rank.line() == "applied 2"
    wait_until(lambda: set(snapshots("ruled")) == {"step-2"})
    rank.leave()
    says = ["3 steps of job ruled cannot be kept", "room for 2 snapshots", "tierctl reserve"]
    tierctl(ME, "retain", "ruled", "1", "3", status=1, says=says)
    for number in ("x", "-1", ""):
        tierctl(ME, "retain", "ruled", "--", number, status=2, says=["is no number of steps"])
    tierctl(ME, "retain", "nobody", "1", status=1, says=["no job nobody"])
    wait_until(lambda: jobs(ME)["ruled"]["durable_step"] == 2)
    assert json.loads(tierctl(ME, "--json", "retain", "ruled", "0")) == {"job": "ruled", "every": 0, "keep": 2}
    # Its state in host memory, too.
    Rank(ME, job="warm", mib=1, snapshots=1, parameters="host", optimizer="host").ready().leave()
    tierctl(ME, "retain", "warm", "1")
    wait_until(lambda: set(snapshots("warm")) == {"step-1"})
    tierctl(ME, "drop", "warm", "--yes")
    # The step of an idle job is none that the number divides: the next such one is kept, and no other.
    Rank(ME, job="odd", mib=1, snapshots=2, steps=3).ready().leave()
    tierctl(ME, "retain", "odd", "2", "2")
    assert jobs(ME)["odd"]["durable_step"] == 3 and not snapshots("odd")
    rank = Rank(ME, job="odd", mib=1, snapshots=2, **{"from": 3}, steps=1, paced=1).ready()
    wait_until(lambda: set(snapshots("odd")) == {"step-4"})
    rank.leave()
    tierctl(ME, "drop", "odd", "--yes")
    Rank(ME, job="roomless", mib=1).ready().leave()
    tierctl(ME, "retain", "roomless", "1", status=1, says=["has no room for snapshots", "tierctl reserve"])
    tierctl(ME, "drop", "roomless", "--yes")


def retention_has_stayed():
    Rank(ME, job="ruled", mib=1, snapshots=2, every=3, **{"from": 2}, steps=4).ready().leave()
    assert set(snapshots("ruled")) == {"step-2"}
    tierctl(ME, "drop", "ruled", "--yes")


def before():
    states = states_of_one_that_is_calm()
    a_job_that_is_trained_is_kept_and_goes_on(states)
    what_is_being_read_is_not_measured()
    a_step_is_kept_for_a_reader_alone()
    what_cannot_be_is_refused()
    a_name_that_is_too_long_is_not_cut()
    what_changed_is_counted()
    jobs_without_room_or_devices_have_none()
    steps_are_kept_by_themselves()
    retention_changes()
    remember(states | {"grown": room_grows()})


def after_a_kill():
    states = known()
    has_grown(states["grown"])
    retention_has_stayed()
    assert {name: one["step"] for name, one in snapshots().items()} == {"first": 3, "second": 5}
    assert read(snapshot="first") == (3, states["three"])
    assert read() == (7, states["seven"])
    roll_back_under_a_rank(states)
    nobody_is_told_that_a_job_on_its_way_back_is_none()
    # From there training takes the same way.
    assert trained(3, 4) == states["seven"]
    assert read(snapshot="first") == (3, states["three"])
    # Its room can be used again.
    tierctl(ME, "snapshot", "gpt", "second", "--delete")
    assert set(snapshots()) == {"first"}
    tierctl(ME, "snapshot", "gpt", "third", says=["gpt@third is step 7"])
    assert read(snapshot="third") == (7, states["seven"])


def roll_back_under_a_rank(states):
    rank = Rank(ME, **JOB, **{"from": 7}, steps=1).ready()
    tierctl(ME, "rollback", "gpt", "first", "--yes", status=1, says=["in use by rank 0", "--force"])
    tierctl(ME, "rollback", "gpt", "first", status=1, says=["in use by 1 rank; end them, or say --force, which destroys all steps after the snapshot"])
    tierctl(ME, "rollback", "gpt", "first", "--force", status=2, says=["no terminal"])
    tierctl(ME, "rollback", "gpt", "first", "--yes", "--force", says=["gpt stands at step 3, as its snapshot first"])
    rank.leave(line=f"job gpt was rolled back to step 3 by user {ME}")
    assert jobs(ME)["gpt"]["step"] == jobs(ME)["gpt"]["durable_step"] == 3
    assert read() == (3, states["three"])


def nobody_is_told_that_a_job_on_its_way_back_is_none():
    asked = set()
    for _ in range(200):
        back = subprocess.Popen([os.environ["TIERCTL"], "rollback", "gpt", "first", "--yes"], stdout=subprocess.DEVNULL)
        while back.poll() is None:
            for words in (["jobs", "gpt"], ["units", "gpt"], ["blobs", "gpt"]):
                told = subprocess.run([os.environ["TIERCTL"], "--json", *words], capture_output=True, text=True)
                asked.add("" if told.returncode == 0 else json.loads(told.stderr)["code"])
        assert back.returncode == 0
        if {"", "EAGAIN"} <= asked:
            break
    assert asked == {"", "EAGAIN"}, asked


def after_an_end():
    states = known()
    assert read(snapshot="first") == (3, states["three"])
    assert read() == read(snapshot="third") == (7, states["seven"])
    has_grown(states["grown"])
    for job in ("gpt", "grown"):
        tierctl(ME, "drop", job, "--yes")


globals()[sys.argv[2]]()
