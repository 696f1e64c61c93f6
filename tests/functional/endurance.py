"""Rounds of three jobs of two users, whose trainers are killed at random and started again at once, while tierctl asks
for everything and evicts. After each round no trainer lives, and then the same is there as after the rounds before.

endurance.py SECONDS SEED: events follow the seed, but not the moments in which they meet tierd."""
import glob
import json
import os
import random
import re
import subprocess
import sys
import time

from memory import Trend, daemon_file, is_sanitized, private_bytes
from users import ALICE, BOB, jobs, node, tierctl
from waiting import PATIENCE, wait_until

SECONDS, SEED = float(sys.argv[1]), int(sys.argv[2])
DAEMON, SCRATCH = os.environ["TIERD_PID"], os.environ["SCRATCH"]
chance = random.Random(SEED)


class Job:
    def __init__(self, name, uid, world_size, *flags):
        self.name, self.uid, self.world_size = name, uid, world_size
        self.folder = f"{SCRATCH}/{name}"
        os.mkdir(self.folder)
        os.chown(self.folder, uid, uid)
        self.dump = f"{self.folder}/dump"
        self.command = [f"{SCRATCH}/examples/gpt/gpt", "--heads", "2", "--context", "16", "--batch", "2",
                        "--threads", "1", "--log-every", "0", "--data", f"{SCRATCH}/data", "--job", name, *flags]
        self.ranks = {}
        reference = f"{self.folder}/reference"
        subprocess.run([*self.command, "--no-tierd", "--ranks", str(world_size), "--dump", reference], check=True,
                       stdout=subprocess.DEVNULL)
        with open(reference, "rb") as file:
            self.reference = file.read()

    def start(self, rank):
        """As torchrun does."""
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self.world_size, "LOCAL_WORLD_SIZE": self.world_size}
        with open(f"{self.folder}/{rank}.log", "a", encoding="utf-8") as log:
            self.ranks[rank] = subprocess.Popen(
                [*self.command, *(["--dump", self.dump] if rank == 0 else [])], user=self.uid, group=self.uid,
                extra_groups=[], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **{key: str(value) for key, value in place.items()}})

    def start_all(self):
        for rank in range(self.world_size):
            if rank not in self.ranks or self.ranks[rank].poll() is not None:
                self.start(rank)

    def kill(self, rank):
        self.ranks[rank].kill()
        self.ranks[rank].wait()
        del self.ranks[rank]

    def kill_all(self):
        for rank in list(self.ranks):
            self.kill(rank)

    def kill_one(self):
        """And starts it again."""
        self.kill(chance.randrange(self.world_size))
        self.start_all()

    def is_done(self):
        for rank, process in self.ranks.items():
            if process.poll():
                # When it has trained, and writes what came of it, gpt does not wait for others any more.
                last = self.log(rank).rstrip().split("\n")[-1]
                assert re.search("call tierd_job_ready|has joined job|is lost", last), \
                    f"job {self.name}: rank {rank} ends with {process.returncode}: {self.log(rank)}"
                self.start(rank)
                return False
        running = sum(process.poll() is None for process in self.ranks.values())
        if 0 < running < self.world_size and self.is_waiting():
            self.start_all()
        return running == 0

    def is_waiting(self):
        """A rank that was killed is back, and the others, who had nothing left to do, are gone."""
        members = jobs(self.uid).get(self.name, {}).get("members", [])
        return any("tierd_job_ready" in member["activity"] for member in members)

    def log(self, rank):
        with open(f"{self.folder}/{rank}.log", encoding="utf-8") as log:
            return log.read()[-2000:]

    def check(self):
        with open(self.dump, "rb") as file:
            assert file.read() == self.reference, f"job {self.name} ends with other bits"
        os.remove(self.dump)
        for rank in range(self.world_size):
            os.remove(f"{self.folder}/{rank}.log")
        self.ranks = {}


def make_jobs():
    return [
        Job("streamed", ALICE, 3, "--layers", "3", "--width", "256", "--steps", "8", "--host-budget", "44M",
            "--gradients-on", "nvme"),
        Job("held", ALICE, 2, "--layers", "2", "--width", "64", "--steps", "60", "--stage", "1", "--format", "fp32",
            "--optimizer", "lion", "--parameters-on", "host", "--optimizer-on", "host", "--host-budget", "16M"),
        Job("mixed", BOB, 4, "--layers", "2", "--width", "96", "--steps", "20", "--stage", "2", "--format", "fp16",
            "--loss-scale", "dynamic:1e8", "--optimizer", "adam", "--micro-batches", "2", "--parameters-on", "host",
            "--optimizer-on", "nvme", "--host-budget", "32M"),
    ]


# ---- What happens in a round


def ask(job):
    """What tierctl shows, to the owner, and to another, for whom the job does not exist."""
    name, other = job.name, BOB if job.uid == ALICE else ALICE
    for command in chance.sample([["status"], ["jobs"], ["metrics"], ["leases"], ["top", "--once"]], 2):
        tierctl(job.uid, *command)
    shown = node()["host"]
    assert shown["used_bytes"] <= shown["budget_bytes"], shown
    # The job itself may be gone, or not be there yet, when its ranks were killed before it was trained.
    if jobs(job.uid).get(name, {}).get("step"):
        tierctl(job.uid, "units", name)
        tierctl(other, "units", name, status=1, says=["there is no job"])


