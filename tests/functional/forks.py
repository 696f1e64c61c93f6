"""What forks.sh plays: jobs that begin as another one is, and share a store with it. The state of a step is a number that
user_job.c says of all its values."""
import contextlib
import json
import os
import sys

from states import ME, known, read, remember, state_after
from users import Rank, jobs, tierctl
from waiting import wait_until

# Two of its units are frozen.
JOB = {"mib": 16, "units": 4, "frozen": 2, "snapshots": 2}
MIB = 1 << 20
# What such a job has of its store: parameters that are frozen; others, with two moments; and what it is.
FROZEN, TRAINED, RECORD = 8 * MIB, 24 * MIB, 2 * MIB
REPLACE = 3


def fork(origin, name, *words):
    return json.loads(tierctl(ME, "--json", "fork", origin, name, *words))


def trained(job, first, steps, **keys):
    return state_after(first, steps, job=job, **(JOB | keys))


def used():
    """Bytes that jobs have of the path."""
    return sum(path["used_bytes"] for path in json.loads(tierctl(ME, "--json", "tiers"))["nvme"])


def charged():
    return sum(job["nvme_bytes"] for job in jobs(ME).values())


def shares():
    """Of each job, what it has for itself of its state, and what with others."""
    return {name: (job["own_bytes"], job["shared_bytes"]) for name, job in jobs(ME).items()}


def files():
    """Those of stores, and how long each is. The daemon may remove one meanwhile."""
    found = {}
    for folder, _, names in os.walk(os.environ["NVME"]):
        for name in names:
            if name.endswith(".store"):
                with contextlib.suppress(FileNotFoundError):
                    found[name] = os.stat(os.path.join(folder, name)).st_size
    return found


def states_of_one_that_is_alone():
    """After so many steps."""
    states = {"2": trained("calm", 0, 2), "3": trained("calm", 2, 1), "5": trained("calm", 3, 2), "7": trained("calm", 5, 2)}
    tierctl(ME, "drop", "calm", "--yes")
    wait_until(lambda: not files())
    return states


def what_forks_begin_with(states):
    Rank(ME, job="base", **JOB, steps=2, takes="early").ready().leave()
    assert trained("base", 2, 1) == states["3"]
    before, base = used(), jobs(ME)["base"]["nvme_bytes"]
    assert before == base == sum(files().values())
    assert shares() == {"base": (FROZEN + TRAINED + RECORD, 0)}
    made = fork("base", "last")
    assert made["step"] == 3 and made["origin"] == "base" and "snapshot" not in made, made
    # Each is called by its own name; that is committed at once, and nobody waits for it.
    alike = (RECORD, FROZEN + TRAINED)
    wait_until(lambda: shares() == {"base": alike, "last": alike})
    made = fork("base@early", "early")
    assert made["step"] == 2 and made["snapshot"] == "early", made
    # What is frozen is there once: 8 MiB of parameters, and three such streams of what is trained, twice.
    assert made["nvme_bytes"] < base and jobs(ME)["early"]["nvme_bytes"] == made["nvme_bytes"], (made, base)
    assert len(files()) == 1 and used() == charged() == sum(files().values())
    assert used() - before <= 2 * made["nvme_bytes"]
    assert read("last") == (3, states["3"]) and read("early") == (2, states["2"])
    assert {name: set(job["family"]) for name, job in jobs(ME).items()} == {
        "base": {"last", "early"}, "last": {"base", "early"}, "early": {"base", "last"}
    }
    # What the snapshot has no job does.
    assert shares() == {"base": alike, "last": alike, "early": (TRAINED + RECORD, FROZEN)}
    assert "last is at step 3" not in tierctl(ME, "jobs")


