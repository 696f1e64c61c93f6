"""Plays the journal for a daemon: what is in the fields of its lines. journal.py USER_JOB TIERD FLAG…

Runs in a mount namespace of its own, where /run is empty.
"""
import os
import signal
import socket
import struct
import subprocess
import sys


LOG = os.environ["SCRATCH"] + "/stderr"
os.makedirs("/run/systemd/journal")
journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
journal.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
journal.bind("/run/systemd/journal/socket")
journal.settimeout(30)


def parse(entry):
    """The journal's own format: KEY=value, or KEY, a length, and as many bytes."""
    fields = {}
    while entry:
        line, _, rest = entry.partition(b"\n")
        key, separator, value = line.partition(b"=")
        if not separator:
            (length,) = struct.unpack("<Q", rest[:8])
            value, rest = rest[8:8 + length], rest[9 + length:]
        assert key.decode() not in fields, entry
        fields[key.decode()] = value.decode()
        entry = rest
    return fields


def await_entry(text):
    while True:
        fields = parse(journal.recv(1 << 20))
        assert fields["SYSLOG_IDENTIFIER"] == "tierd", fields
        if text in fields["MESSAGE"]:
            return fields


def start(stream=None):
    """stream: the one that systemd has connected to the journal, which need not be that of stderr."""
    with open(LOG, "wb") as log:
        status = os.fstat(log.fileno())
        environment = {**os.environ, "JOURNAL_STREAM": stream or f"{status.st_dev}:{status.st_ino}"}
        return subprocess.Popen(sys.argv[2:], env=environment, stderr=log)


def read_log():
    with open(LOG, encoding="utf-8") as log:
        return log.read()


def end(daemon):
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(30) == 0


def run_rank(*words):
    return subprocess.Popen([sys.argv[1], *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def lines_have_fields():
    daemon = start()
    ready = await_entry("listening at")
    assert ready["PRIORITY"] == "6" and "TIERD_JOB" not in ready and "MESSAGE_ID" not in ready, ready

    # It is for all users, as in a group of theirs.
    os.chmod(os.environ["TIERD_SOCKET"], 0o666)
    rank = run_rank("uid=60001", "job=gpt", "steps=2", "units=2", "mib=2")
    assert rank.stdout.readline() == "ready\n"
    # The first write after the four superblocks fails, and goes elsewhere.
    failed = await_entry("falling back to another place")
    assert failed["TIERD_JOB"] == "gpt" and failed["TIERD_TIER"] == "nvme", failed
    assert failed["TIERD_DEVICE"].endswith(".store") and failed["PRIORITY"] == "4", failed
    begun = await_entry("parameters in 2 units")
    assert begun["TIERD_JOB"] == "gpt" and begun["TIERD_USER"] == "60001", begun
    rank.kill()
    rank.wait()
    ended = await_entry("epoch 1 ends at step 2")
    assert ended["TIERD_JOB"] == "gpt" and ended["TIERD_USER"] == "60001" and ended["TIERD_STEP"] == "2", ended
    assert len(ended["MESSAGE_ID"]) == 32 and ended["PRIORITY"] == "6", ended

    end(daemon)
    await_entry("ended")
    assert read_log() == "", "lines are there twice"


def a_redirected_stderr_is_no_journal():
    daemon = start(stream="1:2")
    while "listening at" not in read_log():
        assert daemon.poll() is None
    end(daemon)
    assert "\ntierd: ended\n" in read_log()
    journal.setblocking(False)
    try:
        raise AssertionError(journal.recv(4096))
    except BlockingIOError:
        pass


lines_have_fields()
a_redirected_stderr_is_no_journal()
