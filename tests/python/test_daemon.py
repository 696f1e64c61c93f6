"""A private daemon: started once, shared, ended with whoever it belongs to, whatever that dies of."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tierd
from conftest import PATIENCE, TIERCTL, Daemon
from tierd import daemon as daemons
from tierd import memory
from tierd.launch import this_launch

# A rank: says where its daemon listens, and goes on until its standard input ends.
RANK = """
import sys
from tierd.daemon import find_or_start
print(find_or_start(host_budget=64 << 20), flush=True)
sys.stdin.read()
"""
# The first rank that torchrun starts dies with its daemon in use; the next one says which that has found.
RESTARTED_RANK = """
import json, os, signal, subprocess
from tierd.daemon import find_or_start
socket = find_or_start(host_budget=64 << 20)
said = subprocess.run([os.environ["TIERCTL"], "--socket", socket, "--json", "status"], check=True, stdout=subprocess.PIPE)
print(json.loads(said.stdout)["pid"], flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os.kill(os.getpid(), signal.SIGKILL)
"""
LAUNCHERS = ("TORCHELASTIC_", "SLURM_", "OMPI_", "PMIX_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_")


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for sockets in which no daemon listens; no launcher; what is left there at the end is a failure."""
    if os.path.exists("/run/tierd/tierd.sock"):
        pytest.skip("this machine has a tierd of its own")
    for name in list(os.environ):
        if name.startswith(LAUNCHERS):
            monkeypatch.delenv(name)
    folder = Path(tempfile.mkdtemp(prefix="tierd-test-", dir="/tmp"))
    monkeypatch.delenv("TIERD_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    left = list(folder.glob("tierd-*"))
    shutil.rmtree(folder)
    assert left == []


@pytest.fixture
def rank() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(**environment: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", RANK]
        variables = os.environ | environment
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=variables))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def socket_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def errors_of(process: subprocess.Popen[str]) -> str:
    """What it has written to standard error; the watcher has that open, too, so this waits for the daemon's end."""
    assert process.stderr is not None
    return process.stderr.read()


def pid_of(socket: str) -> int:
    command = [TIERCTL, "--socket", socket, "--json", "status"]
    pid: int = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["pid"]
    return pid


def watcher_of(socket: str) -> int:
    """A descriptor of the process that ends a daemon, and removes its folder before it ends itself."""
    status = Path(f"/proc/{pid_of(socket)}/status").read_text().splitlines()
    return os.pidfd_open(int(next(line.split()[1] for line in status if line.startswith("PPid:"))))


def await_end(descriptor: int) -> None:
    assert select.select([descriptor], [], [], PATIENCE)[0], "a process does not end"
    os.close(descriptor)


def await_change(is_there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_there():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_daemon_that_listens_at_a_usual_place_is_used(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(daemon.folder))
    assert daemons.find_or_start() == str(daemon.socket)


def test_a_socket_that_is_named_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERD_SOCKET", "/nowhere/tierd.sock")
    assert daemons.find_or_start() == "/nowhere/tierd.sock"


@pytest.mark.parametrize("end", ["its input ends", "kill -9"])
def test_a_private_daemon_ends_with_its_process(
    rank: Callable[..., subprocess.Popen[str]], place: Path, end: str
) -> None:
    process = rank()
    socket = socket_of(process)
    watcher = watcher_of(socket)
    folder = Path(socket).parent
    assert folder.parent == place
    assert folder.stat().st_mode & 0o777 == 0o700
    if end == "kill -9":
        process.kill()
    else:
        assert process.stdin is not None
        process.stdin.close()
    await_end(watcher)
    assert not folder.exists()
    lines = errors_of(process).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("tierd: no daemon listens, so this starts a private one: 0.1 GiB of memory")
    assert "it ends with this process" in lines[0]


def test_ranks_that_start_at_once_share_one_until_the_last_is_killed(
    rank: Callable[..., subprocess.Popen[str]],
) -> None:
    launch = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "WORLD_SIZE": "6"}
    ranks = [rank(RANK=str(number), **launch) for number in range(6)]
    sockets = {socket_of(process) for process in ranks}
    assert len(sockets) == 1
    socket = sockets.pop()
    watcher, pid = watcher_of(socket), pid_of(socket)
    for process in ranks[:-1]:
        process.kill()
        process.wait()
    assert pid_of(socket) == pid
    ranks[-1].kill()
    await_end(watcher)
    assert sum("starts a private one" in errors_of(process) for process in ranks) == 1


def test_another_launch_has_a_daemon_of_its_own(rank: Callable[..., subprocess.Popen[str]]) -> None:
    first, second = (rank(RANK="0", MASTER_ADDR="localhost", MASTER_PORT=port) for port in ("29500", "29501"))
    sockets = [socket_of(first), socket_of(second)]
    assert sockets[0] != sockets[1]
    watchers = [watcher_of(socket) for socket in sockets]
    for process in (first, second):
        process.kill()
    for watcher in watchers:
        await_end(watcher)


def test_a_rank_that_torchrun_starts_again_finds_the_same_daemon(tmp_path: Path, place: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "rank.py"
    script.write_text(RESTARTED_RANK)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts=1", str(script)]
    environment = os.environ | {"TIERCTL": TIERCTL}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=PATIENCE)
    first, second = done.stdout.split()
    assert first == second
    assert done.stderr.count("it ends with torchrun") == 1
    # The output has ended, so the watcher has.
    assert list(place.glob("tierd-*")) == []


def test_a_daemon_that_is_killed_is_started_again(rank: Callable[..., subprocess.Popen[str]]) -> None:
    process = rank()
    socket = socket_of(process)
    watcher, pid = watcher_of(socket), pid_of(socket)
    os.kill(pid, 9)

    def is_another() -> bool:
        done = subprocess.run([TIERCTL, "--socket", socket, "ping"], capture_output=True, check=False)
        return done.returncode == 0 and pid_of(socket) != pid

    await_change(is_another)
    process.kill()
    await_end(watcher)


def test_a_rank_that_is_killed_while_it_starts_one_leaves_nothing(
    rank: Callable[..., subprocess.Popen[str]], place: Path, tmp_path: Path
) -> None:
    program = tmp_path / "tierd"
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    program.write_text(f"#!/bin/sh\n: >'{begun}'\nexec sleep 1000\n")
    program.chmod(0o755)
    process = rank(TIERD=str(program))
    begun.read_bytes()
    assert list(place.glob("tierd-*")) != []
    process.kill()
    assert "starts a private one" in errors_of(process)
    assert list(place.glob("tierd-*")) == []


def test_a_forked_child_keeps_no_daemon(rank: Callable[..., subprocess.Popen[str]]) -> None:
    code = RANK.replace("sys.stdin.read()", "import os\nif os.fork() == 0: sys.stdin.read()\nelse: os._exit(0)")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip()).parent
        # The child goes on until it has read all of its input.
        await_change(lambda: not folder.exists())