def each_goes_its_own_way(states):
    """At the same time, and with the bits of a job that is alone."""
    ranks = [Rank(ME, job=job, **JOB, **{"from": step}, steps=5 - step, digest=1) for job, step in (("base", 3), ("last", 3), ("early", 2))]
    for rank in ranks:
        assert rank.line() == f"step 5: {states['5']}"
        rank.ready()
    for rank in ranks:
        rank.leave()
    each = (TRAINED + RECORD, FROZEN)
    assert shares() == {"base": each, "last": each, "early": each}
    assert trained("early", 5, 2) == states["7"]
    assert read("base") == read("last") == (5, states["5"])
    assert read("base", snapshot="early") == (2, states["2"])
    # A snapshot of one is nobody else's.
    tierctl(ME, "snapshot", "early", "seven")
    assert [one["name"] for one in json.loads(tierctl(ME, "--json", "snapshots", "early"))["snapshots"]] == ["seven"]
    tierctl(ME, "rollback", "early", "early", "--yes", status=1, says=["no snapshot early"])


def what_cannot_be_is_refused():
    tierctl(ME, "fork", "base", "last", status=1, says=["there is a job last of user"])
    tierctl(ME, "fork", "base", "base", status=1, says=["there is a job base of user"])
    tierctl(ME, "fork", "base@absent", "x", status=1, says=["no snapshot absent; it has early"])
    tierctl(ME, "fork", "base@", "x", status=2, says=["no snapshot is named"])
    tierctl(ME, "fork", "absent", "x", status=1, says=["no job absent"])
    tierctl(ME, "fork", "base", status=2, says=["NEW is missing"])
    for name in ("", "u p", "a/b", "..", "-x", "x" * 64):
        tierctl(ME, "fork", "base", "--", name, status=1, says=["is not allowed"])
    tierctl(ME, "fork", "base", "x", "--snapshots", "15", status=1, says=["at most 14"])
    tierctl(ME, "fork", "base", "x", "--snapshots", "many", status=2, says=["is no number of snapshots"])
    Rank(ME, job="fleeting", mib=1, durability="none").ready().leave()
    tierctl(ME, "fork", "fleeting", "x", status=1, says=["is not durable"])
    tierctl(ME, "drop", "fleeting", "--yes")
    tierctl(ME, "drain", "--timeout", "0")
    tierctl(ME, "fork", "base", "x", status=1, says=["tierd drains", "drain --undo"])
    tierctl(ME, "drain", "--undo")
    assert set(jobs(ME)) == {"base", "last", "early"}


def one_is_rolled_back_while_another_is_trained(states):
    rank = Rank(ME, job="base", **JOB, **{"from": 5}, steps=1, paced=1).ready()
    assert trained("early", 7, 1)
    tierctl(ME, "rollback", "early", "seven", "--yes", says=["early stands at step 7"])
    rank.process.stdin.write("\n")
    rank.process.stdin.flush()
    assert rank.line() == "applied 7"
    rank.leave()
    assert read("early") == (7, states["7"]) and read("base") == (7, states["7"])
    assert used() == charged() == sum(files().values())


def before():
    states = states_of_one_that_is_alone()
    what_forks_begin_with(states)
    each_goes_its_own_way(states)
    what_cannot_be_is_refused()
    one_is_rolled_back_while_another_is_trained(states)
    remember(states)


def all_are_back(states):
    assert {name: job["durable_step"] for name, job in jobs(ME).items()} == {"base": 7, "last": 5, "early": 7}
    assert read("base") == read("early") == (7, states["7"]) and read("last") == (5, states["5"])
    assert read("base", snapshot="early") == (2, states["2"]) and read("early", snapshot="seven") == (7, states["7"])
    assert used() == charged() == sum(files().values())
    each = (TRAINED + RECORD, FROZEN)
    assert shares() == {"base": each, "last": each, "early": each}


