"""A job is shared with a group, or not at all; and no byte of one user's job gets to another's."""
import os
import subprocess

from users import ALICE, BOB, Rank, jobs, refused, tierctl, train
from waiting import wait_until

CREATE, RESUME, REPLACE = 1, 2, 3
READ, TRAIN = 1, 2
GROUP, MEMBER, OWNER = 60100, f"{BOB},60100", {"owner": ALICE}


def a_private_job_does_not_exist_for_others():
    train(ALICE, job="private", groups=f"{ALICE},{GROUP}")
    for mode in (0, CREATE, RESUME, REPLACE):
        refused(BOB, "ENOENT", "shared with you", job="private", mode=mode, groups=MEMBER, **OWNER)
    refused(BOB, "ENOENT", "shared with you", job="no-such", **OWNER)
    assert jobs(BOB, groups=[GROUP]) == {}
    # Of the same name, and somebody else's.
    train(BOB, job="private", mode=CREATE)
    tierctl(BOB, "drop", "private", "--yes")
    tierctl(ALICE, "drop", "private", "--yes")


def a_job_that_is_shared_for_reading_is_seen():
    train(ALICE, job="read", sharing=READ, share_group=GROUP)
    assert jobs(BOB) == {}
    shown = jobs(BOB, groups=[GROUP])["read"]
    assert (shown["uid"], shown["sharing"], shown["share_group"]) == (ALICE, "read", GROUP)
    tierctl(BOB, "units", "read", groups=[GROUP], says=["u1"])
    refused(BOB, "EPERM", "not yours to train", job="read", groups=MEMBER, **OWNER)
    tierctl(BOB, "drop", "read", "--yes", groups=[GROUP], status=1, says=["for its owner to drop"])
    tierctl(ALICE, "drop", "read", "--yes")


def members_of_the_group_are_ranks():
    keys = {"job": "train", "world_size": 2, "stage": 2}
    first = Rank(ALICE, sharing=TRAIN, share_group=GROUP, **keys)
    wait_until(lambda: "train" in jobs(ALICE))
    refused(BOB, "ENOENT", "shared with you", rank=1, **keys, **OWNER)
    refused(BOB, "EBUSY", f"of user {ALICE}", rank=0, takeover=1, groups=MEMBER, **keys, **OWNER)
    second = Rank(BOB, rank=1, groups=MEMBER, **keys, **OWNER)
    first.ready()
    second.ready()
    shown = jobs(BOB, groups=[GROUP])["train"]
    assert shown["uid"] == ALICE and shown["step"] == 1 and len(shown["members"]) == 2
    refused(BOB, "EPERM", "not yours to replace", rank=1, mode=REPLACE, groups=MEMBER, **keys, **OWNER)
    tierctl(BOB, "drop", "train", "--yes", "--force", groups=[GROUP], status=1, says=["for its owner to drop"])
    # Another's rank is its owner's to take.
    third = Rank(ALICE, rank=1, takeover=1, sharing=TRAIN, share_group=GROUP, steps=0, **keys)
    wait_until(lambda: third.process.pid in [member["pid"] for member in jobs(ALICE)["train"]["members"]])
    second.leave(line="was taken over")
    third.kill()
    first.kill()
    tierctl(ALICE, "drop", "train", "--yes", "--force")
    # What a member opens there never becomes his own.
    refused(BOB, "ENOENT", "shared with you", rank=1, groups=MEMBER, **keys, **OWNER)
    assert jobs(BOB, groups=[GROUP]) == {}


def said(rank):
    line = rank.line()
    rank.ready().leave()
    return line


def nobody_finds_a_byte_of_anothers_job():
    pattern, keys = 123457, {"mib": 8, "units": 4, "steps": 0}
    # Who has a job finds its values: the search can find.
    found = said(Rank(ALICE, job="secret", pattern=pattern, search=pattern, **keys))
    assert found.startswith("found ") and int(found.split()[1]) >= 1 << 20, found
    train(ALICE, job="secret", pattern=pattern, mib=8, units=4, steps=2)
    assert said(Rank(BOB, job="beside", search=pattern, **keys)) == "found 0"
    for folder, _, names in os.walk(os.environ["NVME"]):
        for path in (os.path.join(folder, name) for name in names):
            result = subprocess.run(["cat", path], user=BOB, group=BOB, extra_groups=[], capture_output=True)
            assert result.returncode != 0 and b"Permission denied" in result.stderr, path
    # What has been given back is anybody's: the disk, and the memory.
    tierctl(ALICE, "drop", "secret", "--yes")
    assert said(Rank(BOB, job="after", search=pattern, **keys)) == "found 0"
    assert said(Rank(BOB, job="host", search=pattern, optimizer="host", parameters="host", **keys)) == "found 0"
    for job in ("beside", "after", "host"):
        tierctl(BOB, "drop", job, "--yes")


a_private_job_does_not_exist_for_others()
a_job_that_is_shared_for_reading_is_seen()
members_of_the_group_are_ranks()
nobody_finds_a_byte_of_anothers_job()
