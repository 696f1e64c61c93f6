#!/usr/bin/env python3
"""What `./run test` asks of meson's files.

usage: results.py suites BUILD_FOLDER   one line "suite NAME" for each, and "test NAME" for each that no suite of its name has
       results.py targets BUILD_FOLDER NAME…   what ninja has to build for these suites and tests, a line each
       results.py summary LOG…          what was skipped, and why; what failed; the closing line
"""
import json
import os
import re
import subprocess
import sys

# cmocka's line for each test function of a program, and that of tests/python/conftest.py for each case.
CASE = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] (\S+)$", re.MULTILINE)


def introspect(folder, what):
    return json.loads(subprocess.check_output(["meson", "introspect", f"--{what}", folder]))


def suites_of(test):
    # meson names it "project:suite".
    return {suite.split(":")[-1] for suite in test["suite"]}


def suites(folder):
    names = set()
    for test in introspect(folder, "tests"):
        if test["name"] not in suites_of(test):
            names.add(f"test {test['name']}")
        names.update(f"suite {suite}" for suite in suites_of(test))
    print("\n".join(sorted(names)))


def targets(folder, names):
    needed = set()
    files = {target["id"]: target["filename"] for target in introspect(folder, "targets")}
    for test in introspect(folder, "tests"):
        if names & {test["name"], *suites_of(test)}:
            needed.update(file for target in test["depends"] for file in files[target])
    print("\n".join(os.path.relpath(file, folder) for file in sorted(needed)))


def reason(text):
    found = re.findall(r"^skipped: *(.+)$", text, re.MULTILINE)
    return found[-1] if found else "no reason given"


def cases(test):
    """Results of one test as (name, result, reason): programs of cmocka and files of pytest count by their cases."""
    # meson names it "project:suite / name".
    name = test["name"].split(" / ")[-1]
    output = test.get("stdout") or ""
    if test["result"] == "SKIP":
        return [(name, "SKIPPED", reason(output + (test.get("stderr") or "")))]
    passed = test["result"] == "OK"
    found, start = {}, 0
    for match in CASE.finditer(output):
        found[match[2]] = (match[1], output[start:match.start()])
        start = match.end()
    if not found:
        return [(name, "OK" if passed else "FAILED", test["result"])]
    listed = [(f"{name}.{case}", result, reason(text)) for case, (result, text) in found.items()]
    # A crash, a timeout or a leak has no line of its own.
    if not passed and all(result != "FAILED" for _, result, _ in listed):
        listed.append((name, "FAILED", test["result"]))
    return listed


def summary(logs):
    counts = {"OK": 0, "FAILED": 0, "SKIPPED": 0}
    for log in logs:
        build = os.path.basename(os.path.dirname(os.path.dirname(log)))
        if not os.path.exists(log):
            print(f"failed: {build}: meson ran no tests")
            counts["FAILED"] += 1
            continue
        with open(log, encoding="utf-8") as lines:
            for line in lines:
                for name, result, why in cases(json.loads(line)):
                    counts[result] += 1
                    if result == "SKIPPED":
                        print(f"skipped: {build}: {name}: {why}")
                    elif result == "FAILED":
                        print(f"failed: {build}: {name}")
    if not sum(counts.values()):
        print("failed: no such suite or test")
        counts["FAILED"] = 1
    print(f"{counts['OK']} passed, {counts['FAILED']} failed, {counts['SKIPPED']} skipped")
    return 1 if counts["FAILED"] else 0


if len(sys.argv) == 3 and sys.argv[1] == "suites":
    suites(sys.argv[2])
elif len(sys.argv) >= 4 and sys.argv[1] == "targets":
    targets(sys.argv[2], set(sys.argv[3:]))
elif len(sys.argv) >= 2 and sys.argv[1] == "summary":
    sys.exit(summary(sys.argv[2:]))
else:
    sys.exit(__doc__)
