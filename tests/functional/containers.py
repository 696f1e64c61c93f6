"""Processes that tierd knows by other numbers than they do themselves, or by none, and a connection that outlives its process:
that a rank has died is seen all the same. Who is root in a container is nobody special outside."""
import os
import signal
import socket
import subprocess

from users import ALICE, Rank, jobs, refused
from waiting import wait_until

PIDS = ("unshare", "--pid", "--fork", "--kill-child")
AS_ALICE = ("setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups")
# Inside, the user is root, and is said to be nobody.
ROOT = (*AS_ALICE, "unshare", "--user", "--map-root-user")
NOBODY = (*AS_ALICE, "unshare", "--user")


def is_possible(*command):
    result = subprocess.run([*command, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return result.returncode == 0


def has_peer_descriptors():
    """Since Linux 6.5. Before, a process without a number in the daemon's namespace cannot be watched, and is refused."""
    with socket.socketpair()[0] as one:
        try:
            os.close(one.getsockopt(socket.SOL_SOCKET, 77))
        except OSError:
            return False
    return True


def child_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return int(file.read().split()[0])


def members(job, uid=0):
    return jobs(uid)[job]["members"]


def death_is_seen_beside_an_heir():
    """A child that was forked holds the socket open: the end of the stream does not come."""
    rank = Rank(0, job="inherited", heir=1)
    heir = int(rank.line().removeprefix("heir "))
    rank.ready()
    assert len(members("inherited")) == 1
    rank.kill()
    wait_until(lambda: not members("inherited"))
    os.kill(heir, 0)
    Rank(0, job="inherited").ready().leave()
    os.kill(heir, signal.SIGKILL)


def death_is_seen_beside_an_heir_at_once():
    """Who comes back does not wait for the news."""
    for _ in range(5):
        rank = Rank(0, job="inherited", heir=1)
        heir = int(rank.line().removeprefix("heir "))
        rank.ready().kill()
        Rank(0, job="inherited").ready().leave()
        os.kill(heir, signal.SIGKILL)


def a_rank_may_be_number_one():
    """In a pid namespace of its own it is process 1; tierd's number of it is another one."""
    rank = Rank(0, within=PIDS, job="contained").ready()
    trainer = child_of(rank.process.pid)
    assert [member["pid"] for member in members("contained")] == [trainer]
    os.kill(trainer, signal.SIGKILL)
    wait_until(lambda: not members("contained"))
    rank.kill()
    Rank(0, within=PIDS, job="contained").ready().leave()


def root_of_a_container_is_a_user(within, inside):
    """He has his own jobs, and rules nobody else's."""
    job = "of-root" if within is ROOT else "of-nobody"
    # The program's uid= is the number inside: it changes nothing.
    rank = Rank(inside, within=(*within, *PIDS[1:]), job=job).ready()
    assert jobs(ALICE)[job]["uid"] == ALICE
    for arguments, status, text in (
        (("drain",), 1, "administrator"),
        (("drop", "inherited", "--yes", "--force", "--user", "0"), 1, "no job inherited"),
        (("leases", "inherited", "--user", "0"), 1, "no job inherited"),
        (("release", "inherited", "--user", "0"), 1, "no job inherited"),
        (("evict", "inherited", "--user", "0"), 1, "no job inherited"),
        (("jobs",), 0, job),
    ):
        result = subprocess.run(
            [*within, os.environ["TIERCTL"], *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert result.returncode == status and text in result.stdout, (arguments, result)
        assert arguments != ("jobs",) or "inherited" not in result.stdout, result.stdout
    rank.kill()
    wait_until(lambda: not members(job, ALICE))


def a_daemon_may_not_see_its_clients():
    """Its pid namespace is below theirs: the kernel tells it 0 as the number of each, and their descriptors all the same."""
    os.environ["TIERD_SOCKET"] = os.path.join(os.environ["SCRATCH"], "below", "tierd.sock")
    folder = os.path.join(os.environ["NVME"], "below")
    os.mkdir(folder)
    daemon = subprocess.Popen(
        [*PIDS, "--mount-proc", os.environ["TIERD"], "--socket", os.environ["TIERD_SOCKET"], "--host-budget", "64M",
         "--state-dir", os.path.join(os.environ["SCRATCH"], "state-below"), "--nvme", f"{folder}:256M", "--workers", "1", "--file-system", "memory"],
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: subprocess.run([os.environ["TIERCTL"], "ping"], capture_output=True, check=False).returncode == 0)
    rank = Rank(0, job="above").ready()
    assert [member["pid"] for member in members("above")] == [0]
    refused(0, "EBUSY", "is held by process 0", job="above")
    rank.kill()
    wait_until(lambda: not members("above"))
    for _ in range(5):
        Rank(0, job="above").ready().kill()
    Rank(0, job="above").ready().leave()
    os.kill(child_of(daemon.pid), signal.SIGTERM)
    assert daemon.wait() == 0


death_is_seen_beside_an_heir()
death_is_seen_beside_an_heir_at_once()
if not is_possible(*PIDS, "--mount-proc"):
    print("skipped: no pid namespaces can be made here")
else:
    a_rank_may_be_number_one()
    if not is_possible(*ROOT):
        print("skipped: no user namespaces can be made here")
    else:
        root_of_a_container_is_a_user(ROOT, 0)
        root_of_a_container_is_a_user(NOBODY, 65534)
    if has_peer_descriptors():
        a_daemon_may_not_see_its_clients()
    else:
        print("skipped: this kernel has no SO_PEERPIDFD")
