"""A daemon that runs as its own user, and people who use it: accounts that are there while the test runs.

    with Node() as node:                    # accounts and folders; skipped with a reason where they cannot be had
        node.start("--host-budget", "512M") # the daemon, with these flags, too; stop(), kill(), start() again
        node.alice, node.bob                # members of the socket's group, each with a group of his own; node.eve: not
        node.add("carol"), node.alice.among(7)  # another member; the same, who is in group 7, too
        node.alice.tierctl("jobs")          # status=1, says=[...]: what is expected of it
        node.alice.rank(job="a").ready()    # user_job.c, as users.py has it
        node.alice.refused("EPERM", job="a")# the same, where it does not get ready
        node.bob.run(function, 1, 2)        # what it returns, in a process of his; an assertion there fails here, too
        attack = node.bob.begin(function)   # the same beside others; attack.result(), attack.kill()

What a test that was killed has left goes when the next one starts."""

import ctypes
import grp
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import traceback

import users
from waiting import wait_until

LEFT = re.compile(r"tierd-users-(\d+)(-[a-z]+)?$")
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
libc = ctypes.CDLL(None, use_errno=True)


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def die_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


# ---- Processes of other users ----


class Process:
    """A function that runs as somebody else."""

    def __init__(self, person, function, arguments):
        self.reading, writing = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self.status = self.play(person, function, arguments, writing)
            os._exit(self.status)
        os.close(writing)

    @staticmethod
    def play(person, function, arguments, writing):
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            person.become()
            os.write(writing, json.dumps(function(*arguments)).encode())
            return 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            return 1

    def result(self):
        with os.fdopen(self.reading) as file:
            text = file.read()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        assert status == 0, f"the other user's process ends with {status}, see above"
        return json.loads(text)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.reading)


