#!/usr/bin/env python3
"""Plays the service manager for one daemon: service.py SCENARIO TIERD FLAG…

$SCRATCH is a folder of its own, $TIERD_SOCKET where the daemon listens.
"""
import os
import queue
import signal
import socket
import sys

import frames
from manager import LOG, SCRATCH, Manager as BareManager

CONFIGURATION = f"{SCRATCH}/tierd.conf"


class Manager(BareManager):
    """Of the daemon that the command line names."""

    def __init__(self, environment=None, descriptors=(), command=None, stderr=None):
        super().__init__(command or sys.argv[2:], environment, descriptors, stderr)


def log():
    with open(LOG, encoding="utf-8") as lines:
        return lines.read()


def expect_log(*texts):
    missing = [text for text in texts if text not in log()]
    assert not missing, missing


def configure(text):
    with open(CONFIGURATION, "w", encoding="utf-8") as file:
        file.write(text)


def with_configuration(*flags):
    return [*sys.argv[2:], "--config", CONFIGURATION, *flags]


def is_refused(connection):
    frames.send(connection, frames.hello())
    return frames.receive(connection)[2] == frames.EBUSY


# ---- Readiness and watchdog


def readiness_and_end_are_told():
    with Manager() as manager:
        manager.await_ready()
        frames.ping(frames.greet())
        manager.end()


def the_loop_feeds_the_watchdog():
    with Manager({"WATCHDOG_USEC": "200000"}) as manager:
        manager.await_ready()
        for _ in range(5):
            manager.await_alive()
        manager.end()


def without_a_watchdog_nothing_feeds_it():
    with Manager({"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"}) as manager:
        manager.await_ready()
        connection = frames.greet()
        # The manager hears what is sent in order: no notice of life comes before that of the end.
        for _ in range(2000):
            frames.ping(connection)
        manager.process.send_signal(signal.SIGTERM)
        assert "STOPPING" in manager.next()
        assert manager.process.wait(30) == 0


def the_status_says_what_is_served():
    with Manager({"WATCHDOG_USEC": "200000"}) as manager:
        manager.await_ready()
        connection = frames.greet()
        while "clients: 1," not in manager.next().get("STATUS", "").replace(";", ","):
            pass
        frames.ping(connection)
        manager.end()


def a_loop_that_hangs_falls_silent_and_is_killed():
    # A log that nobody reads: the loop hangs in write(2), while everything else of the process is well.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with Manager({"WATCHDOG_USEC": "500000"}, stderr=os.fdopen(os.dup(writer), "wb")) as manager:
        manager.await_ready()
        manager.await_alive()
        try:
            while True:
                os.write(writer, b"x")
        except BlockingIOError:
            os.set_blocking(writer, True)
        manager.process.send_signal(signal.SIGHUP)
        while "RELOADING" not in manager.next():
            pass
        try:
            while "WATCHDOG" in manager.next(timeout=0.5):
                pass
            raise AssertionError("it goes on")
        except queue.Empty:
            manager.process.send_signal(signal.SIGABRT)
        assert manager.process.wait(30) == -signal.SIGABRT
    os.close(reader)


# ---- Reload


def a_reload_changes_what_can_change():
    configure("[limits]\nconnections = 1\n")
    with Manager(command=with_configuration()) as manager:
        manager.await_ready()
        first = frames.greet()
        assert is_refused(frames.connect())
        configure("[daemon]\nlog_level = warning\n[limits]\nconnections = 2\noutput_queue = 1M\n"
                  "frame_size = 64K\nunits_per_job = 7\ntensors_per_job = 8\n"
                  "job_name_length = 9\nname_length = 10\ndimensions_per_tensor = 3\n"
                  "requests_per_connection = 16\nfirst_frame_seconds = 100\nframe_seconds = 200\n"
                  "[memory]\nidle_release_seconds = 9\n")
        manager.reload()
        second = frames.greet()
        assert is_refused(frames.connect())
        frames.ping(first)
        frames.ping(second)
        expect_log("connections in [limits] is 2 from now on", "output_queue in [limits] is 1M",
                   "frame_size in [limits] is 64K", "units_per_job in [limits] is 7",
                   "tensors_per_job in [limits] is 8", "job_name_length in [limits] is 9",
                   "name_length in [limits] is 10", "dimensions_per_tensor in [limits] is 3",
                   "requests_per_connection in [limits] is 16", "first_frame_seconds in [limits] is 100",
                   "frame_seconds in [limits] is 200", "idle_release_seconds in [memory] is 9",
                   "log_level in [daemon] is warning")
        # A warning is still logged, and what is not is said no more.
        quiet = log()
        configure("[limits]\nconnections = 3\n")
        manager.reload()
        assert log() == quiet, log()[len(quiet):]
        manager.end()


def a_limit_may_fall_below_what_is_used():
    configure("[limits]\nconnections = 2\n")
    with Manager(command=with_configuration()) as manager:
        manager.await_ready()
        connections = [frames.greet(), frames.greet()]
        configure("[limits]\nconnections = 1\n")
        manager.reload()
        for connection in connections:
            frames.ping(connection)
        assert is_refused(frames.connect())
        manager.end()


