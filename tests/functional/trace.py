"""The file that tierctl trace writes: what is in it is what the job's statistics count, however the trace ends.

trace.py GPT USER_JOB    the example trainer, and a rank that trains (user_job.c); TIERCTL and TIERD_PID name the daemon"""
import collections
import json
import os
import signal
import stat
import subprocess
import sys
from xml.etree import ElementTree

TIERCTL, DAEMON, (GPT, USER_JOB) = os.environ["TIERCTL"], int(os.environ["TIERD_PID"]), sys.argv[1:]
DRAW = os.path.join(os.path.dirname(__file__), "../bench/draw_step")
# Who runs tests in the background, or under nohup, ignores some of these, which is inherited: a trace would ignore them, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in signal.SIGHUP, signal.SIGQUIT:
    signal.signal(ignored, signal.SIG_DFL)
# Until it is told to end.
LONG = ["--seconds", "3600"]
FIRST, LAST = 3, 9
# Layers that are packs of their own, and not all of them have room in host memory.
MODEL = ["--layers", "3", "--width", "304", "--heads", "2", "--context", "16", "--batch", "1", "--ranks", "2", "--threads", "1",
         "--host-budget", "28000000", "--log-every", "0", "--data", os.path.join(os.environ["FOLDER"], "data"), "--job", "gpt"]


def run(*arguments):
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


