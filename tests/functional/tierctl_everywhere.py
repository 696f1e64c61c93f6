"""Each verb of tierctl says the same of what is the same: a wrong flag, an argument too many, no daemon, a daemon that
does not answer; and with --json prints JSON and nothing else, errors included. tierctl_everywhere.py, in a state that $STATE names.
"""
import json
import os
import socket
import subprocess
import threading
import time

TIERCTL = os.environ["TIERCTL"]

# Of the job that is here; it stays there afterwards.
FILE = os.environ["XDG_CONFIG_HOME"] + ".safetensors"

# What each verb is called with, and its exit status where all is well.
VERBS = {
    "status": [], "jobs": [], "units": ["gpt"], "tensors": ["gpt"], "blobs": ["gpt"], "leases": [], "evict": ["gpt"], "release": ["gpt"], "drain": ["--undo"], "tiers": [],
    "metrics": [], "plan": ["--parameters", "1M", "--world-size", "1"], "doctor": [], "config": ["check"], "ping": [],
    "top": ["--once"], "verify": ["gpt"], "scrub": ["gpt"], "watch": ["--timeout", "1"],
    "trace": ["gpt", "--seconds", "1", "-o", FILE + ".trace"],
    "snapshot": ["gpt", "kept"], "snapshots": ["gpt"], "diff": ["gpt", "kept"], "rollback": ["gpt", "kept", "--yes"],
    "reserve": ["gpt", "2"], "retain": ["gpt", "100", "1"], "share": ["gpt", "none"], "fork": ["gpt", "forked"],
    "export": ["gpt", "-o", FILE], "inspect": [FILE], "import": ["imported", FILE], "drop": ["gpt", "--yes"],
}
# They work without a daemon; and these even while it is stuck.
ALONE, PATIENT = ("plan", "doctor", "config", "inspect"), ("metrics", "top")
# How long each waits for an answer; what it was told to wait for is less, and not of another verb.
WAITS = {"drain": 2, "watch": 1}
ONE_JOB = ("jobs", "units", "tensors", "blobs", "leases", "evict", "release", "export", "verify", "scrub", "drop", "trace",
           "snapshot", "snapshots", "diff", "rollback", "reserve", "retain", "share", "fork")
NAMING = ("snapshot", "diff", "rollback", "fork")


def run(*arguments):
    return subprocess.run([TIERCTL, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)


def parse(verb, text):
    """One value; of some, one a line."""
    if verb in ("watch", "top", "export", "verify", "import"):
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text) if text else None


def error_of(result):
    """With --json an error is one object, on a line of the standard error, and nothing else is said."""
    assert not result.stdout and result.stderr.endswith("\n") and result.stderr.count("\n") == 1, result
    error = json.loads(result.stderr)
    assert set(error) == {"error", "code", "message", "exit_status"} and error["exit_status"] == result.returncode, error
    return error


def help_and_usage_are_the_same_everywhere():
    verbs = [line.split()[0] for line in run("help").stdout.splitlines() if line.startswith("  ") and line[2].islower()]
    # help needs nothing, and what read prints are values.
    assert set(verbs) - {"help", "read"} == set(VERBS), verbs
    for verb in verbs:
        shown = run(verb, "--help")
        assert shown.returncode == 0 and shown.stdout.startswith(f"Usage: tierctl {verb}") and not shown.stderr, shown
        assert run("help", verb).stdout == shown.stdout, verb
        wrong = run(verb, "--frobnicate")
        assert wrong.returncode == 2 and not wrong.stdout, wrong
        assert wrong.stderr == f"tierctl: unknown flag --frobnicate of {verb}; see tierctl {verb} --help\n", wrong
        # Before the verb, behind the flag that is wrong, and where nothing is read any more.
        for words in (["--json", verb, "--frobnicate"], [verb, "--frobnicate", "--json"]):
            error = error_of(run(*words))
            assert error == {"error": "usage", "code": "EINVAL", "message": wrong.stderr[9:-1], "exit_status": 2}, error
        assert run(verb, "--frobnicate", "--", "--json").stderr == wrong.stderr
        if verb != "evict":
            many = run(verb, *["check" if verb == "config" else "x"] * 4)
            assert many.returncode == 2 and "one argument too many" in many.stderr and not many.stdout, many
            assert not many.stderr.endswith(" \n"), many


