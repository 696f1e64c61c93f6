"""A job is dropped by its owner or an administrator, and by nobody else."""
import json
import os
import pty

from memory import is_sanitized, private_bytes
from users import ADMINISTRATOR, ALICE, BOB, OPERATOR, OPERATORS, Rank, jobs, node, refused, tierctl, train
from waiting import wait_until

begin = node()["host"]["used_bytes"]


def everything_is_given_back():
    now = node()
    return now["host"]["used_bytes"] == begin and now["nvme"][0]["used_bytes"] == 0


def the_owner_drops_what_is_idle():
    train(ALICE, job="gpt")
    shown = jobs(ALICE)["gpt"]
    assert shown["status"] == "idle" and shown["idle_ms"] > 0 and shown["step"] == 1
    tierctl(ALICE, "jobs", says=["idle for 0 s"])
    tierctl(ALICE, "drop", "gpt", status=2, says=["no terminal", "--yes"])
    tierctl(ALICE, "drop", status=2, says=["JOB is missing"])
    tierctl(ALICE, "drop", "gpt", "--frobnicate", status=2, says=["--frobnicate"])
    tierctl(ALICE, "drop", "gpt", "--user", "nobody-of-that-name", status=2, says=["nobody-of-that-name"])
    assert "gpt" in jobs(ALICE)
    tierctl(ALICE, "drop", "gpt", "--yes")
    assert "gpt" not in jobs(ALICE)
    wait_until(everything_is_given_back)
    tierctl(ALICE, "drop", "gpt", "--yes", status=1, says=["there is no job gpt"])