def what_needs_a_restart_is_named_and_stays():
    configure("")
    with Manager(command=[sys.argv[2], "--config", CONFIGURATION, "--socket", os.environ["TIERD_SOCKET"]]) as manager:
        manager.await_ready()
        os.makedirs(f"{SCRATCH}/nvme", exist_ok=True)
        configure(f"[daemon]\nsocket = /elsewhere\nstate_directory = {SCRATCH}/other\nworkers = 3\n[memory]\n"
                  f"host_budget = 77M\n[nvme]\npath = {SCRATCH}/nvme:1G\n[io]\nengine = plain\nqueue_depth = 7\n"
                  "direct = off\n[limits]\nconnections = 9\n")
        for _ in range(2):
            start = len(log())
            manager.reload()
            for name in ("state_directory in [daemon]", "workers in [daemon]", "host_budget in [memory]",
                         "path in [nvme]", "engine in [io]", "queue_depth in [io]", "direct in [io]"):
                assert f"{name} has changed in the configuration; it needs a restart" in log()[start:], name
            # A flag wins over the file, so this has not changed.
            assert "socket in" not in log()[start:]
        expect_log("connections in [limits] is 9")
        assert not os.path.exists(f"{SCRATCH}/other")
        frames.ping(frames.greet())
        manager.end()


def a_broken_file_changes_nothing():
    configure("[limits]\nconnections = 1\n")
    with Manager(command=with_configuration()) as manager:
        manager.await_ready()
        connection = frames.greet()
        configure("[limits]\nconnections = 5\nframe_seconds = never\n")
        manager.reload()
        expect_log(f"{CONFIGURATION}:3: frame_seconds = 'never'", "the configuration stays as it was")
        assert is_refused(frames.connect())
        os.unlink(CONFIGURATION)
        manager.reload()
        expect_log(f"{CONFIGURATION}: No such file or directory; the configuration stays as it was")
        assert is_refused(frames.connect())
        frames.ping(connection)
        manager.end()


def reloads_disturb_nobody():
    configure("")
    with Manager(command=with_configuration()) as manager:
        manager.await_ready()
        connection = frames.greet()
        for turn in range(30):
            configure(f"[limits]\nconnections = {turn + 1}\n")
            frames.send(connection, frames.frame(frames.REQUEST, frames.PING, request=5))
            manager.reload()
            assert frames.receive(connection) == (frames.REPLY, 5, 0, "")
        manager.end()


# ---- Socket activation


def listen(path, kind=socket.SOCK_STREAM):
    opened = socket.socket(socket.AF_UNIX, kind)
    if os.path.exists(path):
        os.unlink(path)
    opened.bind(path)
    if kind == socket.SOCK_STREAM:
        opened.listen()
    return opened


def an_inherited_socket_serves_and_stays():
    path = os.environ["TIERD_SOCKET"]
    os.makedirs(os.path.dirname(path))
    listening = listen(path)
    os.chmod(path, 0o640)
    file = os.stat(path)
    for _ in range(2):
        # Who came while nobody ran is served by whoever runs next.
        early = frames.connect()
        frames.send(early, frames.hello())
        with Manager({"LISTEN_FDS": "1"}, [listening.fileno()]) as manager:
            manager.await_ready()
            assert frames.receive(early)[2] == 0
            frames.ping(early)
            frames.ping(frames.greet())
            manager.end()
        assert os.stat(path).st_ino == file.st_ino and os.stat(path).st_mode == file.st_mode
        early.close()


def a_path_may_have_two_names():
    os.makedirs(f"{SCRATCH}/run")
    os.symlink("run", f"{SCRATCH}/var")
    listening = listen(f"{SCRATCH}/var/tierd.sock")
    with Manager({"LISTEN_FDS": "1"}, [listening.fileno()]) as manager:
        manager.await_ready()
        frames.ping(frames.greet())
        manager.end()


def sockets_for_another_process_are_left_alone():
    listening = listen(f"{SCRATCH}/other.sock")
    command = ["env", "LISTEN_PID=1", *sys.argv[2:]]
    with Manager({"LISTEN_FDS": "1"}, [listening.fileno()], command) as manager:
        manager.await_ready()
        frames.ping(frames.greet())
        manager.end()
    assert not os.path.exists(os.environ["TIERD_SOCKET"])


def refuses(why, environment, descriptors):
    start = len(log()) if os.path.exists(LOG) else 0
    with Manager({"LISTEN_FDS": str(len(descriptors)), **environment}, descriptors) as manager:
        assert manager.process.wait(30) == 1, why
    assert why in log()[start:], (why, log()[start:])


def a_wrong_socket_is_refused():
    path = os.environ["TIERD_SOCKET"]
    os.makedirs(os.path.dirname(path))
    no_listener = "no Unix stream socket that listens; tierd.socket needs ListenStream="
    datagram = listen(f"{SCRATCH}/datagram", socket.SOCK_DGRAM)
    refuses(no_listener, {}, [datagram.fileno()])
    connected, _other = socket.socketpair()
    refuses(no_listener, {}, [connected.fileno()])
    internet = socket.socket()
    internet.bind(("127.0.0.1", 0))
    internet.listen()
    refuses(no_listener, {}, [internet.fileno()])
    with open("/dev/null", "rb") as file:
        refuses(no_listener, {}, [file.fileno()])
    elsewhere = listen(f"{SCRATCH}/elsewhere")
    refuses(f"passed a socket at {SCRATCH}/elsewhere, but the configuration says socket = {path}", {},
            [elsewhere.fileno()])
    nameless = socket.socket(socket.AF_UNIX)
    nameless.bind("\0tierd-test-" + str(os.getpid()))
    nameless.listen()
    refuses("passed a socket at no path", {}, [nameless.fileno()])
    right = listen(path)
    refuses("passed 2 sockets; tierd takes one", {}, [right.fileno(), elsewhere.fileno()])
    refuses("that the service manager promised cannot be taken", {"LISTEN_FDS": "many"}, [right.fileno()])
    assert os.path.exists(path)


globals()[sys.argv[1]]()
