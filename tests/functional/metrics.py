#!/usr/bin/env python3
"""What tierctl metrics says, and that a parser of Prometheus' text can take it; and what tierctl top shows.

metrics.py PROGRAM    a rank that trains (user_job.c); TIERCTL names tierctl"""
import json
import os
import re
import signal
import subprocess
import time

from cutting_proxy import Line, listen
from users import Rank

DAEMON = int(os.environ["TIERD_PID"])
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"')
LINE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")


def tierctl(*arguments):
    result = subprocess.run([os.environ["TIERCTL"], *arguments], capture_output=True, text=True)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    return result.stdout


def unescape(value):
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], value)


def parse(text):
    """Samples by name and labels; each metric's help and type come before its samples, which stand together."""
    samples, metric, helped, done = {}, None, None, set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped = line.split()[2]
            assert helped not in done, line
            done.add(helped)
        elif line.startswith("# TYPE "):
            _, _, metric, kind = line.split()
            assert metric == helped and kind == ("counter" if metric.endswith("_total") else "gauge"), line
        else:
            name, labels, value = LINE.fullmatch(line).groups()
            assert name == metric, line
            pairs = LABEL.findall(labels or "")
            assert ",".join(f'{key}="{value}"' for key, value in pairs) == (labels or ""), line
            key = (name, *(f"{key}={unescape(value)}" for key, value in pairs))
            assert key not in samples, line
            samples[key] = float(value)
    return samples


def rank(**keys):
    return Rank(os.getuid(), **keys).ready()


def shown_as(number, path):
    """There is not room for all of a long one."""
    return path if len(path) < 88 else f"{number}:…{path[-80:]}"


def figures_of_a_job_and_of_the_node():
    before = parse(tierctl("metrics"))
    assert before["tierd_jobs",] == 0 and before["tierd_steps_total",] == 0
    assert not any(key[0].startswith("tierd_job_") for key in before)
    process = rank(job="gpt", steps=3)
    now = parse(tierctl("metrics"))
    user = next(label for key in now for label in key if label.startswith("user="))
    job = (user, "job=gpt")
    assert now["tierd_jobs",] == 1 and now["tierd_clients",] == 2
    assert now["tierd_job_step", *job] == 3 and now["tierd_job_steps_total", *job] == 3
    assert now["tierd_job_ranks", *job] == now["tierd_job_world_size", *job] == 1
    assert now["tierd_steps_total",] == 3 and now["tierd_epochs_total",] == 1
    for name in ("gathers_total", "gather_misses_total", "pushes_total", "step_seconds_total"):
        assert now["tierd_job_" + name, *job] == now["tierd_" + name,]
    written = now["tierd_job_io_bytes_total", *job, "kind=update", "direction=written"]
    assert written > 0 and written == now["tierd_io_bytes_total", "kind=update", "direction=written"]
    path = "path=" + shown_as(0, os.environ["NVME"])
    assert now["tierd_path_capacity_bytes", path] == 1 << 30
    assert now["tierd_workers",] == json.loads(tierctl("--json", "status"))["workers"]
    assert now["tierd_workers_busy_seconds_total",] > 0 and now["tierd_loop_busy_seconds_total",] > 0
    assert 0 < now["tierd_path_busy_seconds_total", path] < now["tierd_uptime_seconds",] + 1
    # Over both paths.
    assert sum(value for key, value in now.items() if key[0] == "tierd_path_written_bytes_total") >= written
    assert 0 <= now["tierd_heartbeat_age_seconds",] < now["tierd_uptime_seconds",] + 1
    process.leave()
    shown = {(s["name"], *(f"{k}={v}" for k, v in s["labels"].items())): s["value"]
             for s in json.loads(tierctl("--json", "metrics"))}
    assert set(shown) == set(now) and shown["tierd_job_step", *job] == 3
    return now


def counters_stay_when_their_job_goes(before):
    tierctl("drop", "gpt", "--yes")
    now = parse(tierctl("metrics"))
    assert not any(key[0].startswith("tierd_job_") for key in now)
    for key, value in before.items():
        if key[0].endswith("_total") and not key[0].startswith("tierd_job_"):
            assert now[key] >= value, key


