"""A daemon that dies at a transfer that it was told, under a trainer: kills.py GPT [SCENARIO FAULT...]

Without a scenario all of one job's life; replacements: all of a job that is replaced.

$SCRATCH and $NVME are folders of its own, $TIERD_SOCKET is where the daemons listen. $TIERD_KILLS_FLAGS and
$TIERD_KILLS_DAEMON are flags of trainer and daemon, beside their usual ones.
"""
import contextlib
import itertools
import os
import re
import select
import shutil
import signal
import subprocess
import sys

SCRATCH, NVME = os.environ["SCRATCH"], os.environ["NVME"]
STRIDE = int(os.environ.get("TIERD_KILLS_STRIDE", "0"))
OUTPUT = f"{SCRATCH}/gpt"
STEPS = 6
# Writes before the first step: each of them is tried.
FIRST = 20
PATIENCE_MS = 60000


def daemon(fault, log):
    command = [os.environ["TIERD"], "--socket", os.environ["TIERD_SOCKET"], "--state-dir", f"{SCRATCH}/state"]
    command += ["--host-budget", "256M", "--nvme", f"{NVME}:1G", "--workers", "2", "--log-level", "debug", "--file-system", "memory"]
    command += os.environ.get("TIERD_KILLS_DAEMON", "").split()
    return subprocess.Popen(command + (["--fault", fault] if fault else []), stderr=log)


def trainer(output, *flags):
    command = [sys.argv[1], "--layers", "1", "--width", "32", "--heads", "2", "--context", "16", "--batch", "1"]
    command += ["--threads", "1", "--log-every", "0", "--data", f"{SCRATCH}/data", "--job", "killed"]
    command += os.environ.get("TIERD_KILLS_FLAGS", "").split()
    return subprocess.Popen(
        [*command, *flags],
        env={**os.environ, "TIERD_RECONNECT_MS": str(PATIENCE_MS)},
        stdout=output,
        stderr=output,
    )


def await_end(*processes, patience_ms=None):
    """Of one of them, the first that has ended; None: they go on for so long."""
    descriptors = [os.pidfd_open(process.pid) for process in processes]
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    ended = poll.poll(PATIENCE_MS if patience_ms is None else patience_ms)
    for descriptor in descriptors:
        os.close(descriptor)
    assert ended or patience_ms is not None, "neither the daemon nor the trainer ends"
    return processes[descriptors.index(ended[0][0])] if ended else None


def was_killed(process):
    """Of a daemon that has ended, or is told to."""
    assert process.wait(PATIENCE_MS / 1000) in (0, -signal.SIGKILL), f"tierd ends with {process.returncode}"
    return process.returncode != 0


def train_through(faults, start, log):
    """Of a trainer that start() starts, under one daemon after the other; how many of them were killed."""
    count, tierd = 0, daemon(next(faults), log)
    trainee = start()
    try:
        while await_end(tierd, trainee) is tierd:
            assert was_killed(tierd), "tierd has ended by itself"
            count += 1
            tierd = daemon(next(faults), log)
        assert trainee.wait() == 0, f"the trainer ends with {trainee.returncode}: {content(OUTPUT)[-800:].decode()}"
        tierd.terminate()
        return count + was_killed(tierd)
    finally:
        for process in (trainee, tierd):
            process.kill()
            process.wait()


def gpt_to(dump, output):
    """Of all steps."""
    return lambda: trainer(output, "--steps", str(STEPS), "--dump", dump)


def check_log(path):
    """What one daemon says is durable the next one has."""
    durable = 0
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            said = re.search(r": step (\d+) is durable", line)
            back = re.search(r"it is back at step (\d+), its last durable one", line)
            if said:
                durable = int(said[1])
            if back:
                assert int(back[1]) >= durable, f"step {durable} was durable: {line}"
                durable = int(back[1])
            assert "cannot be opened" not in line and "does not come back" not in line, line
    return durable


def content(path):
    with open(path, "rb") as file:
        return file.read()


def forget_list():
    """What is on the disk is what there is."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(f"{SCRATCH}/state/jobs")


def forget():
    """Nothing but the job's own file is left, and that goes."""
    for folder, _, files in os.walk(NVME):
        for file in files:
            if file != "mark":
                assert file.endswith(".store"), file
                os.remove(f"{folder}/{file}")
    forget_list()


def run(faults, expected):
    """How often it was killed. Without expectations, its bits are those of the others."""
    dump, log = f"{SCRATCH}/{'dump' if expected else 'expected'}", f"{SCRATCH}/log"
    with open(log, "w", encoding="utf-8") as tierd_log, open(OUTPUT, "w", encoding="utf-8") as output:
        count = train_through(faults, gpt_to(dump, output), tierd_log)
    assert check_log(log) == STEPS, "the last step is not durable"
    assert expected is None or content(dump) == expected, "other bits"
    forget()
    return count


# ---- Scenarios


def told(scenario):
    """A failure says what repeats it: kills.py GPT SCENARIO FAULT..."""

    def run_scenario(*arguments):
        try:
            return scenario(*arguments)
        except AssertionError as problem:
            words = " ".join(word for word in arguments if isinstance(word, str))
            raise AssertionError(f"{scenario.__name__} {words}: {problem}") from problem

    return run_scenario