def what_a_job_lacks_has_one_code():
    for words in (["evict", "gpt", "nosuch"], ["rollback", "gpt", "nosuch"], ["read", "gpt", "nosuch"], ["tensors", "gpt", "nosuch"],
                  ["diff", "gpt", "nosuch"], ["fork", "gpt@nosuch", "other"], ["snapshot", "gpt", "nosuch", "--delete"],
                  ["plan", "--units", FILE + ".nosuch"]):
        lacking = run("--json", *words)
        assert lacking.returncode == 1 and error_of(lacking)["code"] == "ENOENT", lacking


def with_a_daemon_all_is_json():
    for verb, arguments in VERBS.items():
        done = run("--json", verb, *arguments)
        assert done.returncode == 0 or verb == "doctor" and done.returncode == 1, done
        assert not done.stderr, done
        assert parse(verb, done.stdout) is not None, verb
        if verb in ONE_JOB:
            named = ["kept"] * (verb in NAMING) + ["2"] * (verb in ("reserve", "retain"))
            gone = run("--json", verb, "no-such-job", *named, *["--yes"] * (verb in ("drop", "rollback")))
            assert gone.returncode == 1 and error_of(gone)["code"] == "ENOENT", gone
            assert error_of(gone)["message"] == "there is no job no-such-job that you may see", gone
        if verb == "snapshot":
            what_a_job_lacks_has_one_code()


def without_a_daemon_all_say_where_they_looked():
    for verb, arguments in VERBS.items():
        if verb in ALONE:
            assert run("--json", verb, *arguments).returncode in (0, 1), verb
            continue
        lost = run("--json", verb, *arguments)
        error = error_of(lost)
        assert lost.returncode == 3 and error["error"] == "unreachable" and error["code"] in ("ENOENT", "ECONNREFUSED"), lost
        assert "no tierd listens at " + os.environ["TIERD_SOCKET"] in error["message"], lost


def of_one_that_is_stuck_all_say_so():
    stuck = {**VERBS, "drain": ["--timeout", "2"]}
    running = {
        verb: subprocess.Popen([TIERCTL, "--json", verb, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        for verb, arguments in stuck.items()
    }
    for verb, process in running.items():
        out, errors = process.communicate()
        if verb in ALONE + PATIENT:
            assert process.returncode in (0, 1) and parse(verb, out) is not None, (verb, errors)
        else:
            assert process.returncode == 3 and not out, (verb, process.returncode, out)
            assert json.loads(errors)["code"] in ("ETIMEDOUT", "EAGAIN"), (verb, errors)
            assert f"does not answer within {WAITS.get(verb, 10)} s: it is stopped or stuck" in errors, (verb, errors)
            assert "tierctl top and tierctl metrics show its last figures" in errors, (verb, errors)


def pass_on(source, sink, late):
    """What comes after the hello comes late."""
    for count in range(1000):
        data = source.recv(1 << 20)
        if late and count > 0:
            time.sleep(late)
        sink.sendall(data)
        if not data:
            sink.shutdown(socket.SHUT_WR)
            return


def of_one_that_runs_and_takes_long_the_answer_is_awaited():
    path = os.environ["XDG_CONFIG_HOME"] + ".slow"
    connections = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def serve():
            while True:
                client, server = listening.accept()[0], socket.socket(socket.AF_UNIX)
                server.connect(os.environ["TIERD_SOCKET"])
                connections.append(client)
                for source, sink, late in (client, server, 6 if len(connections) == 1 else 0), (server, client, 0):
                    threading.Thread(target=pass_on, args=(source, sink, late), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        slow = run("--json", "tiers", "--socket", path)
        assert slow.returncode == 0 and parse("tiers", slow.stdout) is not None, slow
        assert slow.stderr == "tierctl: tierd runs, and has not done it yet: waiting\n", slow
        assert len(connections) == 2, connections


def words_that_are_no_command_are_errors_too():
    for words, message in (
        (["frobnicate"], "there is no command 'frobnicate'; see tierctl help"), ([], "a command is missing; see tierctl help"),
        (["--frobnicate"], "unknown flag --frobnicate; see tierctl --help"), (["help", "x"], "there is no command 'x'; see tierctl help"),
    ):
        assert error_of(run("--json", *words))["message"] == message
        assert run(*words).returncode == 2


{
    "here": lambda: (help_and_usage_are_the_same_everywhere(), words_that_are_no_command_are_errors_too(),
                     of_one_that_runs_and_takes_long_the_answer_is_awaited(), with_a_daemon_all_is_json()),
    "absent": without_a_daemon_all_say_where_they_looked,
    "stuck": of_one_that_is_stuck_all_say_so,
}[os.environ["STATE"]]()
