"""The part of a service manager that a daemon sees: starts it, hands it sockets, and hears what it says."""
import os
import queue
import signal
import socket
import subprocess
import threading
import time

SCRATCH = os.environ["SCRATCH"]
LOG = f"{SCRATCH}/log"


class Manager:
    """Starts a daemon and hears what it notifies."""

    def __init__(self, command, environment=None, descriptors=(), stderr=None, path=f"{SCRATCH}/notify"):
        if os.path.exists(path):
            os.unlink(path)
        # Always read, whatever a test does meanwhile: who notifies a manager that does not listen waits for it.
        self.notices = queue.Queue()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listening.bind(path)
        threading.Thread(target=self.hear, args=[listening], daemon=True).start()

        def hand_over():
            # From 3 on, as sd_listen_fds(3) wants them; copies first, because they may lie there.
            copies = [os.dup(fd) for fd in descriptors]
            for place, copy in enumerate(copies, 3):
                os.dup2(copy, place, inheritable=True)

        with open(LOG, "ab") as log:
            # The shell knows the pid for which the sockets are, and then is the daemon.
            self.process = subprocess.Popen(
                ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", *command],
                env={**os.environ, "NOTIFY_SOCKET": path, **(environment or {})},
                stderr=stderr or log, close_fds=False, preexec_fn=hand_over if descriptors else None)

    def hear(self, listening):
        while True:
            notice = listening.recv(4096).decode().split("\n")
            self.notices.put(dict(line.split("=", 1) for line in notice))

    def next(self, timeout=30):
        return self.notices.get(timeout=timeout)

    def await_ready(self):
        notice = self.next()
        assert notice["READY"] == "1" and notice["STATUS"].startswith("listening at "), notice

    def await_alive(self):
        """The next notice that feeds the watchdog."""
        while "WATCHDOG" not in self.next():
            pass

    def reload(self):
        before = time.monotonic_ns() // 1000
        self.process.send_signal(signal.SIGHUP)
        notice = self.next()
        assert notice["RELOADING"] == "1", notice
        assert before <= int(notice["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000, notice
        self.await_ready()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        notice = self.next()
        while "STOPPING" not in notice:
            notice = self.next()
        assert self.process.wait(30) == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
