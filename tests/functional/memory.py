"""The daemon's memory."""
import os


def daemon_file(name):
    with open(f"/proc/{os.environ['TIERD_PID']}/{name}", encoding="utf-8") as file:
        return file.read()


def private_bytes():
    """That the daemon has for itself."""
    fields = dict(line.split(":", 1) for line in daemon_file("smaps_rollup").splitlines()[1:])
    return sum(int(fields[name].split()[0]) for name in ("Private_Dirty", "Private_Clean")) << 10


def is_sanitized():
    """By its shadow memory. What is freed is kept for long then, and leaks are the sanitizer's to find."""
    return int(daemon_file("status").split("VmSize:")[1].split()[0]) > 1 << 30