def ask_at_a_terminal(answer):
    """What tierctl asks; whether it was done."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.setgid(ALICE)
        os.setuid(ALICE)
        os.execl(os.environ["TIERCTL"], "tierctl", "drop", "gpt")
    said = b""
    while b"[y/N]" not in said:
        said += os.read(terminal, 1000)
    os.write(terminal, answer)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return said.decode(), os.waitstatus_to_exitcode(status)


def a_person_is_asked():
    train(ALICE, job="gpt")
    said, status = ask_at_a_terminal(b"n\n")
    assert "stands at step 1" in said and f"of {ALICE}" in said and status == 1
    assert "gpt" in jobs(ALICE)
    _, status = ask_at_a_terminal(b"y\n")
    assert status == 0 and "gpt" not in jobs(ALICE)


def a_job_in_use_needs_force_and_its_ranks_hear_why():
    rank = Rank(ALICE, job="gpt").ready()
    shown = jobs(ALICE)["gpt"]
    assert shown["status"] == "training" and shown["idle_ms"] == 0
    tierctl(ALICE, "drop", "gpt", "--yes", status=1, says=["in use by rank 0", "drop it with --force"])
    tierctl(ALICE, "drop", "gpt", status=1, says=["in use by 1 rank; end them, or say --force, which destroys its state"])
    assert jobs(ALICE)["gpt"]["status"] == "training"
    tierctl(ALICE, "drop", "gpt", "--yes", "--force")
    rank.leave(line=f"ESTALE: epoch 1 of job \"gpt\" has ended: job gpt was dropped by user {ALICE}")
    assert "gpt" not in jobs(ALICE)
    wait_until(everything_is_given_back)


def others_do_not_even_see_it():
    train(ALICE, job="gpt")
    for uid in (BOB, 0):
        assert jobs(uid) == {}
        tierctl(uid, "drop", "gpt", "--yes", status=1, says=["there is no job gpt"])
        tierctl(uid, "drop", "gpt", "--user", str(ALICE), "--yes", status=1, says=["there is no job gpt"])
        tierctl(uid, "units", "gpt", status=1, says=["there is no job gpt"])
        tierctl(uid, "fork", "gpt", "mine", "--user", str(ALICE), status=1, says=["no job gpt"])
    assert "gpt" in jobs(ALICE)


def administrators_see_and_drop_all():
    train(BOB, job="gpt")
    train(BOB, job="other")
    assert len(tierctl(ADMINISTRATOR, "jobs").splitlines()) == 4
    for verb in (["drop", "--yes"], ["units"], ["jobs"], ["leases"], ["evict"], ["release"]):
        tierctl(ADMINISTRATOR, *verb, "gpt", status=1, says=["2 users have a job gpt", "--user"])
    assert len(json.loads(tierctl(ADMINISTRATOR, "--json", "units", "gpt", "--user", str(BOB)))) == 2
    assert json.loads(tierctl(ADMINISTRATOR, "--json", "jobs", "gpt", "--user", str(BOB)))["uid"] == BOB
    for verb in ("units", "jobs", "leases", "evict", "release"):
        tierctl(BOB, verb, "gpt", "--user", str(ALICE), status=1, says=["no job gpt"])
    # A fork is its owner's, whoever makes it.
    tierctl(ADMINISTRATOR, "fork", "other", "third", says=["third is at step 1, as other"])
    assert jobs(BOB)["third"]["uid"] == BOB and "third" not in jobs(ALICE)
    tierctl(BOB, "drop", "third", "--yes")
    tierctl(ADMINISTRATOR, "drop", "gpt", "--yes", "--user", str(BOB))
    assert "gpt" in jobs(ALICE) and "gpt" not in jobs(BOB)
    # Of the group, with it and without it.
    tierctl(OPERATOR, "drop", "other", "--yes", status=1, says=["there is no job other"])
    tierctl(OPERATOR, "drop", "other", "--yes", groups=[OPERATORS])
    tierctl(OPERATOR, "drop", "gpt", "--yes", groups=[OPERATORS])
    assert jobs(ADMINISTRATOR) == {}
    wait_until(everything_is_given_back)


def refusals_say_who_holds_what():
    """The daemon has 256 MiB of host memory and 1 GiB on its path."""
    train(ALICE, job="first", mib=16, optimizer="host")
    train(ALICE, job="second", mib=4)
    used = Rank(ALICE, job="used", mib=4).ready()
    train(BOB, job="his", mib=4, optimizer="host")
    text = refused(
        ALICE, "ENOMEM", "what tierd has left", "raise host_budget", job="large", mib=64, optimizer="host"
    )
    first, second, rest = (text.index(word) for word in ("; first has", "used has", "other users have"))
    assert first < second < rest and "(idle), " in text[first:rest], text
    assert "his" not in text.split("(", 1)[1].replace("this", ""), text
    # Nor does what it has itself.
    assert "more of yours" not in text, text
    tierctl(ALICE, "drop", "first", "--yes")
    text = refused(ALICE, "ENOSPC", "are left there; ", " MiB (idle)", "ends an idle job and destroys its state", job="large", mib=160, units=40)
    assert "other users have 38.0 MiB" in text, text
    # What is refused by the job's own budget is nobody else's fault.
    text = refused(ALICE, "the job's host_budget", job="large", host_budget=1 << 20)
    assert "second" not in text, text
    used.leave()
    for job in ("second", "used"):
        tierctl(ALICE, "drop", job, "--yes")
    tierctl(BOB, "drop", "his", "--yes")
    wait_until(everything_is_given_back)


def nothing_is_kept_of_a_job_of_many_units():
    early = Rank(ALICE, job="early").ready()
    before = private_bytes()
    wide = Rank(ALICE, job="wide", units=40000, mib=1, steps=0).ready()
    # What comes later lies behind it in the daemon's heap, which can only be given back in the middle then.
    late = Rank(ALICE, job="late", mib=1).ready()
    wide.leave()
    tierctl(ALICE, "drop", "wide", "--yes")
    wait_until(lambda: is_sanitized() or private_bytes() < before + (12 << 20))
    for rank, job in ((early, "early"), (late, "late")):
        rank.leave()
        tierctl(ALICE, "drop", job, "--yes")
    wait_until(everything_is_given_back)


the_owner_drops_what_is_idle()
nothing_is_kept_of_a_job_of_many_units()
refusals_say_who_holds_what()
a_person_is_asked()
a_job_in_use_needs_force_and_its_ranks_hear_why()
others_do_not_even_see_it()
administrators_see_and_drop_all()