def the_origin_ends_and_its_forks_stay(states):
    size = sum(files().values())
    tierctl(ME, "drop", "base", "--yes")
    wait_until(lambda: jobs(ME)["last"]["family"] == ["early"])
    assert files() and used() == charged() == size
    assert trained("last", 5, 2) == states["7"]
    # The name is another job's from now on, and its file has a later number.
    assert trained("base", 0, 2) == states["2"]
    assert len(files()) == 2 and jobs(ME)["base"]["family"] == []


def after_a_kill():
    states = known()
    all_are_back(states)
    the_origin_ends_and_its_forks_stay(states)


def after_another_kill():
    """The later job of the origin's name has taken nobody's place."""
    states = known()
    assert {name: job["durable_step"] for name, job in jobs(ME).items()} == {"base": 2, "last": 7, "early": 7}
    assert read("base") == (2, states["2"]) and read("last") == read("early") == (7, states["7"])
    # A fork that another job replaces leaves the store to the others.
    trained("early", 0, 2, mode=REPLACE)
    wait_until(lambda: jobs(ME)["last"]["family"] == [])
    wait_until(lambda: shares()["last"] == (FROZEN + TRAINED + RECORD, 0))
    assert read("early") == (2, states["2"]) and read("last") == (7, states["7"])
    assert len(files()) == 3
    wait_until(lambda: used() == charged() == sum(files().values()))


def many_share_one_base():
    """Fifteen jobs and snapshots are a store's; the room of one that has ended serves the next."""
    small = {"mib": 1, "units": 2, "frozen": 1, "snapshots": 0}
    state = trained("many", 0, 1, **small)
    for number in range(14):
        fork("many", f"sweep-{number}")
    tierctl(ME, "fork", "many", "sweep-14", status=1, says=["has 15 jobs and snapshots", "drop a job"])
    size = sum(files().values())
    assert used() == charged() == size, (used(), charged(), size, {n: j["nvme_bytes"] for n, j in jobs(ME).items()})
    assert trained("sweep-7", 1, 1, **small) == trained("sweep-12", 1, 1, **small) == trained("many", 1, 1, **small)
    tierctl(ME, "drop", "sweep-3", "--yes")
    wait_until(lambda: "sweep-3" not in jobs(ME)["many"]["family"])
    assert fork("sweep-12", "sweep-14")["step"] == 2
    assert sum(files().values()) == size
    assert used() == charged() == size, (used(), charged(), size, {n: j["nvme_bytes"] for n, j in jobs(ME).items()})
    assert read("sweep-14") == read("many") and read("sweep-0") == (1, state)


def drop_all():
    for name in jobs(ME):
        tierctl(ME, "drop", name, "--yes")
    wait_until(lambda: not files())
    assert used() == 0


def after_an_end():
    states = known()
    assert read("early") == read("base") == (2, states["2"]) and read("last") == (7, states["7"])
    drop_all()
    many_share_one_base()
    drop_all()


# ---- One that is frozen but for a tenth

MOSTLY_FROZEN = {"mib": 20, "units": 20, "frozen": 18, "snapshots": 1, "writes": 3}


def has_room(job, jobs, snapshots):
    """Of MiB: 18 that are frozen, once; of what may change, 2 of parameters, 4 of moments and 2 of the record, two for each job and
    one for each snapshot, and 8 for each job beside that; superblocks and nodes."""
    [(name, size)] = files().items()
    assert size == (18 + (2 * jobs + snapshots) * 8 + 8 * jobs + 2) * MIB, (size / MIB, jobs, snapshots)
    [blocks] = [os.stat(os.path.join(folder, name)).st_blocks for folder, _, names in os.walk(os.environ["NVME"]) if name in names]
    # The file system may need some to remember where they are.
    assert 0 <= blocks * 512 - size < MIB and size == used() == charged(), (blocks * 512, size, used(), charged())
    assert json.loads(tierctl(ME, "--json", "snapshots", job))["maximum"] == snapshots


