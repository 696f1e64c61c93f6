"""What tierctl shows fits into the columns that there are: those of $COLUMNS, else of the terminal, else 80; with --wide it has all."""
import fcntl
import json
import os
import pty
import struct
import subprocess
import termios

import messages
from messages import BLOB_WRITE, GATHER, STEP, Client, data, number

TIERCTL, SCRATCH, FOLDER = os.environ["TIERCTL"], os.environ["SCRATCH"], os.environ["FOLDER"]
JOB = "j" * 62
UNIT = "a-unit-" + "u" * 110
FILE = f"{SCRATCH}/{'f' * 120}.safetensors"
PLAN = ["--parameters", "1.3B", "--host", "2G", "--nvme", "1900M"]

SHOWING = {
    "status": [[]], "jobs": [[], [JOB]], "units": [[JOB]], "tensors": [[JOB]], "blobs": [[JOB]], "snapshots": [[JOB]], "leases": [[]],
    "tiers": [[]], "scrub": [[]], "top": [["--once", "--interval", "0.1"]], "inspect": [[FILE]], "ping": [[]], "doctor": [["--quick"]],
    "plan": [[*PLAN, "--world-size", "1"], [*PLAN, "--world-size", "300", "--step-ms", "100", "--stage", "3"],
             ["--layers", "4", "--blobs", "1G", "--durability", "none", "--pushed-once", "--moments", "int8"]],
}
# They change something, write values, lines of a log, a format of others or a file, or have a test of their own.
OTHERS = {
    "config", "diff", "drain", "drop", "evict", "export", "fork", "help", "import", "metrics", "read", "release", "reserve", "retain",
    "rollback", "share", "snapshot", "trace", "verify", "watch",
}


def tierctl(*arguments, columns=None, status=(0,)):
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    if columns:
        environment["COLUMNS"] = str(columns)
    result = subprocess.run([TIERCTL, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode in status, (arguments, result)
    return result.stdout


def in_terminal(columns, *arguments):
    """As a terminal of that width shows it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    with subprocess.Popen([TIERCTL, *arguments], env=environment, stdout=theirs) as process:
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 65536):
                text += part
        except OSError:  # the other end is closed
            pass
        assert process.wait() == 0, arguments
    os.close(ours)
    return text.decode().replace("\r\n", "\n")


def widest(text):
    return max(map(len, text.splitlines()))


def make_job(client):
    """Its names are as long as names may be, and there is something to show of everything."""
    code, text, opened = client.call(
        messages.OPEN,
        data(1, JOB) + number(3, 1) + number(4, 3) + number(5, 0) + number(12, 2) + number(14, 1) + number(140, 1) + number(161, 1 << 20),
    )
    assert code == 0, text
    for unit in range(3):
        code, text, _ = messages.define(client, opened[1], f"{UNIT}{unit}", 1000)
        assert code == 0, text
    code, text, ready = client.call(messages.READY, number(1, opened[1]) + number(2, 20000))
    assert code == 0, text
    member = number(1, opened[1]) + number(2, ready[3])
    for field, body in (
        (BLOB_WRITE, member + data(3, "k" * 64) + number(5, 100) + number(7, 100)),
        (STEP, member + data(3, messages.rates())),
        (GATHER, member + number(3, 0)),
    ):
        code, text, _ = client.call(field, body)
        assert code == 0, text
    tierctl("snapshot", JOB, "s" * 63)


def make_file():
    header = json.dumps({f"{UNIT}.{i}": {"dtype": "F32", "shape": [10, 10], "data_offsets": [400 * i, 400 * i + 400]} for i in range(3)})
    header += " " * (-len(header) % 8)
    with open(FILE, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header.encode() + bytes(1200))


def every_verb_is_known():
    verbs = {line.split()[0] for line in tierctl("help").split("\n\n")[1].splitlines() if line[2] != " "}
    assert not verbs - set(SHOWING) - OTHERS, f"{verbs - set(SHOWING) - OTHERS}: do they show a table?"


def nothing_is_wider_than_80(verb, arguments):
    for columns in (80, None, "none"):
        text = tierctl(verb, *arguments, columns=columns, status=(0, 1) if verb == "doctor" else (0,))
        assert len(text.splitlines()) > 1 or verb in ("ping", "blobs"), (verb, text)
        assert widest(text) <= 80, (verb, arguments, text)


def what_is_left_out_is_told_and_there_when_asked_for():
    narrow, wide = tierctl("jobs", columns=80), tierctl("jobs", "--wide", columns=80)
    titles = wide.splitlines()[0]
    assert JOB not in narrow and "jjj…jjj" in narrow and JOB in wide, (narrow, wide)
    assert "IO WEIGHT" in titles and "IO WEIGHT" not in narrow and "left out" not in wide
    left_out = sum(title not in narrow.splitlines()[0] for title in titles.split("  ") if title)
    assert f"({left_out} columns are left out; --wide shows all)" == narrow.splitlines()[-1], narrow
    # What is not too long stays whole.
    assert "STATUS" in narrow and "training" in narrow
    assert FOLDER in tierctl("tiers", "--wide") and FOLDER[-8:] in tierctl("tiers", columns=80)


def a_verdict_stays_whole():
    text = tierctl("plan", *PLAN, "--world-size", "1", columns=80)
    assert "no: host, NVMe\n" in text and "…" not in text, text


def a_terminal_is_used():
    narrow = tierctl("jobs", columns=80)
    for columns in (48, 120, 200):
        text = in_terminal(columns, "jobs")
        assert widest(text) <= columns, (columns, text)
        assert (len(text.splitlines()[0]) > len(narrow.splitlines()[0])) == (columns > 80), (columns, text)
    assert widest(in_terminal(300, "jobs", "--wide")) > 220
    # What somebody asks for counts.
    assert tierctl("jobs", columns=120) == in_terminal(120, "jobs")


every_verb_is_known()
make_file()
CLIENT = Client()
make_job(CLIENT)
for VERB, USES in SHOWING.items():
    for USE in USES:
        nothing_is_wider_than_80(VERB, USE)
what_is_left_out_is_told_and_there_when_asked_for()
a_verdict_stays_whole()
a_terminal_is_used()
CLIENT.close()
