#!/usr/bin/env python3
"""What tierctl shows of a GPU while a job uses it, where stand-ins play GPU, driver and NVML.

gpu_status.py PEER    a process with events on the GPU (tests/unit/gpu/gpu_peer.h); TIERCTL names tierctl"""
import json
import os
import signal
import socket
import subprocess
import sys

import messages
from messages import GPU_ATTACH, GPU_GATHER, GPU_GRADIENTS, READY, STEP, data, number, rates
from waiting import wait_until

UUID = "GPU-7374616e-642d-696e-2047-505500000000"
ELEMENTS, UNITS, EVENTS = 1 << 20, 2, 32
UNIT_BYTES = 2 * ELEMENTS * 4  # of both, in fp32
GRADIENTS = 1 << 24  # the room of the rank
BUDGET = UNIT_BYTES + GRADIENTS


def tierctl(*arguments):
    result = subprocess.run([os.environ["TIERCTL"], *arguments], capture_output=True, text=True)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    return result.stdout


def asked(*arguments):
    return json.loads(tierctl("--json", *arguments))


class Peer:
    def __init__(self):
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen([sys.argv[1], str(theirs.fileno())], pass_fds=[theirs.fileno()])
        theirs.close()
        self.socket = ours
        self.events = [ours.recv(64, socket.MSG_WAITALL) for _ in range(EVENTS)]

    def end(self):
        self.process.kill()
        self.process.wait()
        self.socket.close()


def call(client, field, body):
    code, text, reply = client.call(field, body)
    assert code == 0, text
    return reply


def train(client):
    """A job of some units; the fields of a request that names it."""
    opened = messages.open_job(client, "gpt", room=GRADIENTS)
    assert opened[0] == 0, opened
    job = opened[2][1]
    for unit in range(UNITS):
        assert messages.define(client, job, f"u{unit}", ELEMENTS)[0] == 0
    return number(1, job) + number(2, call(client, READY, number(1, job) + number(2, 20000))[3])


def attach(client, member, peer):
    uuid = bytes.fromhex(UUID[4:].replace("-", ""))
    call(client, GPU_ATTACH, member + data(3, uuid) + number(4, BUDGET) + b"".join(data(5, event) for event in peer.events))


def nothing_is_shown_where_no_job_uses_a_gpu(client):
    member = train(client)
    assert asked("status")["gpus"] == [] and "GPU" not in tierctl("status")
    [job] = asked("jobs")
    assert job["gpus"] == [] and job["gpu_energy_joules"] == job["gpu_energy_steps"] == 0
    assert "GPU" not in tierctl("jobs") and "GPU" not in tierctl("jobs", "gpt")
    look = asked("top", "--once", "--interval", "0.1")
    assert look["node"]["gpus"] == [] and look["jobs"][0]["gpu_bytes"] == 0
    assert look["jobs"][0]["gpu_joules_per_step"] is None
    assert "GPU" not in tierctl("top", "--once", "--interval", "0.1") and "tierd_gpu_" not in tierctl("metrics")
    return member


