"""A job is read by its owner, by administrators, and, its parameters, by the members of the group that it is shared with."""
import array
import os
import tempfile

from users import ADMINISTRATOR, ALICE, BOB, Rank, digest, jobs, node, refused, tierctl, train
from waiting import wait_until

READ, TRAIN, RESUME = 1, 2, 2
GROUP, MEMBER, OWNER = 60100, f"{BOB},60100", {"owner": ALICE}
begin = node()["host"]["used_bytes"]


def who_may_not_see_a_job_finds_none():
    train(ALICE, job="private")
    train(ALICE, job="shared", sharing=READ, share_group=GROUP)
    refused(BOB, "ENOENT", job="private", reads="parameter", groups=MEMBER, **OWNER)
    refused(BOB, "ENOENT", job="shared", reads="parameter", **OWNER)
    refused(BOB, "ENOENT", job="shared", reads="parameter", groups=MEMBER)
    refused(BOB, "ENOENT", job="no-such", reads="parameter", groups=MEMBER, **OWNER)
    tierctl(ALICE, "drop", "private", "--yes")


def a_member_reads_parameters_alone():
    mine = digest(ALICE, job="shared", reads="parameter")
    assert mine.startswith("step 1: ")
    assert digest(BOB, job="shared", reads="parameter", groups=MEMBER, **OWNER) == mine
    assert digest(ADMINISTRATOR, job="shared", reads="parameter", **OWNER) == mine
    for state in ("m", "v", "master"):
        refused(BOB, "EPERM", "shared for reading", job="shared", reads=state, groups=MEMBER, **OWNER)
        assert digest(ADMINISTRATOR, job="shared", reads=state, **OWNER) == digest(ALICE, job="shared", reads=state)
    # Of a group that may train it, all.
    keys = {"job": "trained", "reads": "all"}
    train(ALICE, job="trained", sharing=TRAIN, share_group=GROUP, snapshots=1)
    for more in {}, {"as_snapshot": 1}:
        assert digest(BOB, groups=MEMBER, **keys, **OWNER, **more) == digest(ALICE, **keys)
    tierctl(ALICE, "drop", "trained", "--yes")


def a_members_export_takes_no_room_of_the_owners():
    """It is kept in memory, which is the member's."""
    rank = Rank(ALICE, job="lent", sharing=READ, share_group=GROUP, snapshots=1, paced=1).ready()
    refused(BOB, "EPERM", "to take who may train it", job="lent", reads="parameter", as_snapshot=1, groups=MEMBER, **OWNER)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        tierctl(BOB, "export", "lent", "-o", folder, groups=[GROUP], says=["of step 1"])
    rank.leave()
    tierctl(ALICE, "drop", "lent", "--yes")


def words_digest(paths):
    total = 0xcbf29ce484222325
    for path in paths:
        words = array.array("I")
        with open(path, "rb") as file:
            words.frombytes(file.read())
        for word in words:
            total = (total ^ word) * 0x100000001b3 & (1 << 64) - 1
    return f"{total:016x}"


def a_tensor_is_written_to_a_file():
    mine = digest(ALICE, job="shared", reads="parameter")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        paths = [os.path.join(folder, name) for name in ("u0", "u1")]
        for path in paths:
            tierctl(BOB, "read", "shared", os.path.basename(path), "--output", path, groups=[GROUP],
                    says=["of step 1: 262144 elements, fp32, 1.00 MiB"])
        assert mine == f"step 1: {words_digest(paths)}"
        tierctl(BOB, "read", "shared", "u0", "--json", "--output", paths[0], groups=[GROUP],
                says=['"elements":262144,"format":"fp32"'])
        member = {"groups": [GROUP], "status": 1}
        tierctl(BOB, "read", "shared", "u0", "--state", "m", "--output", paths[0], says=["shared for reading"], **member)
        tierctl(BOB, "read", "shared", "no-such", "--output", paths[0], says=["has no tensor"], **member)
        tierctl(BOB, "read", "shared", "u0", "--output", "/proc/none", says=["/proc/none"], **member)
    tierctl(BOB, "read", "shared", "u0", status=1, says=["there is no job shared"])
    tierctl(ALICE, "read", "shared", status=2, says=["TENSOR is missing"])


def a_reader_is_shown_and_delays_nothing():
    keys = {"job": "busy", "world_size": 2, "stage": 2}
    train_pair(keys)
    reader = Rank(ALICE, job="busy", reads="all")
    assert reader.line().startswith("step 1: ")
    reader.ready()
    shown = jobs(ALICE)["busy"]
    assert shown["readers"] == 1 and shown["reader_bytes"] >= 1 << 20
    assert shown["status"].startswith("idle") and shown["members"] == []
    assert "1 reader" in tierctl(ALICE, "jobs", "busy")
    # Its ranks return without it.
    train_pair(keys)
    assert jobs(ALICE)["busy"]["step"] == 2 and jobs(ALICE)["busy"]["readers"] == 1
    reader.kill()
    wait_until(lambda: jobs(ALICE)["busy"]["readers"] == 0)
    tierctl(ALICE, "drop", "busy", "--yes")


def train_pair(keys):
    first, second = Rank(ALICE, **keys), Rank(ALICE, rank=1, **keys)
    first.ready()
    second.ready()
    first.leave()
    second.leave()


def what_was_released_is_read_where_it_is():
    train(ALICE, job="released", steps=3)
    wait_until(lambda: jobs(ALICE)["released"]["is_released"])
    found = digest(ALICE, job="released", reads="all")
    shown = jobs(ALICE)["released"]
    assert shown["is_released"] and shown["host_bytes"] < 1 << 20
    assert digest(ALICE, job="released", mode=RESUME, steps=0, digest=1) == found
    tierctl(ALICE, "drop", "released", "--yes")


who_may_not_see_a_job_finds_none()
a_member_reads_parameters_alone()
a_members_export_takes_no_room_of_the_owners()
a_tensor_is_written_to_a_file()
a_reader_is_shown_and_delays_nothing()
what_was_released_is_read_where_it_is()
tierctl(ALICE, "drop", "shared", "--yes")
wait_until(lambda: node()["host"]["used_bytes"] == begin)