class Trace:
    """A tierctl trace that has begun. What it is told to do next is traced."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([TIERCTL, "trace", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        assert "is traced from now on" in line, line

    def end(self, status=0, number=None):
        """Its standard output, and what it says."""
        if number is not None:
            self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=200)
        assert self.process.returncode == status, (self.process.returncode, errors)
        return out, errors


def parse(text):
    trace = json.loads(text)
    assert set(trace) == {"displayTimeUnit", "otherData", "traceEvents"} and trace["displayTimeUnit"] == "ms", set(trace)
    return trace


def read(path):
    with open(path, encoding="utf-8") as file:
        return parse(file.read())


def spans(trace, *kinds):
    """In nanoseconds, so that sums are exact."""
    found = [event for event in trace["traceEvents"] if event["ph"] != "M" and event["args"]["kind"] in kinds]
    for event in found:
        event["begin"] = round(event["ts"] * 1000)
        event["end"] = event["begin"] + round(event.get("dur", 0) * 1000)
    return found


def of(events, group):
    return [event for event in events if event["cat"] == group]


def is_well_formed(trace):
    tracks, named = collections.defaultdict(list), set()
    for event in trace["traceEvents"]:
        assert event["ph"] in "XiM", event
        if event["ph"] == "M":
            named.add((event["pid"], event["tid"]))
            continue
        assert event["ts"] >= 0 and event.get("dur", 0) >= 0 and event["name"] and event["args"]["kind"], event
        assert (event["ph"] == "X") == ("dur" in event), event
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((round(event["ts"] * 1000), round(event["dur"] * 1000), event["name"]))
    assert set(tracks) <= named, set(tracks) - named
    for track, events in tracks.items():
        free = 0
        for begin, length, name in sorted(events):
            assert begin >= free, (track, begin, free, name)
            free = begin + length


def counts():
    return json.loads(run(TIERCTL, "--json", "jobs", "gpt"))["statistics"]


def moved(trace, group, *kinds):
    return sum(event["args"]["bytes"] for event in of(spans(trace, *kinds), group))


def bytes_are_those_of_the_statistics(trace, before, after):
    for key, group, kinds in (("job_update_read_bytes", "reads", ("update",)), ("job_update_written_bytes", "writes", ("update",)),
                              ("job_gather_read_bytes", "reads", ("gather", "prefetch"))):
        assert after[key] > before[key], key
        assert moved(trace, group, *kinds) == after[key] - before[key], (key, moved(trace, group, *kinds), before, after)


def each_step_updates_all_units_once(trace):
    units = json.loads(run(TIERCTL, "--json", "units", "gpt"))
    elements, names = collections.Counter(), {}
    for unit in units:
        names.setdefault(unit["pack"], unit["name"])
        elements[names[unit["pack"]]] += unit["elements"]
    assert len(elements) == 5, elements
    steps = sorted(spans(trace, "step"), key=lambda step: step["args"]["step"])
    assert [step["args"]["step"] for step in steps] == list(range(FIRST + 1, LAST + 1)), steps
    start = updates = 0
    for step in steps:
        inside = lambda event: start <= event["begin"] and event["end"] <= step["end"]
        updated = collections.Counter()
        for event in of(spans(trace, "update"), "workers"):
            if inside(event):
                updated[event["args"]["unit"]] += event["args"]["elements"]
        # Shards are padded.
        assert updated.keys() == elements.keys(), (updated, elements)
        assert all(0 <= updated[unit] - elements[unit] < 1024 for unit in elements), (step["args"]["step"], updated, elements)
        start, updates = step["end"], updates + updated.total()
    # None lies across the end of one.
    assert sum(event["args"]["elements"] for event in of(spans(trace, "update"), "workers")) == updates
    return steps


def each_step_is_closed_and_becomes_durable(trace, steps):
    closed = collections.Counter(event["args"]["step"] for event in spans(trace, "closes"))
    assert closed == {step["args"]["step"]: 2 for step in steps}, closed
    committed = {event["args"]["step"]: event for event in spans(trace, "commit")}
    assert LAST in committed, committed
    for step in steps:
        commit = committed.get(step["args"]["step"])
        assert not commit or commit["begin"] >= step["end"], (step, commit)
    assert spans(trace, "evict") and spans(trace, "save") and of(spans(trace, "record"), "writes") and spans(trace, "reduce") and spans(trace, "measure")


def ranks_compute_when_they_wait_for_nothing(trace):
    """Their tracks are full from the first that is known of them to the last."""
    for rank in (0, 1):
        track = {event["tid"] for event in trace["traceEvents"] if event["name"] == "thread_name" and event["args"]["name"] == f"rank {rank}"}
        events = sorted((event["begin"], event["end"]) for event in of(spans(trace, *KINDS_OF_RANKS), "ranks")
                        if event["tid"] // 1000 == min(track) // 1000)
        assert len(track) == 1 and events, (rank, track)
        until = events[0][0]
        for begin, end in events:
            assert begin <= until, (rank, begin, until)
            until = max(until, end)
    assert spans(trace, "computes") and spans(trace, "waits for all ranks")


KINDS_OF_RANKS = ("computes", "closes", "waits for bytes", "waits for room", "waits for the update", "waits for a gradient buffer",
                  "waits for its step", "waits for all ranks")


def train(steps, *arguments):
    run(GPT, *MODEL, "--steps", str(steps), *arguments)


def a_training_is_followed():
    train(FIRST)
    run(TIERCTL, "evict", "gpt")
    before = counts()
    whole, other = Trace("gpt", *LONG), Trace("gpt", "-o", "-", *LONG)
    train(LAST, "--dump", "traced")
    after = counts()
    _, said = whole.end(number=signal.SIGINT)
    assert f"{LAST - FIRST} steps applied" in said and "in gpt.trace.json" in said and "lost" not in said, said
    out, _ = other.end(number=signal.SIGTERM)
    trace, second = read("gpt.trace.json"), parse(out)
    for one in (trace, second):
        is_well_formed(one)
        assert one["otherData"] == {"job": "gpt", "lost": "0"}, one["otherData"]
        bytes_are_those_of_the_statistics(one, before, after)
        steps = each_step_updates_all_units_once(one)
        each_step_is_closed_and_becomes_durable(one, steps)
    ranks_compute_when_they_wait_for_nothing(trace)
    # Tracing changes no bit.
    run(GPT, *MODEL, "--steps", str(LAST), "--no-tierd", "--dump", "plain")
    with open("traced", "rb") as traced, open("plain", "rb") as plain:
        assert traced.read() == plain.read()


def a_step_can_be_drawn():
    drawn = ElementTree.fromstring(run(DRAW, "gpt.trace.json", str(LAST)))
    name = "{http://www.w3.org/2000/svg}"
    steps = {step["args"]["step"]: step["end"] for step in spans(read("gpt.trace.json"), "step")}
    updates = [event for event in of(spans(read("gpt.trace.json"), "update"), "workers") if event["begin"] >= steps[LAST - 1]]
    titles = [rect.find(name + "title").text for rect in drawn.iter(name + "rect")]
    assert {"update: layer.0", "computes", f"step {LAST}"} <= set(titles), set(titles)
    assert len(titles) > len(updates) > 0
    assert {"ranks", "workers", "reads", "writes"} <= {text.text for text in drawn.iter(name + "text")}
    assert "milliseconds" in {text.text for text in drawn.iter(name + "text")}
    for path, words in (("/nowhere", "No such file or directory"), (DRAW, "is no trace of tierctl trace")):
        wrong = subprocess.run([DRAW, path], capture_output=True, text=True)
        assert wrong.returncode == 1 and words in wrong.stderr and "Traceback" not in wrong.stderr, wrong
    wrong = subprocess.run([DRAW, "gpt.trace.json", "1"], capture_output=True, text=True)
    assert wrong.returncode == 1 and f"it has {FIRST + 2} to {LAST}" in wrong.stderr, wrong


def it_ends_after_whole_steps():
    rank = subprocess.Popen([USER_JOB, "job=paced", "paced=1", "steps=1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert rank.stdout.readline() == "ready\n"
    trace = Trace("paced", "--steps", "2", "-o", "paced.json")
    for _ in range(3):
        rank.stdin.write("\n")
        rank.stdin.flush()
        assert rank.stdout.readline()
    _, said = trace.end()
    assert "3 steps applied" in said, said
    is_well_formed(read("paced.json"))
    assert len(spans(read("paced.json"), "step")) == 3
    # What does not come is said, and what came is there.
    _, said = Trace("paced", "--steps", "5", "--seconds", "1", "-o", "few.json").end(status=1)
    assert "job paced: 0 of 5 whole steps came within 1 s; give it more --seconds" in said, said
    is_well_formed(read("few.json"))
    rank.stdin.close()
    assert rank.wait() == 0
    rank.stdout.close()


def it_ends_with_its_job():
    trace = Trace("paced", "-o", "gone.json", *LONG)
    run(TIERCTL, "drop", "paced", "--yes")
    _, said = trace.end(status=1)
    assert "job paced is gone" in said, said
    is_well_formed(read("gone.json"))


def one_that_is_killed_leaves_nothing():
    """More of them than there may be at once; and no file, nor one in the way of the next."""
    for _ in range(6):
        Trace("gpt", "-o", "killed.json", *LONG).end(status=-signal.SIGKILL, number=signal.SIGKILL)
        assert not os.path.exists("killed.json")
    Trace("gpt", "-o", "killed.json", "--seconds", "1").end()
    assert sorted(name for name in os.listdir() if "killed" in name) == ["killed.json"], os.listdir()
    traces = [Trace("gpt", "-o", "-", *LONG) for _ in range(4)]
    refused = subprocess.run([TIERCTL, "trace", "gpt", "-o", "more.json"], capture_output=True, text=True)
    assert refused.returncode == 1 and "4 traces of user" in refused.stderr, refused
    assert not os.path.exists("more.json") and not os.path.exists("more.json.partial")
    for trace in traces:
        is_well_formed(parse(trace.end(number=signal.SIGHUP)[0]))


def what_is_wrong_is_said():
    for arguments, status, words in (
        (["gpt", "--seconds", "0"], 2, "--seconds cannot be '0'"), (["gpt", "--steps", "x"], 2, "--steps cannot be 'x'"),
        (["gpt", "-o", "/nowhere/file"], 1, "/nowhere/file.partial: No such file"), (["nothing"], 1, "there is no job nothing"),
    ):
        done = subprocess.run([TIERCTL, "trace", *arguments], capture_output=True, text=True)
        assert done.returncode == status and words in done.stderr and not done.stdout, done


def names(word):
    return sorted(name for name in os.listdir() if word in name)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def trace_now(*arguments, status=0):
    """Of a job that does nothing; what it says."""
    done = subprocess.run([TIERCTL, "trace", "gpt", "--seconds", "1", *arguments], capture_output=True, text=True, timeout=200)
    assert done.returncode == status, done
    return done.stderr


def what_is_there_is_replaced_only_by_force():
    for step, path, flags in ((LAST + 1, "mine.json", ["-o", "mine.json"]), (LAST + 2, "gpt.trace.json", [])):
        with open(path, "w", encoding="utf-8") as file:
            file.write("mine")
        assert f"{path} exists; name another file, or replace it with --force" in trace_now(*flags, status=1)
        # And not by nothing.
        assert f"nothing is written over {path}" in trace_now(*flags, "--force")
        assert content(path) == b"mine" and names("partial") == []
        trace = Trace("gpt", *flags, "--force", *LONG)
        train(step)
        _, said = trace.end(number=signal.SIGINT)
        assert f"in {path}" in said, said
        is_well_formed(read(path))
    # What comes meanwhile is spared, too.
    trace = Trace("gpt", "-o", "late.json", *LONG)
    with open("late.json", "w", encoding="utf-8") as file:
        file.write("mine")
    assert "File exists" in trace.end(status=1, number=signal.SIGINT)[1] and content("late.json") == b"mine"
    assert names("partial") == []


def a_file_is_where_it_was_named():
    os.mkdir("folder")
    assert "in folder/gpt.trace.json" in trace_now("-o", "folder")
    is_well_formed(read("folder/gpt.trace.json"))
    # Links stay, and lead to it.
    os.symlink("folder/linked.json", "one")
    os.symlink("one", "two")
    trace_now("-o", "two")
    assert os.path.islink("one") and os.path.islink("two") and not os.path.islink("folder/linked.json")
    is_well_formed(read("folder/linked.json"))
    assert "two exists" in trace_now("-o", "two", status=1)
    os.symlink("circle", "circle")
    assert "circle: Too many levels of symbolic links" in trace_now("-o", "circle", status=1)
    # What is no file stays what it is.
    os.mkfifo("pipe")
    trace = subprocess.Popen([TIERCTL, "trace", "gpt", "--seconds", "1", "-o", "pipe"], stderr=subprocess.PIPE)
    is_well_formed(read("pipe"))
    trace.communicate(timeout=200)
    assert trace.returncode == 0 and stat.S_ISFIFO(os.stat("pipe").st_mode)
    trace = Trace("gpt", "-o", "/dev/stdout", "--seconds", "1")
    is_well_formed(parse(trace.end()[0]))
    assert names("partial") == []


def what_cannot_be_written_is_said_once():
    try:
        os.mknod("full", 0o600 | stat.S_IFCHR, os.makedev(1, 7))
        full = os.open("full", os.O_WRONLY)
    except OSError:
        return
    said = trace_now("-o", "full", status=1)
    assert said.count("No space left on device") == 1 and stat.S_ISCHR(os.stat("full").st_mode), said
    done = subprocess.run([TIERCTL, "trace", "gpt", "--seconds", "1", "-o", "-"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr.count("No space left on device") == 1, done
    os.close(full)


def a_second_signal_leaves_nothing():
    for numbers in ((signal.SIGQUIT,), (signal.SIGINT, signal.SIGTERM)):
        trace = Trace("gpt", "-o", "ended.json", *LONG)
        assert names("ended") == ["ended.json.partial"]
        # Both are there before it obeys the first.
        for number in (signal.SIGSTOP, *numbers, signal.SIGCONT):
            trace.process.send_signal(number)
        trace.process.communicate(timeout=200)
        assert -trace.process.returncode in numbers, trace.process.returncode
        assert names("ended") == []


def a_job_without_ranks_is_said_to_be_idle():
    assert "it has no ranks: nothing comes until one opens it" in trace_now("-o", "idle.json")
    rank = subprocess.Popen([USER_JOB, "job=busy", "paced=1", "steps=1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert rank.stdout.readline() == "ready\n"
    _, said = Trace("busy", "-o", "busy.json", "--seconds", "1").end()
    assert "no ranks" not in said, said
    rank.stdin.close()
    assert rank.wait() == 0
    rank.stdout.close()


def the_end_of_the_daemon_ends_it():
    trace = Trace("gpt", "-o", "last.json", *LONG)
    os.kill(DAEMON, signal.SIGTERM)
    _, said = trace.end(status=3)
    assert "closed the connection" in said, said
    is_well_formed(read("last.json"))


os.chdir(os.environ["FOLDER"])
a_training_is_followed()
a_step_can_be_drawn()
it_ends_after_whole_steps()
it_ends_with_its_job()
one_that_is_killed_leaves_nothing()
what_is_wrong_is_said()
what_is_there_is_replaced_only_by_force()
a_file_is_where_it_was_named()
what_cannot_be_written_is_said_once()
a_second_signal_leaves_nothing()
a_job_without_ranks_is_said_to_be_idle()
the_end_of_the_daemon_ends_it()
