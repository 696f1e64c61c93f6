"""Programs that the demo runs: each ends with it, whatever ends it."""
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

WORKERS = 2  # threads of the daemon
START_SECONDS = 30
STOP_SECONDS = 30
PR_SET_PDEATHSIG = 1


class DemoError(Exception):
    pass


def die_with_demo():
    """In the child: not even kill -9 of the demo leaves it behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Process:
    """A program in a session of its own, so that Ctrl-C reaches the demo alone, which then ends it."""

    def __init__(self, command, limit=None, environment=None):
        def begin():
            die_with_demo()
            if limit:
                limit.enter()

        self.name = os.path.basename(command[0])
        # pylint: disable=subprocess-popen-preexec-fn
        self.process = subprocess.Popen(command, start_new_session=True, preexec_fn=begin, env=environment)
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"demo: {self.name} does not end; killing it", file=sys.stderr)
        # What is left of its ranks, too.
        self.signal(signal.SIGKILL)
        self.process.wait()

    def signal(self, number):
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def check(self):
        if self.process.wait() != 0:
            raise DemoError(f"{self.name} failed with status {self.process.returncode}")


class Daemon(Process):
    def __init__(self, build, folder, host_budget, capacity, limit=None):
        # A socket's path is short; the folder's need not be.
        self.socket_folder = tempfile.mkdtemp(prefix="tierd-demo-")
        self.socket = os.path.join(self.socket_folder, "socket")
        nvme = os.path.join(folder, "nvme")
        os.makedirs(nvme, exist_ok=True)
        super().__init__([
            os.path.join(build, "daemon/tierd"), "--socket", self.socket,
            "--state-dir", os.path.join(folder, "state"), "--nvme", f"{nvme}:{capacity}",
            "--host-budget", str(host_budget), "--workers", str(WORKERS), "--log-level", "warning",
            # The build folder may be on a tmpfs: what the demo shows outlives the daemon there, too.
            "--file-system", "memory"], limit)

    def __enter__(self):
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_until_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process.poll() is not None:
                raise DemoError(f"tierd ended with status {self.process.returncode} before it was ready")
            if time.monotonic() > deadline:
                raise DemoError(f"tierd was not ready after {START_SECONDS} s")
            time.sleep(0.02)

    def __exit__(self, *exception):
        super().__exit__(*exception)
        shutil.rmtree(self.socket_folder, ignore_errors=True)

    def answers(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            return client.connect_ex(self.socket) == 0