def a_trace_shows_copies(client, member):
    with subprocess.Popen([os.environ["TIERCTL"], "trace", "gpt", "--output", "-"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as tracer:
        tracer.stderr.readline()
        for unit in range(2):
            call(client, GPU_GATHER, member + number(3, unit) + number(5, 1))
        status_shows_the_gpu()
        tracer.send_signal(signal.SIGINT)
        trace, _ = tracer.communicate()
    copies = [event for event in json.loads(trace)["traceEvents"] if event.get("cat") == "GPUs"]
    assert [copy["name"] for copy in copies] == ["gather: u0", "gather: u1"], copies
    for unit, copy in enumerate(copies):
        assert copy["args"] == {"kind": "gather", "unit": f"u{unit}", "bytes": ELEMENTS * 4, "stream": "GPU 0"} and copy["dur"] > 0, copy


def status_shows_the_gpu():
    def is_seen():
        """A gather is answered before its copy has ended."""
        [gpu] = asked("status")["gpus"]
        return gpu["energy_joules"] is not None and gpu["from_host_bytes"] == UNIT_BYTES

    wait_until(is_seen)
    [gpu] = asked("status")["gpus"]
    assert gpu.pop("from_host_seconds") > 0
    assert gpu == {
        "number": 0, "name": "stand-in", "bus": "0000:17:00.0", "uuid": UUID, "is_lost": False, "bytes": 1 << 30,
        "held_bytes": BUDGET, "from_host_bytes": UNIT_BYTES, "to_host_bytes": 0, "to_host_seconds": 0, "used_bytes": 2 << 30,
        "busy_percent": 37, "temperature_celsius": 51, "power_watts": 123.456, "energy_joules": 5000,
    }, gpu
    titles, row = tierctl("status").splitlines()[-2:]
    assert titles.split()[:2] == ["GPU", "HELD"], titles
    assert row.split()[:9] == "0 24.0 MiB 2.00 GiB 1.00 GiB 8.00 MiB".split(), row
    assert row.split()[11:] == "0 B - 37 % 51 °C 123 W stand-in at 0000:17:00.0".split(), row


def jobs_show_what_they_have_there():
    [job] = asked("jobs")
    assert job["gpus"] == [{"number": 0, "uuid": UUID, "parameter_bytes": UNIT_BYTES, "gradient_bytes": GRADIENTS, "update_bytes": 0, "state_bytes": 0}], job["gpus"]
    titles, row = tierctl("jobs").splitlines()[-2:]
    assert titles.split()[-1] == "GPUS" and row.split()[-2:] == ["24.0", "MiB"], row
    titles, row = tierctl("jobs", "gpt").splitlines()[-2:]
    assert titles.split() == ["GPU", "PARAMETERS", "GRADIENTS", "UPDATES", "STATE", "UUID"], titles
    assert row.split() == ["0", "8.00", "MiB", "16.0", "MiB", "0", "B", "0", "B", UUID], row


def top_shows_both():
    look = asked("top", "--once", "--interval", "0.1")
    [gpu] = look["node"]["gpus"]
    assert gpu == {
        "number": 0, "uuid": UUID, "bytes": 1 << 30, "held_bytes": BUDGET, "from_host_bytes_per_second": 0,
        "to_host_bytes_per_second": 0, "used_bytes": 2 << 30, "busy_percent": 37, "temperature_celsius": 51,
        "power_watts": 123.456, "energy_joules": 5000,
    }, gpu
    assert look["jobs"][0]["gpu_bytes"] == BUDGET
    lines = tierctl("top", "--once", "--interval", "0.1").splitlines()
    assert any(line.split() == "STALLS NVME READ SLOT STEP GRADIENT BUFFER GPU".split() for line in lines), lines
    assert any(line.split()[:1] == ["0"] and line.split()[-1] == UUID and " 51 °C " in line for line in lines), lines
    assert lines[-2].split()[-2:] == ["GPUS", "J/STEP"] and lines[-1].split()[-3:] == ["24.0", "MiB", "-"], lines


def metrics_have_them():
    lines = tierctl("metrics").splitlines()
    for name, value in [
        ("memory_bytes", 1 << 30), ("held_bytes", BUDGET), ("used_bytes", 2 << 30), ("from_host_bytes_total", UNIT_BYTES),
        ("to_host_bytes_total", 0), ("busy_ratio", 0.37), ("temperature_celsius", 51), ("power_watts", 123.456),
        ("energy_joules_total", 5000),
    ]:
        [line] = [line for line in lines if line.startswith(f"tierd_gpu_{name}{{")]
        assert line.split()[0] == f'tierd_gpu_{name}{{gpu="{UUID}"}}' and abs(float(line.split()[1]) - value) < 1e-6, line
    assert any(line.startswith("tierd_job_gpu_bytes{") and line.endswith(f" {BUDGET}") for line in lines)


def leases_are_shown_where_they_are():
    assert [(lease["unit"], lease["rank"], lease["count"], lease["gpu"]) for lease in asked("leases")] == [(0, 0, 1, 0), (1, 0, 1, 0)]
    titles, *rows = tierctl("leases").splitlines()
    assert titles.split()[5] == "MEMORY" and [row.split()[5:8] for row in rows] == [["GPU", "0", "1"]] * 2, rows


def mistakes_cost_their_client_alone(client, member, peer):
    """A client that closes what it was given, wants it again, and asks for what is there."""
    client.drop_descriptors()
    uuid = bytes.fromhex(UUID[4:].replace("-", ""))
    code, text, _ = client.call(GPU_ATTACH, member + data(3, uuid) + b"".join(data(5, event) for event in peer.events))
    assert code != 0 and "rank 0 has asked for a GPU already" in text, (code, text)
    for unit in range(UNITS):
        call(client, GPU_GATHER, member + number(3, unit) + number(5, 1))
    assert [lease["count"] for lease in asked("leases")] == [2, 2]


def energy_comes_with_steps(client, member):
    def is_counted():
        call(client, STEP, member + data(3, rates()))
        return asked("jobs")[0]["gpu_energy_steps"] > 0

    # Two looks at the counter, which the stand-in leaves as it is, are needed, with a step between them.
    wait_until(is_counted)
    [job] = asked("jobs")
    assert job["gpu_energy_joules"] == 0 and job["gpu_energy_steps"] <= job["step"], job
    assert "its GPUs, with all who use them: 0.00 J for each of its steps" in tierctl("jobs", "gpt")


client, peer = messages.Client(), Peer()
member = nothing_is_shown_where_no_job_uses_a_gpu(client)
attach(client, member, peer)
call(client, GPU_GRADIENTS, member)
a_trace_shows_copies(client, member)
jobs_show_what_they_have_there()
top_shows_both()
metrics_have_them()
leases_are_shown_where_they_are()
mistakes_cost_their_client_alone(client, member, peer)
energy_comes_with_steps(client, member)
client.close()
wait_until(lambda: asked("status")["gpus"] == [])
assert "GPU" not in tierctl("status")
peer.end()
