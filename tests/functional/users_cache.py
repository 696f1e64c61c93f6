"""What a job holds beyond what it was promised goes to those who open jobs later; what it trains stays the same."""
import os
import tempfile

from users import ALICE, BOB, Rank, jobs, node, refused, tierctl, train
from waiting import wait_until

# 40 MiB of parameters, most of them frozen; the daemon has 64 MiB.
MODEL = {"mib": 40, "units": 20, "frozen": 18}
begin = node()["host"]["used_bytes"]


def kernel_bytes():
    """Of all memory that is cache, by the kernel's count of its pages."""
    folder = f"/proc/{os.environ['TIERD_PID']}/fd"
    found = 0
    for name in os.listdir(folder):
        try:
            if "memfd:tierd-cache" in os.readlink(f"{folder}/{name}"):
                found += os.stat(f"{folder}/{name}").st_blocks * 512
        except FileNotFoundError:
            pass
    return found


def cached(uid, job):
    entry = jobs(uid)[job]
    assert entry["promised_bytes"] + entry["cache_bytes"] == entry["host_bytes"]
    return entry["cache_bytes"]


def drop(uid, *names):
    for name in names:
        tierctl(uid, "drop", name, "--yes")
    wait_until(lambda: all(name not in jobs(uid) for name in names))


def trained(rank):
    """What it trains after it was asked to go on, and what comes out."""
    rank.process.stdin.close()
    line = rank.line()
    assert line.startswith("after "), line
    assert rank.process.wait() == 0
    rank.process.stdout.close()
    return line


def expected():
    line = trained(Rank(ALICE, job="alone", steps=2, after=3, hold=5, **MODEL).ready())
    drop(ALICE, "alone")
    return line


def it_shrinks_and_trains_on(line):
    first = Rank(ALICE, job="first", steps=2, after=3, hold=5, **MODEL).ready()
    before, kernel = cached(ALICE, "first"), kernel_bytes()
    promised = jobs(ALICE)["first"]["promised_bytes"]
    assert before >= 24 << 20 and kernel == before == node()["host"]["cache_bytes"], (before, kernel)
    second = Rank(BOB, job="second", **MODEL).ready()
    after = cached(ALICE, "first")
    assert after < before and jobs(ALICE)["first"]["promised_bytes"] == promised
    wait_until(lambda: kernel_bytes() == node()["host"]["cache_bytes"])
    assert kernel_bytes() < kernel and node()["host"]["used_bytes"] <= node()["host"]["budget_bytes"]
    tierctl(ALICE, "jobs", says=["OF IT CACHE"])
    tierctl(ALICE, "status", says=["of it cache"])
    tierctl(ALICE, "top", "--once", says=["of it cache"])
    tierctl(ALICE, "metrics", says=["tierd_host_cache_bytes", "tierd_job_cache_bytes", "tierd_job_warm_bytes"])
    assert trained(first) == line
    # When the other goes, there is room again for who stays.
    first = Rank(ALICE, job="first", mode=2, steps=1, after=1, **MODEL).ready()
    second.leave()
    drop(BOB, "second")
    wait_until(lambda: cached(ALICE, "first") == before and kernel_bytes() == before)
    first.kill()
    drop(ALICE, "first")


def reads(uid):
    reader = Rank(uid, job="first", reads="parameter")
    line = reader.line()
    assert line.startswith("step "), line
    return reader.ready()


def it_shrinks_for_readers():
    first = Rank(ALICE, job="first", **MODEL).ready()
    before = cached(ALICE, "first")
    readers = [reads(ALICE) for _ in range(8)]
    assert cached(ALICE, "first") <= before - (16 << 20)
    for reader in readers:
        reader.leave()
    first.kill()
    drop(ALICE, "first")


def what_cannot_be_kept_is_read_only_by_who_says_so():
    train(ALICE, job="large", mib=40, units=1, frozen=1, steps=0, parameters="host", durability="none")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        path = f"{folder}/values"
        says = ["takes 40.0 MiB of host memory", "large has 4", "(idle, with its state", "--unkept"]
        tierctl(ALICE, "read", "large", "u0", "--output", path, status=1, says=says)
        assert not os.path.exists(path)
        tierctl(ALICE, "read", "large", "u0", "--unkept", "--output", path)
        assert os.path.getsize(path) == 40 << 20
    drop(ALICE, "large")


def who_leases_everything_is_named():
    first = Rank(ALICE, job="first", clutch=20, **MODEL).ready()
    before = cached(ALICE, "first")
    refused(ALICE, "ENOMEM", "what tierd has left of its own", "first has", "of it cache", job="second", **MODEL)
    refused(BOB, "ENOMEM", "other users have", job="second", **MODEL)
    assert cached(ALICE, "first") == before
    # Once it has let go, or is dead, there is room.
    second = Rank(BOB, job="second", **MODEL)
    first.kill()
    second.ready().leave()
    drop(ALICE, "first")
    drop(BOB, "second")


def what_is_left_keeps_state():
    rank = Rank(ALICE, job="warm", mib=4, units=4, steps=2, after=1).ready()
    wait_until(lambda: jobs(ALICE)["warm"]["kept_fraction"] == 1)
    entry = jobs(ALICE)["warm"]
    assert 0 < entry["warm_bytes"] <= entry["cache_bytes"], entry
    trained(rank)
    wait_until(lambda: jobs(ALICE)["warm"]["warm_bytes"] == 0)
    drop(ALICE, "warm")


def what_is_promised_stays():
    ranks = [Rank(ALICE, job=f"job{i}", **MODEL).ready() for i in range(2)]
    held = jobs(ALICE)
    refused(ALICE, "ENOMEM", "job0 has", "job1 has", job="large", mib=40, parameters="host", optimizer="host")
    for name in held:
        assert jobs(ALICE)[name]["promised_bytes"] == held[name]["promised_bytes"]
    for rank in ranks:
        rank.kill()
    drop(ALICE, *held)


def who_dies_while_it_shrinks_leaves_its_memory():
    for _ in range(3):
        first = Rank(ALICE, job="first", **MODEL).ready()
        second = Rank(BOB, job="second", **MODEL)
        first.kill()
        second.ready().kill()
        drop(ALICE, "first")
        drop(BOB, "second")


it_shrinks_and_trains_on(expected())
it_shrinks_for_readers()
what_cannot_be_kept_is_read_only_by_who_says_so()
who_leases_everything_is_named()
what_is_promised_stays()
who_dies_while_it_shrinks_leaves_its_memory()
what_is_left_keeps_state()
wait_until(lambda: node()["host"]["used_bytes"] == begin and kernel_bytes() == 0)