@told
def deaths(expected, *faults):
    """Of daemons with these faults, one after the other, and then of one without."""
    return run(itertools.chain(faults, itertools.repeat(None)), expected)


def each_place(expected, transfer, stride, openings=((),), first=1):
    """A death at one transfer of a life after the other, until one ends without; others in the openings that follow."""
    place, count = 1, 1
    while count:
        count = deaths(expected, f"{transfer}:{place}", *openings[place % len(openings)])
        place += stride if place >= first else 1


@told
def longer_lives(expected, transfer, stride):
    """Each daemon lives a little longer than the one before it."""
    return run((f"{transfer}:{place}" for place in itertools.count(1, int(stride))), expected)


# ---- A job that is replaced

KEPT = f"{SCRATCH}/kept"
# Of the job that replaces it.
NEW_STEPS = 2


def keep_job(expected):
    """A job of all steps, to be replaced again and again."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        train_through(itertools.repeat(None), gpt_to(f"{SCRATCH}/dump", nowhere), nowhere)
    assert content(f"{SCRATCH}/dump") == expected, "other bits"
    subprocess.run(["cp", "-a", "--sparse=always", f"{NVME}/tierd", KEPT], check=True)


def bring_job(expected):
    if not os.path.exists(KEPT):
        keep_job(expected)
    shutil.rmtree(f"{NVME}/tierd")
    subprocess.run(["cp", "-a", "--sparse=always", KEPT, f"{NVME}/tierd"], check=True)
    forget_list()


def replace(fault, log, output):
    """Whether the daemon was killed by then, or at its own end."""
    tierd = daemon(fault, log)
    gpt = trainer(output, "--mode", "replace", "--steps", str(NEW_STEPS))
    try:
        if await_end(tierd, gpt) is gpt:
            assert gpt.wait() == 0, f"gpt ends with {gpt.returncode}: {content(OUTPUT)[-800:].decode()}"
            tierd.terminate()
        return was_killed(tierd)
    finally:
        for process in (gpt, tierd):
            process.kill()
            process.wait()


def go_on(log, output):
    """With what is there."""
    tierd = daemon(None, log)
    gpt = trainer(output, "--mode", "resume", "--steps", str(STEPS))
    try:
        assert gpt.wait(PATIENCE_MS / 1000) == 0, f"gpt ends with {gpt.returncode}: {content(OUTPUT)[-800:].decode()}"
        tierd.terminate()
        assert not was_killed(tierd)
    finally:
        for process in (gpt, tierd):
            process.kill()
            process.wait()


def check_replacement(log):
    """The old job is back unless the new one was told to be durable; nothing is left of the other one."""
    back = int(re.findall(r"it is back at step (\d+), its last durable one", log)[-1])
    assert "cannot be opened" not in log and "is left as it is" not in log, log
    if "step 0 is durable" in log:
        assert back <= NEW_STEPS, "the old job is back, though the new one was durable"
    else:
        # If it was there all the same, nobody had heard of it.
        assert back in (0, STEPS), f"it is back at step {back}"
    return back == STEPS


@told
def replacement(expected, fault):
    """Whether the daemon was killed, and whether the old job was there again."""
    bring_job(expected)
    log = f"{SCRATCH}/log"
    with open(log, "w", encoding="utf-8") as tierd_log, open(OUTPUT, "w", encoding="utf-8") as output:
        was = replace(fault, tierd_log, output)
        go_on(tierd_log, output)
    is_old = check_replacement(content(log).decode())
    files = [file for _, _, names in os.walk(f"{NVME}/tierd") for file in names if file != "mark"]
    assert len(files) == 1, f"left: {files}"
    return was, is_old


def replacements(expected):
    outcomes = {False: 0, True: 0}
    for transfer, stride in ("kill:write", STRIDE or 3), ("kill-after:write", STRIDE or 4), ("kill:flush", 1), ("kill-after:flush", 1):
        place, was_killed_there = 1, True
        while was_killed_there:
            was_killed_there, is_old = replacement(expected, f"{transfer}:{place}")
            outcomes[is_old] += was_killed_there
            place += stride
    assert outcomes[False] >= 3 and outcomes[True] >= 3, f"it was killed before and after the change: {outcomes}"


# What an opening writes and flushes: the copies to repair, those of its own commit.
OPENINGS = [
    ["kill:write:1", "kill-after:write:1"],
    ["kill:write:2", "kill-after:write:2"],
    ["kill:flush:1", "kill:flush:2"],
    ["kill-after:flush:1", "kill-after:flush:2", "kill:flush:3"],
]


def main():
    assert run(itertools.repeat(None), None) == 0
    expected = content(f"{SCRATCH}/expected")
    if len(sys.argv) > 2:
        scenarios = {"deaths": deaths, "longer_lives": longer_lives, "replacement": replacement, "replacements": replacements}
        scenarios[sys.argv[2]](expected, *sys.argv[3:])
        return
    each_place(expected, "kill:write", STRIDE or 17, OPENINGS, FIRST)
    each_place(expected, "kill-after:write", STRIDE or 13)
    each_place(expected, "kill:flush", 1)
    each_place(expected, "kill-after:flush", STRIDE or 3)
    assert longer_lives(expected, "kill:write", "5") > 3
    assert longer_lives(expected, "kill-after:flush", "1") > 3


if __name__ == "__main__":
    main()