def make_account(name, members_of, uid):
    command = ["useradd", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"]
    command += ["--user-group", "--groups", ",".join(members_of)]
    if uid:
        command += ["--uid", str(uid)]
    result = subprocess.run([*command, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0:
        skip(f"no account can be made here: {result.stdout.strip()}")
    uid, gid = pwd.getpwnam(name)[2:4]
    return Person(uid, gid, [grp.getgrnam(group).gr_gid for group in members_of])


class Person:
    def __init__(self, uid, gid, groups=()):
        self.uid, self.gid, self.groups = uid, gid, groups

    def among(self, *groups):
        """The same, who is in these groups, too; they need no name."""
        return Person(self.uid, self.gid, [*self.groups, *groups])

    def become(self):
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        # A change of user ends the one, and forbids the other, which a program of his could do.
        die_with_parent()
        libc.prctl(PR_SET_DUMPABLE, 1)

    def begin(self, function, *arguments):
        return Process(self, function, arguments)

    def run(self, function, *arguments):
        return self.begin(function, *arguments).result()

    def keys(self, keys):
        return {"groups": ",".join(str(group) for group in [self.gid, *self.groups]), **keys}

    def rank(self, **keys):
        return users.Rank(self.uid, **self.keys(keys))

    def refused(self, *texts, **keys):
        return users.refused(self.uid, *texts, **self.keys(keys))

    def train(self, **keys):
        self.rank(**keys).ready().leave()

    def tierctl(self, *arguments, **expected):
        return users.tierctl(self.uid, *arguments, group=self.gid, groups=self.groups, **expected)

    def jobs(self):
        return {job["name"]: job for job in json.loads(self.tierctl("--json", "jobs"))}


# ---- What a test makes, and what one that was killed has left ----


def end_processes(uid):
    """All that this account has."""

    def own():
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/status", encoding="utf-8", errors="replace") as file:
                    fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(uid) in fields["Uid"].split("\t") and not fields["State"].startswith("Z"):
                found.append(int(name))
        return found

    def are_gone():
        for pid in own():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return not own()

    wait_until(are_gone)


def remove_accounts(names):
    """The daemon's account last: the others are members of its group."""
    uids = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
    for name in sorted(uids.keys() & set(names), key=lambda name: name.endswith("-daemon")):
        end_processes(uids[name])
        subprocess.run(["userdel", "--force", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def is_left(name):
    found = LEFT.match(name)
    return found and not os.path.exists(f"/proc/{found[1]}")


def sweep(folders):
    remove_accounts([entry.pw_name for entry in pwd.getpwall() if is_left(entry.pw_name)])
    for folder in folders:
        for name in filter(is_left, os.listdir(folder)):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def disk():
    """Where the build is, if others may go there."""
    folder = part = os.path.realpath(os.environ.get("TIERD_TEST_DISK", "/var/tmp"))
    while part != "/":
        if not os.stat(part).st_mode & 0o001:
            return "/var/tmp"
        part = os.path.dirname(part)
    return folder


class Node:
    def __init__(self):
        if os.geteuid() != 0:
            skip("only root can make users")
        for program in ("useradd", "userdel"):
            if not shutil.which(program):
                skip(f"{program} is not installed")
        self.name, self.disk, self.process, self.people = f"tierd-users-{os.getpid()}", disk(), None, []
        self.folder, self.nvme = f"/tmp/{self.name}", f"{self.disk}/{self.name}-nvme"
        self.socket, self.log_path = f"{self.folder}/run/tierd.sock", f"{self.folder}/log"
        self.state, self.configuration = f"{self.folder}/state", f"{self.folder}/tierd.conf"
        self.account = self.alice = self.bob = self.eve = None

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        sweep(["/tmp", self.disk])
        try:
            self.prepare()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def add(self, name, uid=None, is_member=True):
        """Somebody with an account, who may use the socket, or not."""
        self.people.append(f"{self.name}-{name}")
        return make_account(self.people[-1], [f"{self.name}-daemon"] if is_member else [], uid)

    def prepare(self):
        self.account = self.add("daemon", is_member=False)
        self.alice, self.bob = self.add("alice"), self.add("bob")
        self.eve = self.add("eve", is_member=False)
        os.mkdir(self.folder)
        # As the service has them: the socket's folder is the group's, the others the daemon's alone.
        for path, mode in (("bin", 0o755), ("run", 0o750), ("state", 0o700), (self.nvme, 0o700)):
            path = os.path.join(self.folder, path)
            os.mkdir(path)
            os.chmod(path, mode)
            if mode != 0o755:
                os.chown(path, self.account.uid, self.account.gid)
        # A tree below /root they could not enter.
        for program in ("TIERD", "TIERCTL"):
            os.environ[program] = shutil.copy(os.environ[program], f"{self.folder}/bin/{program.lower()}")
        os.environ.update(TIERD_SOCKET=self.socket, TIERD_LOG=self.log_path, COLUMNS="10000")

    def __exit__(self, kind, *_):
        if kind and kind is not SystemExit and os.path.exists(self.log_path):
            print("--- log of tierd:", *self.log().splitlines()[-50:], sep="\n", file=sys.stderr)
        if self.process:
            self.kill()
        remove_accounts(self.people)
        for folder in (self.folder, self.nvme):
            shutil.rmtree(folder, ignore_errors=True)

    def command(self, *flags):
        return [
            os.environ["TIERD"],
            "--socket",
            self.socket,
            "--state-dir",
            self.state,
            "--host-budget",
            "256M",
            "--nvme",
            f"{self.nvme}:1G",
            "--file-system",
            "memory",
            "--workers",
            "2",
            *flags,
        ]

    def as_account(self, prepare=die_with_parent):
        return {"user": self.account.uid, "group": self.account.gid, "extra_groups": [], "preexec_fn": prepare}

    def launch(self, *flags, **options):
        """Starts the daemon, and does not wait for it."""
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command(*flags), stderr=log, **{**self.as_account(), **options})
        os.environ["TIERD_PID"] = str(self.process.pid)

    def start(self, *flags):
        self.launch(*flags)
        wait_until(self.answers)
        # As tierd.socket has it: of a user who is not called tierd the socket is his alone.
        os.chmod(self.socket, 0o660)

    def configure(self, *lines):
        """What start("--config", node.configuration) reads, or a daemon that gets a SIGHUP."""
        with open(self.configuration, "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def answers(self):
        assert self.process.poll() is None, "the daemon ended while it started"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.run([os.environ["TIERCTL"], "ping"], **quiet, check=False).returncode == 0

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status, self.process = self.process.wait(), None
        assert status == 0, f"the daemon ends with {status}"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process = None

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()