def names_are_escaped():
    path = shown_as(1, os.environ["NVME"] + '/a"b\\c')
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    text = tierctl("metrics")
    assert f'tierd_path_used_bytes{{path="{escaped}"}}' in text
    assert ("tierd_path_used_bytes", "path=" + path) in parse(text)
    shown = json.loads(tierctl("--json", "metrics"))
    assert path in {sample["labels"].get("path") for sample in shown}


def a_daemon_that_is_stopped_still_shows_its_figures():
    process = rank(job="gpt", steps=2)
    turning = parse(tierctl("metrics"))
    os.kill(DAEMON, signal.SIGSTOP)
    try:
        # Before its silence is long enough to be one it is asked, and does not answer; then it is not asked.
        for _ in range(2):
            stuck = parse(tierctl("metrics"))
        assert stuck["tierd_heartbeat_age_seconds",] >= 2
        assert stuck["tierd_jobs",] == 1 and stuck["tierd_steps_total",] == turning["tierd_steps_total",]
        assert not any(key[0].startswith("tierd_job_") for key in stuck)
    finally:
        os.kill(DAEMON, signal.SIGCONT)
    process.leave()
    now = parse(tierctl("metrics"))
    assert now["tierd_heartbeat_age_seconds",] < 2 and ("tierd_job_step" in {key[0] for key in now})


def no_device_limits_a_daemon_that_has_nothing_to_do():
    """Its loop gets no processor where others have all of them."""
    for command, node in (["status"], lambda said: said), (["top", "--once"], lambda said: said["node"]):
        said = node(json.loads(tierctl("--json", *command)))
        assert said["limit"] == ("neither" if said["loop_busy_fraction"] < 0.9 else "processors"), said
        assert said["workers_busy_fraction"] < 0.9 and said["nvme"][0]["busy_fraction"] < 0.9, said
        [line] = [line for line in tierctl(*command).splitlines() if line.startswith("limit ")]
        assert line.split(maxsplit=1)[1].startswith(("neither (no rank is there)", "processors (the loop ")), line


def top_shows_node_and_jobs():
    process = rank(job="gpt", steps=2)
    text = tierctl("top", "--once")
    assert f"pid {DAEMON}," in text and "HAS NOT TURNED" not in text and "\033" not in text
    assert shown_as(0, os.environ["NVME"]) in text and "\nSTALLS     NVME READ  SLOT  STEP  GRADIENT BUFFER\n" in text
    assert "\nrates    of the last " in text
    titles, row = text.splitlines()[-2:]
    assert titles.split()[0] == "JOB" and row.split()[0] == "gpt" and row.split()[2:5] == ["training", "1/1", "2"]
    # It comes after a step, while there is memory.
    while "100 % of its optimizer's state kept in memory (" not in tierctl("jobs", "gpt"):
        time.sleep(0.02)
    while json.loads(tierctl("top", "--once", "--json"))["jobs"][0]["kept_fraction"] < 1:
        time.sleep(0.02)
    row = tierctl("top", "--once").splitlines()[-1]
    assert "  100 %  " in row and " KEPT " in titles, (titles, row)
    process.leave()
    tierctl("drop", "gpt", "--yes")


def top_knows_what_is_not_durable():
    process = rank(job="gpt", steps=2, durability="none")
    titles, row = tierctl("top", "--once").splitlines()[-2:]
    assert titles.split()[5] == "DURABLE" and row.split()[5] == "no", (titles, row)
    shown = json.loads(tierctl("top", "--once", "--json"))["jobs"][0]
    assert shown["step"] == 2 and shown["durable_step"] is None, shown
    process.leave()
    tierctl("drop", "gpt", "--yes")


