#!/usr/bin/env python3
"""Runs tierd in its sandbox, and a trainer outside: sandbox.py GPT UID:GID SANDBOX FLAG…"""
import filecmp
import os
import subprocess
import sys

from manager import LOG, SCRATCH, Manager

gpt, trainer, sandbox = sys.argv[1], sys.argv[2].split(":"), sys.argv[3:]
results = f"{SCRATCH}/results"
# The daemon's user may notify, as any service's user may.
os.umask(0)
os.mkdir(results)
os.chown(results, int(trainer[0]), -1)


def train(dump, *flags):
    subprocess.run(
        ["setpriv", f"--reuid={trainer[0]}", f"--regid={trainer[1]}", "--clear-groups", gpt, "--layers", "2", "--width",
         "64", "--heads", "2", "--context", "32", "--batch", "2", "--steps", "6", "--ranks", "2", "--stage", "3",
         "--log-every", "0", "--threads", "1", "--data", f"{SCRATCH}/bin/numerics.md", "--dump", f"{results}/{dump}",
         *flags], check=True, stdout=subprocess.DEVNULL)


def text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


# What is /run for the daemon lies here.
with Manager(sandbox, {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "200000"}, path=f"{SCRATCH}/run/notify") as manager:
    manager.await_ready()
    proc = f"/proc/{manager.process.pid}"
    assert "Seccomp:\t2" in text(f"{proc}/status") and "CapEff:\t0000000000000000" in text(f"{proc}/status")

    train("sandboxed", "--parameters-on", "nvme", "--optimizer-on", "nvme")
    assert "memfd:" in text(f"{proc}/maps")
    huge = sum(int(line.split()[1]) for line in text(f"{proc}/smaps").splitlines()
               if line.startswith(("AnonHugePages:", "ShmemPmdMapped:")))
    print(f"huge pages: {huge // 1024} MiB")
    train("plain", "--no-tierd")
    assert filecmp.cmp(f"{results}/sandboxed", f"{results}/plain", shallow=False), "not the same bits"
    status = subprocess.run([os.environ["TIERCTL"], "status"], check=True, capture_output=True, text=True).stdout
    assert "io engine  io_uring" in status, status

    manager.await_alive()
    with open(f"{SCRATCH}/etc/tierd/tierd.conf", "a", encoding="utf-8") as configuration:
        configuration.write("[limits]\nconnections = 7\n")
    manager.process.send_signal(1)
    while "RELOADING" not in manager.next():
        pass
    manager.await_ready()
    manager.end()

log = text(LOG)
assert "connections in [limits] is 7 from now on" in log, log
# Where the launcher may not raise a limit (it says so), the daemon warns of the one that it has.
worries = [line for line in log.splitlines() if ("warning" in line or "error" in line)
           and "RLIMIT_MEMLOCK" not in line and "LimitNOFILE" not in line]
assert not worries, worries
assert not os.path.exists(os.environ["TIERD_SOCKET"])