def evict(job):
    if job.name == "streamed" and jobs(job.uid).get(job.name, {}).get("step"):
        result = subprocess.run([os.environ["TIERCTL"], "evict", job.name], user=job.uid, group=job.uid,
                                extra_groups=[], capture_output=True, text=True)
        # It may just be on its way back to host memory.
        assert result.returncode == 0 or "when it has a state" in result.stderr or "try again" in result.stderr, result


def pause(job):
    """Nobody trains it until it has no host memory any more, where that is possible."""
    job.kill_all()
    if job.name == "streamed":
        wait_until(lambda: jobs(job.uid).get(job.name, {}).get("is_released", True))
    job.start_all()


def train(jobs_of_round, kills):
    events = [Job.kill_one] * kills + [ask] * 4 + [evict] * 3 + [pause]
    chance.shuffle(events)
    deadline = time.monotonic() + PATIENCE
    for job in jobs_of_round:
        job.start_all()
    while not all([job.is_done() for job in jobs_of_round]):
        assert time.monotonic() < deadline, [(job.name, job.log(0)) for job in jobs_of_round if not job.is_done()]
        # Not to wait for anything: so that what comes next comes at any time.
        time.sleep(chance.random() * 0.1)
        busy = [job for job in jobs_of_round if not job.is_done()]
        if events and busy:
            events.pop()(chance.choice(busy))
    for job in jobs_of_round:
        job.check()


# ---- What is there when no trainer lives


def descriptors():
    links = []
    for fd in os.listdir(f"/proc/{DAEMON}/fd"):
        try:
            links.append(os.readlink(f"/proc/{DAEMON}/fd/{fd}"))
        except FileNotFoundError:
            pass
    # Numbers of sockets and of store files are new each time.
    return sorted(re.sub(r":\[\d+\]|-\d+(?=\.store)", "", link) for link in links)


def threads():
    """Its own: the kernel's workers for io_uring come and go."""
    names = []
    for task in os.listdir(f"/proc/{DAEMON}/task"):
        try:
            names.append(daemon_file(f"task/{task}/comm").strip())
        except FileNotFoundError:
            pass
    return sorted(name for name in names if name.startswith("tierd"))


def blocks():
    """MiB of the store files, as the file system counts them; what it needs to find them may be one block or two. Those of
    jobs that were dropped go meanwhile."""
    count = 0
    for name in glob.glob(f"{os.environ['NVME']}/tierd/*/*.store"):
        try:
            count += os.stat(name).st_blocks >> 11
        except FileNotFoundError:
            pass
    return count


def state():
    shown = node()
    return {
        "host": shown["host"]["used_bytes"],
        "pinned": shown["host"]["pinned_bytes"],
        "nvme": [path["used_bytes"] for path in shown["nvme"]],
        "blocks": blocks(),
        "clients": shown["clients"],
        "jobs": {name: (job["host_bytes"], job["nvme_bytes"]) for uid in (ALICE, BOB)
                 for name, job in jobs(uid).items()},
        "leases": [lease for uid in (ALICE, BOB) for lease in json.loads(tierctl(uid, "--json", "leases"))],
        "descriptors": descriptors(),
        "shared memory": daemon_file("maps").count("/memfd:tierd-"),
        "threads": threads(),
    }


def expect(expected):
    """What ranks have left is given back soon after they are gone. None: whatever is there when nothing changes."""
    found = None

    def is_as_expected():
        nonlocal found
        before, found = found, state()
        return found == (expected or before)

    try:
        wait_until(is_as_expected)
    except AssertionError:
        raise AssertionError(f"something is left: {found} instead of {expected}") from None
    return found


def make_pages():
    """Pages of statistics are made for who asks first."""
    for uid in (ALICE, BOB):
        tierctl(uid, "top", "--once")


def is_at_rest():
    return node()["clients"] == 1 and all(job["is_released"] for uid in (ALICE, BOB) for job in jobs(uid).values())


def come_to_rest():
    """Each job is released some time after its last rank has left."""
    wait_until(is_at_rest)
    make_pages()


def drop(job):
    tierctl(job.uid, "drop", job.name, "--yes")


def run_round(all_jobs, empty, full):
    """Returns what is there at its end, before all jobs are dropped."""
    train(all_jobs, kills=chance.randrange(4, 13))
    come_to_rest()
    full = expect(full)
    if chance.random() < 0.3:
        # What has been released is the same when its ranks return.
        train(all_jobs[:1], kills=0)
        come_to_rest()
        expect(full)
    for job in all_jobs:
        drop(job)
    expect(empty)
    return full


def tell_progress(text):
    """Where somebody looks at it: what a test prints is shown when it has ended."""
    if path := os.environ.get("TIERD_PROGRESS"):
        with open(path, "a", encoding="utf-8") as file:
            print(text, file=file)


def main():
    print(f"seed {SEED}, {SECONDS:.0f} s", flush=True)
    all_jobs = make_jobs()
    make_pages()
    empty, full, memory, start = expect(None), None, Trend(), time.monotonic()
    while full is None or time.monotonic() - start < SECONDS:
        full = run_round(all_jobs, empty, full)
        memory.add(time.monotonic() - start, private_bytes())
        tell_progress(f"endurance: {len(memory)} rounds, {time.monotonic() - start:.0f} of {SECONDS:.0f} s")
    print(f"{len(memory)} rounds; {memory}")
    assert is_sanitized() or not memory.grows(), "the daemon's memory grows"


main()
