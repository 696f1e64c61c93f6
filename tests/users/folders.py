#!/usr/bin/env python3
"""Folders of tierd's that another user has made, or may write to: none is used, and the error names it and what mends
it. What lies in them and is no regular file is neither waited for nor followed, and a job that lies in another user's
folder is not his. The socket is never for more people than it is in the end."""

import os
import pwd
import shutil
import stat
import subprocess

from harness import Node, die_with_parent, libc, skip

PTRACE_TRACEME, PTRACE_SYSCALL, PTRACE_DETACH = 0, 24, 17
# Of a socket that listens, in /proc/net/unix.
LISTENS = "00010000"


class Shared:
    """A folder that everybody may write to, and things in it."""

    def __init__(self, node):
        self.node, self.path = node, f"{node.folder}/shared"
        os.mkdir(self.path)
        os.chmod(self.path, 0o777)

    def make(self, person, name, mode):
        """A folder of his."""
        path = f"{self.path}/{name}"
        person.run(make_folder, path, mode)
        return path


def make_folder(path, mode):
    os.mkdir(path)
    os.chmod(path, mode)


def name_of(person):
    return pwd.getpwuid(person.uid).pw_name


def refuses(node, *texts):
    """It does not start, and says why."""
    result = subprocess.run(
        ["timeout", "30", *node.command()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **node.as_account(),
    )
    assert result.returncode == 1, (result.returncode, result.stdout)
    for text in texts:
        assert text in result.stdout, f"{text!r} is not in {result.stdout!r}"


def restart(node):
    """With what is there now; what its log says."""
    os.truncate(node.log_path, 0)
    node.start()
    return node.log()


def a_folder_for_state_is_its_own(node, shared):
    keeper, own = name_of(node.account), node.nvme
    node.nvme, path = shared.path, f"{shared.path}/tierd"
    shared.make(node.alice, "tierd", 0o777)
    refuses(
        node,
        f"{shared.path} cannot be used: {path} belongs to {name_of(node.alice)}, and has to be {keeper}'s own",
        f"chown -R {keeper} {path}",
    )
    node.alice.run(os.rmdir, path)
    for mode in 0o770, 0o707:
        shared.make(node.account, "tierd", mode)
        refuses(node, f"others than {keeper} may write to {path} (mode {mode:04o})", f"chmod go-w {path}")
        os.rmdir(path)
    node.alice.run(os.symlink, own, path)
    refuses(node, f"{shared.path} cannot be used")
    os.unlink(path)
    node.nvme = own


def the_state_directory_is_its_own(node, shared):
    keeper, own = name_of(node.account), node.state
    node.state = shared.make(node.alice, "state", 0o777)
    refuses(
        node,
        f"the state directory cannot be used: {node.state} belongs to {name_of(node.alice)}",
        f"chown -R {keeper} {node.state}",
        "choose another --state-dir",
    )
    node.alice.run(os.rmdir, node.state)
    shared.make(node.account, "state", 0o777)
    refuses(node, f"others than {keeper} may write to {node.state} (mode 0777)", f"chmod go-w {node.state}")
    shutil.rmtree(node.state)
    node.state = own


def make_pipe(path):
    os.mkfifo(path)
    os.chmod(path, 0o666)


def what_is_no_regular_file_there_is_left_alone(node):
    path, linked = f"{node.state}/lock", f"{node.folder}/run/linked"
    kinds = (make_pipe, os.unlink, path), (os.symlink, os.unlink, linked, path), (make_folder, os.rmdir, path, 0o777)
    for make, remove, *arguments in kinds:
        if os.path.exists(path):
            os.unlink(path)
        make(*arguments)
        refuses(node, f"{path} is no regular file")
        remove(path)
    assert not os.path.exists(linked), "a link in the state directory was followed"
    # None of these is waited for, or written to.
    precious = f"{node.folder}/run/precious"
    with open(precious, "w", encoding="ascii") as file:
        file.write("precious")
    for name in "jobs", "wear", "wear.new":
        make_pipe(f"{node.state}/{name}")
    os.link(precious, f"{node.state}/jobs.new")
    for name in os.listdir(node.state):
        os.chown(f"{node.state}/{name}", node.account.uid, node.account.gid)
    node.start()
    node.stop()
    with open(precious, encoding="ascii") as file:
        assert file.read() == "precious", "a file that was linked to another name was written to"
    for name in os.listdir(node.state):
        os.unlink(f"{node.state}/{name}")


def listen_in(node, folder):
    node.socket = os.environ["TIERD_SOCKET"] = f"{folder}/tierd.sock"


def the_sockets_folder_is_its_own_or_sticky(node, shared):
    keeper, own = name_of(node.account), os.path.dirname(node.socket)
    listen_in(node, shared.path)
    others = f"others than {keeper} may write to {shared.path}"
    refuses(node, f"cannot listen at {node.socket}: {others}", "choose another --socket")
    for mode in 0o755, 0o777:
        listen_in(node, shared.make(node.alice, "run", mode))
        refuses(node, f"{shared.path}/run belongs to {name_of(node.alice)}")
        assert not os.path.exists(node.socket), "a socket was made there"
        os.rmdir(f"{shared.path}/run")
    # As in /tmp, where nobody removes what is another's.
    os.mkdir(f"{shared.path}/sticky")
    os.chmod(f"{shared.path}/sticky", 0o1777)
    listen_in(node, f"{shared.path}/sticky")
    the_socket_is_never_for_more_people(node)
    listen_in(node, own)


def be_traced():
    os.umask(0)
    die_with_parent()
    if libc.ptrace(PTRACE_TRACEME, 0, None, None) < 0:
        os._exit(77)


def listens(path):
    with open("/proc/net/unix", encoding="ascii", errors="replace") as file:
        return any(line.split()[3] == LISTENS for line in file if line.rstrip("\n").endswith(path))


def the_socket_is_never_for_more_people(node):
    """Its mode is looked at after each system call, from its making until somebody can connect."""
    modes = []
    node.launch(preexec_fn=be_traced)
    pid = node.process.pid
    while True:
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 77 and not modes:
            skip("no process can be traced here")
        assert os.WIFSTOPPED(status), f"the daemon ended while it started, {status}: {node.log()}"
        if os.path.exists(node.socket):
            modes.append(stat.S_IMODE(os.stat(node.socket).st_mode))
            if listens(node.socket):
                break
        number = os.WSTOPSIG(status)
        libc.ptrace(PTRACE_SYSCALL, pid, None, None if number == 5 else number)
    libc.ptrace(PTRACE_DETACH, pid, None, None)
    node.stop()
    assert modes[-1] == 0o600 and not any(mode & 0o077 for mode in modes), [oct(mode) for mode in modes]


def a_job_in_another_users_folder_is_nobodys(node):
    """Then Bob has one of the same name. Returns where the jobs of both are."""
    alices, bobs = (f"{node.nvme}/tierd/{person.uid}" for person in (node.alice, node.bob))
    restart(node)
    node.alice.train(job="state")
    node.stop()
    os.rename(alices, bobs)
    log, text = restart(node), f"it is a job of user {node.alice.uid}, in the folder of user {node.bob.uid}"
    assert f"{node.bob.uid}/state-1.store: {text}" in log, log
    node.bob.tierctl("drop", "--yes", "--lost", "state", status=1, says=["there is no job state"])
    node.bob.train(job="state")
    node.alice.tierctl("jobs", "state", says=["broken"])
    node.stop()
    os.mkdir(alices)
    os.chown(alices, node.account.uid, node.account.gid)
    os.chmod(alices, 0o700)
    os.rename(f"{bobs}/state-1.store", f"{alices}/state-1.store")
    return alices, bobs


def a_users_folder_is_the_daemons_own_and_there(node, path, elsewhere):
    os.chown(path, node.bob.uid, -1)
    os.chmod(path, 0o755)
    log = restart(node)
    assert f"{path} is not tierd's own, or others may write to it" in log, log
    node.stop()
    os.chown(path, node.account.uid, -1)
    os.chmod(path, 0o700)
    os.rename(path, elsewhere)
    node.account.run(os.symlink, elsewhere, path)
    restart(node)
    node.alice.tierctl("jobs", "state", says=["broken"])
    node.stop()
    os.unlink(path)


def what_is_in_the_place_of_a_file_is_not_waited_for(node, folder):
    """Somebody could put it there; nothing of the file is lost."""
    name = next(name for name in os.listdir(folder) if name.endswith(".store"))
    path, away = f"{folder}/{name}", f"{node.nvme}/store"
    os.rename(path, away)
    for make, *arguments in (make_pipe, path), (os.symlink, away, path):
        node.account.run(make, *arguments)
        restart(node)
        says = [f"{path} cannot be opened: it is no regular file", "remedy: put the file back that was there"]
        node.bob.tierctl("jobs", "state", says=says)
        node.stop()
        os.unlink(path)
    os.rename(away, path)


def jobs_are_their_owners(node):
    alices, bobs = a_job_in_another_users_folder_is_nobodys(node)
    elsewhere = f"{node.nvme}/elsewhere"
    a_users_folder_is_the_daemons_own_and_there(node, alices, elsewhere)
    what_is_in_the_place_of_a_file_is_not_waited_for(node, bobs)
    os.rename(elsewhere, alices)
    restart(node)
    for person in node.alice, node.bob:
        person.tierctl("jobs", "state", says=["step 1"])
    node.stop()


with Node() as daemon:
    place = Shared(daemon)
    a_folder_for_state_is_its_own(daemon, place)
    the_state_directory_is_its_own(daemon, place)
    what_is_no_regular_file_there_is_left_alone(daemon)
    the_sockets_folder_is_its_own_or_sticky(daemon, place)
    jobs_are_their_owners(daemon)