def mostly_frozen():
    """Its frozen tensors are written three times, and stored once; steps, snapshots and forks write them no more."""
    states = [trained("calm", step, 1, **MOSTLY_FROZEN) for step in range(3)]
    has_room("calm", 1, 1)
    drop_all()
    Rank(ME, job="tuned", **MOSTLY_FROZEN, steps=1, takes="one").ready().leave()
    assert trained("tuned", 1, 1, **MOSTLY_FROZEN) == states[1]
    tierctl(ME, "snapshot", "tuned", "two", status=1, says=["room of job tuned for 1 snapshot is used"])
    has_room("tuned", 1, 1)
    tierctl(ME, "reserve", "tuned", "3")
    has_room("tuned", 1, 3)
    tierctl(ME, "snapshot", "tuned", "two")
    assert fork("tuned@one", "sweep")["nvme_bytes"] == (2 * 8 + 8) * MIB
    has_room("tuned", 2, 3)
    assert trained("sweep", 1, 1, **MOSTLY_FROZEN) == states[1]
    assert trained("tuned", 2, 1, **MOSTLY_FROZEN) == states[2]
    remember(states)


def mostly_frozen_after_a_kill():
    states = known()
    has_room("tuned", 2, 3)
    assert read("tuned") == (3, states[2]) and read("sweep") == (2, states[1])
    assert read("tuned", snapshot="one") == (1, states[0]) and read("tuned", snapshot="two") == (2, states[1])
    tierctl(ME, "rollback", "tuned", "one", "--yes")
    assert trained("tuned", 1, 1, **MOSTLY_FROZEN) == states[1] and trained("sweep", 2, 1, **MOSTLY_FROZEN) == states[2]
    has_room("tuned", 2, 3)
    tierctl(ME, "drop", "tuned", "--yes")
    wait_until(lambda: jobs(ME)["sweep"]["family"] == [])
    assert read("sweep") == (3, states[2])
    # What it had, and its snapshots, are places of a file that gives none back: room for six.
    tierctl(ME, "snapshot", "sweep", "one")
    assert json.loads(tierctl(ME, "--json", "snapshots", "sweep"))["maximum"] == 6
    drop_all()


# ---- Daemons that die

# What is frozen is written, and written over, before the first commit.
SMALL = {"mib": 6, "units": 6, "frozen": 5, "snapshots": 1, "writes": 2}


def states_of_a_small_one():
    """After so many steps."""
    states = [trained("calm", step, 1, **SMALL) for step in range(4)]
    tierd_has_dropped("calm")
    remember(states)


def tierd_has_dropped(*names):
    for name in names:
        tierctl(ME, "drop", name, "--yes")
    wait_until(lambda: not set(names) & set(jobs(ME)))


def step(job, first):
    Rank(ME, job=job, **SMALL, **{"from": first}, steps=1).ready().leave()


def live_and_die():
    """Whoever asks a daemon that dies fails."""
    step("base", 0)
    tierctl(ME, "snapshot", "base", "one")
    step("base", 1)
    fork("base", "a")
    step("a", 2)
    fork("base@one", "b")
    step("b", 1)
    tierd_has_dropped("base")
    tierctl(ME, "snapshot", "a", "three")
    step("a", 3)
    tierctl(ME, "rollback", "a", "three", "--yes")
    fork("a", "base")
    tierd_has_dropped("b", "a")


def what_is_left():
    """Each is whole, at one of its steps, and what the files have is charged once."""
    states = known()
    for name, job in jobs(ME).items():
        assert job["status"].startswith("idle"), (name, job)
        reached, state = read(name)
        assert reached == job["durable_step"] and 0 <= reached <= 4, (name, job)
        assert reached == 0 or state == states[reached - 1], (name, reached)
        step(name, reached)
    # They may have grown for a fork that came to nothing.
    assert used() == charged() <= sum(files().values()), (used(), charged(), files())
    tierd_has_dropped(*jobs(ME))
    wait_until(lambda: not files())
    assert used() == 0


globals()[sys.argv[2]]()
