#!/usr/bin/env python3
"""What `./run test` asks of meson's files.

usage: results.py suites BUILD_FOLDER   one line "suite NAME" or "test NAME" for each
       results.py summary LOG…          what was skipped, and why; what failed; the closing line
"""
import json
import os
import re
import subprocess
import sys

# cmocka's line for each test function of a program.
CASE = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] (\w+)$", re.MULTILINE)


def suites(folder):
    listed = json.loads(subprocess.check_output(["meson", "introspect", "--tests", folder]))
    names = set()
    for test in listed:
        names.add(f"test {test['name']}")
        names.update(f"suite {suite.split(':')[-1]}" for suite in test["suite"])
    print("\n".join(sorted(names)))


def reason(text):
    found = re.findall(r"^skipped: *(.+)$", text, re.MULTILINE)
    return found[-1] if found else "no reason given"


def cases(test):
    """Results of one test as (name, result, reason): a cmocka program counts by its functions."""
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
elif len(sys.argv) >= 2 and sys.argv[1] == "summary":
    sys.exit(summary(sys.argv[2:]))
else:
    sys.exit(__doc__)