def top_goes_on_while_the_daemon_is_stopped():
    process = rank(job="gpt", steps=2)
    top = subprocess.Popen(
        [os.environ["TIERCTL"], "top", "--interval", "0.1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )

    def await_lines(*starts):
        """Of one look, and in this order."""
        for start in starts:
            while not (line := top.stdout.readline()).startswith(start):
                assert line, f"top ended before it said {start}"

    await_lines("tierd at ", "jobs ", "gpt ")
    os.kill(DAEMON, signal.SIGSTOP)
    try:
        await_lines(*("THE DAEMON HAS NOT TURNED FOR ", "gpt ") * 2)
        text = tierctl("top", "--once")
        assert "THE DAEMON HAS NOT TURNED FOR " in text, text
    finally:
        os.kill(DAEMON, signal.SIGCONT)
    # Connected again, it shows the job that is new.
    other = rank(job="other", steps=1)
    await_lines("other ")
    top.terminate()
    top.wait()
    top.stdout.close()
    for one, job in (process, "gpt"), (other, "other"):
        one.leave()
        tierctl("drop", job, "--yes")


class LineOfRequests(Line):
    """Ends before a request goes to the daemon, and so does each line after it."""

    def __init__(self, client, left):
        self.left = left
        super().__init__(client, os.environ["TIERD_SOCKET"])

    def split(self, source, data):
        if source is self.client:
            self.left[0] -= 1
            if self.left[0] < 0:
                raise EOFError
        yield data


def top_keeps_the_jobs_wherever_its_connection_ends():
    ranks = [rank(job=job, steps=1) for job in ("gpt", "other")]
    for requests in range(7, 13):
        path, left = f"{os.environ['SCRATCH']}/line-{requests}", [requests]
        listen(path, lambda client, left=left: LineOfRequests(client, left))
        top = subprocess.Popen(
            [os.environ["TIERCTL"], "--socket", path, "--json", "top", "--interval", "0.1"], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        # It looks again and again after the end.
        while left[0] >= -2:
            look = json.loads(top.stdout.readline())
            assert [job["name"] for job in look["jobs"]] == ["gpt", "other"], (requests, look)
        top.terminate()
        top.wait()
        top.stdout.close()
    for each, job in zip(ranks, ("gpt", "other"), strict=True):
        each.leave()
        tierctl("drop", job, "--yes")


def top_tells_programs_a_look_a_line():
    process = rank(job="gpt", steps=2)
    top = subprocess.Popen(
        [os.environ["TIERCTL"], "--json", "top", "--interval", "0.1"], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )
    first, second = json.loads(top.stdout.readline()), json.loads(top.stdout.readline())
    node, [job] = first["node"], first["jobs"]
    assert node["pid"] == DAEMON and not node["is_stuck"] and node["jobs"] == 1
    assert node["nvme"][0]["path"] == shown_as(0, os.environ["NVME"]) and 0 < node["seconds"] < node["uptime_ms"] / 1000
    assert set(node["io"]) == {"demand", "prefetch", "update", "write_back", "gradient"}
    assert set(node["stalled_seconds_per_second"]) == {"nvme_read", "slot", "step", "gradient_buffer", "gpu"}
    assert job["name"] == "gpt" and job["status"] == "training" and job["step"] == 2
    assert job["ranks"] == job["world_size"] == 1 and job["host_bytes"] > 0
    # What was done before it looked is no rate, of the first look either.
    for look in first, second, json.loads(tierctl("top", "--once", "--json")):
        node, [job] = look["node"], look["jobs"]
        assert node["steps_per_second"] == job["steps_per_second"] == job["gathers_per_second"] == 0, look
        assert job["hit_rate"] is None and set(job["io"]) == set(node["io"])
    os.kill(DAEMON, signal.SIGSTOP)
    try:
        while not (look := json.loads(top.stdout.readline()))["node"]["is_stuck"]:
            pass
        assert look["node"]["silent_ms"] >= 2000 and [job["name"] for job in look["jobs"]] == ["gpt"]
        look = json.loads(tierctl("top", "--once", "--json"))
        assert look["node"]["is_stuck"] and look["node"]["jobs"] == 1 and look["jobs"] == []
        # It has not turned between two looks: nobody knows its rates.
        assert look["node"]["seconds"] == 0 and look["node"]["steps_per_second"] is None, look
        assert look["node"]["limit"] is look["node"]["nvme"][0]["busy_fraction"] is None, look
        text = tierctl("top", "--once")
        assert "rates    not known" in text and "\nlimit " not in text, text
    finally:
        os.kill(DAEMON, signal.SIGCONT)
    top.terminate()
    top.wait()
    top.stdout.close()
    process.leave()
    tierctl("drop", "gpt", "--yes")


before = figures_of_a_job_and_of_the_node()
counters_stay_when_their_job_goes(before)
names_are_escaped()
no_device_limits_a_daemon_that_has_nothing_to_do()
top_shows_node_and_jobs()
top_knows_what_is_not_durable()
top_goes_on_while_the_daemon_is_stopped()
top_keeps_the_jobs_wherever_its_connection_ends()
top_tells_programs_a_look_a_line()
a_daemon_that_is_stopped_still_shows_its_figures()