def test_threads_of_one_process_share_one(place: Path) -> None:
    code = """
import threading
from tierd.daemon import find_or_start
found = []
threads = [threading.Thread(target=lambda: found.append(find_or_start(host_budget=64 << 20))) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(found) == 4 and len(set(found)) == 1, found
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("nvme", "error", "text"),
    [
        ("/nowhere", errno.EINVAL, "is not FOLDER:SIZE"),
        ("/nowhere:1G", errno.ENOTDIR, "/nowhere is no folder: make it"),
        ("/dev/null:1G", errno.ENOTDIR, "/dev/null is no folder"),
        ("/proc:1G", errno.ECHILD, "the private daemon does not start: tierd: "),
    ],
)
def test_nvme_that_cannot_be_used_is_named(nvme: str, error: int, text: str) -> None:
    with pytest.raises(tierd.Error, match=text) as raised:
        daemons.find_or_start(nvme, host_budget=64 << 20)
    assert raised.value.errno == error


def test_a_folder_that_another_daemon_has_is_named(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert daemon.process is not None
    text = f"{daemon.nvme} is used by the daemon of process {daemon.process.pid}: to share it, set TIERD_SOCKET={daemon.socket};"
    with pytest.raises(tierd.Error, match=text) as raised:
        daemons.find_or_start(f"{daemon.nvme}:1G", host_budget=64 << 20)
    assert raised.value.errno == errno.EBUSY
    # One that does not listen any more is waited for.
    (tmp_path / "tierd").mkdir()
    lock = os.open(tmp_path / "tierd", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", lambda seconds: os.close(lock))
        daemons._await_end(str(tmp_path))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(lock)
    lock = os.open(tmp_path / "tierd", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    monkeypatch.setattr(daemons, "_ENDING_S", -1.0)
    with pytest.raises(tierd.Error, match=f"is used by the daemon of process {os.getpid()}: end that, or name another"):
        daemons._await_end(str(tmp_path))
    os.close(lock)


def test_a_folder_of_another_user_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(tmp_path))
    with pytest.raises(tierd.Error, match=f"this user may not write to {tmp_path}: change its owner"):
        daemons.find_or_start(f"{tmp_path}:1G", host_budget=64 << 20)


def test_a_program_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERD", "/nowhere/tierd")
    with pytest.raises(tierd.Error, match="there is no tierd at /nowhere/tierd: install it") as raised:
        daemons.find_or_start(host_budget=64 << 20)
    assert raised.value.errno == errno.ENOENT


def test_too_little_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "free_bytes", lambda: 100 << 20)
    with pytest.raises(tierd.Error, match="half of the free memory is 50 MiB, and a daemon needs 64 MiB") as raised:
        daemons.find_or_start()
    assert raised.value.errno == errno.ENOMEM


def test_a_private_folder_that_others_can_read_is_refused(place: Path) -> None:
    folder = daemons._folder_of(this_launch())
    folder.mkdir(0o755)
    with pytest.raises(tierd.Error, match="is no private folder of this user"):
        daemons.find_or_start()
    folder.rmdir()


def test_a_folder_with_a_long_name_has_no_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    assert daemons._folder_of(this_launch()).parent == Path("/tmp")


def test_a_runtime_folder_that_is_not_this_users_has_no_socket(place: Path) -> None:
    assert daemons._folder_of(this_launch()).parent == place
    place.chmod(0o777)
    assert daemons._folder_of(this_launch()).parent == Path("/tmp")
    place.chmod(0o700)
    # As after su, which leaves the variable as it was.
    if os.getuid() == 0:
        os.chown(place, 60001, -1)
        assert daemons._folder_of(this_launch()).parent == Path("/tmp")


@pytest.mark.parametrize("version", [1, 2])
def test_free_memory_is_what_the_tightest_group_leaves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: int
) -> None:
    root, limit, usage, inactive = memory._FILES[version]
    root = tmp_path / root.relative_to("/")
    monkeypatch.setitem(memory._FILES, version, (root, limit, usage, inactive))
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/user/job\n" if version == 2 else "3:cpu,memory:/user/job\n")
    assert memory.free_bytes(tmp_path) == 8000 * 1024
    for group, most in {"user": "5000", "user/job": "max" if version == 2 else "9223372036854771712"}.items():
        (root / group).mkdir(parents=True)
        (root / group / limit).write_text(f"{most}\n")
        (root / group / usage).write_text("3000\n")
        (root / group / "memory.stat").write_text(f"anon 2000\n{inactive} 700\n")
    assert memory.free_bytes(tmp_path) == 5000 - 3000 + 700
