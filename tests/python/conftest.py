"""What all tests of the package share: a private daemon, and a line for each case, by which `./run test` counts them."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parents[2] / "build"
TIERD = os.environ.get("TIERD", str(BUILD / "daemon" / "tierd"))
TIERCTL = os.environ.get("TIERCTL", str(BUILD / "client" / "tierctl" / "tierctl"))
# Libraries that play the GPU's driver.
STANDINS = Path(os.environ.get("TIERD_STANDINS", BUILD / "tests" / "lib" / "gpu"))
# Seconds that nothing here takes, on a busy machine: who takes so long hangs.
PATIENCE = 200
# By day one case in so many is enough, among those that differ in models or seeds alone.
PART = int(os.environ.get("TIERD_SEEDS_PART", "1"))


class Cases:
    """Says what came of each case, as a program of cmocka does."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.result = "OK"
        self.done = self.count = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.count = len(session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup":
            self.result = "OK"
        if report.failed:
            self.result = "FAILED"
        elif report.skipped and not hasattr(report, "wasxfail"):
            self.result = "SKIPPED"
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.write(f"skipped: {reason.removeprefix('Skipped: ')}")
        if report.when == "teardown":
            name = report.nodeid.partition("::")[2].replace("::", ".").replace(" ", "_")
            self.write(f"[ {self.result:>8} ] {name}")
            self.done += 1
            tell_progress(f"{report.nodeid.partition('::')[0]}: {self.done} of {self.count}")

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> Generator[None, tuple[str, str, str], tuple[str, str, str]]:
        category, _, word = yield
        return category, "", word

    def write(self, line: str) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        assert reporter is not None
        reporter.write_line(line)


def tell_progress(text: str) -> None:
    """Where somebody looks at it: what a test prints is shown when it has ended."""
    if path := os.environ.get("TIERD_PROGRESS"):
        with open(path, "a", encoding="utf-8") as file:
            print(text, file=file)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Cases(config))
    # PyTorch takes seconds, which not all tests need.
    if (kind := os.environ.get("TIERD_GPU")) == "tier":
        from tier_stand_in import compute_all_there

        compute_all_there()
    elif kind:
        from gpu_stand_in import compute_there

        compute_there(kind)


@dataclass
class Daemon:
    """A tierd of the tests' own."""

    folder: Path
    nvme: Path
    process: subprocess.Popen[bytes] | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        return self.folder / "tierd" / "tierd.sock"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self, *flags: str) -> None:
        """Starts it, and waits until it answers."""
        with self.log.open("ab") as log:
            places = f"--socket {self.socket} --state-dir {self.folder}/state".split()
            sizes = ["--host-budget", "256M", "--file-system", "memory", "--workers", "2"]
            command = [TIERD, *places, "--nvme", f"{self.nvme}:1G", *sizes, *flags]
            self.process = subprocess.Popen(command, stderr=log, env=os.environ | self.environment)
        deadline = time.monotonic() + PATIENCE
        ping = [TIERCTL, "--socket", str(self.socket), "ping"]
        while subprocess.run(ping, capture_output=True, check=False).returncode != 0:
            assert self.process.poll() is None, f"the daemon ended while it started: {self.log.read_text()}"
            assert time.monotonic() < deadline, f"the daemon does not answer: {self.log.read_text()}"
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends it as an administrator does."""
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, self.log.read_text()

    def kill(self) -> None:
        """Ends it as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Has it answer nothing meanwhile."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def no_hang() -> Iterator[None]:
    """Ends the process, even if it hangs with the interpreter's lock held."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def interrupted(call: Callable[[], object]) -> None:
    """Makes the call, and has somebody press Ctrl-C while it waits."""
    state = Path(f"/proc/self/task/{threading.get_native_id()}/stat")
    has_begun = threading.Event()

    def press() -> None:
        has_begun.wait()
        seen = ""
        while not seen.endswith("SSSSS"):
            time.sleep(0.02)
            seen += state.read_text().rpartition(") ")[2][0]
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with no_hang(), pytest.raises(KeyboardInterrupt):
        has_begun.set()
        call()
    presser.join()


@contextmanager
def running(**environment: str) -> Iterator[Daemon]:
    """A daemon meanwhile."""
    # In /tmp, because paths of sockets are short; what lies on NVMe wants a real disk.
    folder = Path(tempfile.mkdtemp(prefix="tierd-test-", dir="/tmp"))
    nvme = Path(tempfile.mkdtemp(prefix="tierd-nvme-", dir=os.environ.get("TIERD_TEST_DISK")))
    places = {"XDG_RUNTIME_DIR": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    daemon = Daemon(folder, nvme, environment=places | environment)
    try:
        daemon.start()
        yield daemon
        daemon.stop()
    finally:
        if daemon.process is not None:
            daemon.kill()
        shutil.rmtree(folder)
        shutil.rmtree(nvme)


@pytest.fixture(scope="session", autouse=True)
def daemon() -> Iterator[Daemon]:
    """One for all tests of a process; $TIERD_SOCKET leads to it."""
    gpu = {"LD_LIBRARY_PATH": str(STANDINS)} if os.environ.get("TIERD_GPU") == "tier" else {}
    with running(**gpu) as daemon, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIERD_SOCKET", str(daemon.socket))
        patch.setenv("XDG_RUNTIME_DIR", str(daemon.folder))
        patch.setenv("XDG_CONFIG_HOME", str(daemon.folder / "config"))
        yield daemon


@pytest.fixture(scope="session")
def daemon_with_gpu() -> Iterator[Daemon]:
    with running(LD_LIBRARY_PATH=str(STANDINS), STANDIN_DELAY_US="300") as daemon:
        yield daemon


@pytest.fixture
def gpu_daemon(daemon_with_gpu: Daemon) -> Iterator[Daemon]:
    """One on a machine with a GPU, which a stand-in plays whose copies are late."""
    yield daemon_with_gpu
    drop_jobs(daemon_with_gpu)


@pytest.fixture(autouse=True)
def left_jobs(daemon: Daemon) -> Iterator[None]:
    """Ends the jobs that a test leaves, in good order, and destroys them: their room is the next one's."""
    yield
    if there := sys.modules.get("tierd.torch.job"):
        for job in list(there.open_jobs):
            job.close()
    drop_jobs(daemon)


def drop_jobs(daemon: Daemon) -> None:
    """Ends them all, and destroys their state."""
    at = ["--socket", str(daemon.socket)]
    for job in json.loads(tierctl(*at, "--json", "jobs")):
        subprocess.run([TIERCTL, *at, "drop", "--yes", "--force", job["name"]], check=False, capture_output=True)


def tierctl(*arguments: str) -> str:
    """What it prints."""
    return subprocess.run([TIERCTL, *arguments], check=True, capture_output=True, text=True).stdout


def job_name(test: str) -> str:
    """A job's name of that of a test, at most 63 of the characters that may be in one."""
    return re.sub("[^A-Za-z0-9]+", "-", test).strip("-")[-63:].strip("-")


@pytest.fixture
def job(request: pytest.FixtureRequest) -> str:
    """A job's name of this test alone."""
    return job_name(request.node.name)
