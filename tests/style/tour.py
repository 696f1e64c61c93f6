#!/usr/bin/env python3
"""docs/tour.md names functions that are where it says, and at most eight files for each way.

usage: tour.py ROOT | tour.py --self-test
"""
import os
import re
import sys
import tempfile

STEP = re.compile(r"\d+\. \[`([\w/]+\.[ch])`\]\(\.\./([\w/]+\.[ch])\): (.*)")
NAME = re.compile(r"`([a-z][a-z_0-9]+)`")
# Of libraries' users, not of the file that a line is about.
ELSEWHERE = {"tierd_job_ready"}
MOST_FILES = 8


def check(root):
    found, count = [], 0
    with open(os.path.join(root, "docs/tour.md"), encoding="utf-8") as file:
        sections = file.read().split("\n## ")[1:]
    for section in sections:
        title, *lines = section.splitlines()
        steps = [match for match in map(STEP.fullmatch, lines) if match]
        if not 0 < len(steps) <= MOST_FILES:
            found.append(f"{title}: {len(steps)} files, of at most {MOST_FILES}")
        if len(steps) != sum(line[:1].isdigit() for line in lines):
            found.append(f"{title}: a step that names no file")
        for path, link, text in (step.groups() for step in steps):
            if path != link or not os.path.exists(os.path.join(root, path)):
                found.append(f"{title}: there is no {path}, or the link leads elsewhere")
                continue
            with open(os.path.join(root, path), encoding="utf-8") as file:
                code = file.read()
            names = set(NAME.findall(text)) - ELSEWHERE
            count += len(names)
            found += [f"{title}: {path} has no function {name}" for name in sorted(names)
                      if not re.search(rf"^\w[^;#\n]*\b{name}\([^;]*?\)\n\{{", code, re.MULTILINE)]
            if not names:
                found.append(f"{title}: {path} is named without a function")
    if not sections or not count:
        found.append("docs/tour.md names nothing")
    return found


def self_test():
    code = "static int here(int a,\n\t\tint b)\n{\n\treturn there(a);\n}\n"
    cases = {"`here` is called.": 0, "`there` is called.": 1, "nothing": 1, "`here` and `gone`": 1}
    for text, expected in cases.items():
        with tempfile.TemporaryDirectory() as root:
            for path, content in {"docs/tour.md": f"# T\n\n## A way\n\n1. [`a/b.c`](../a/b.c): {text}\n", "a/b.c": code}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(content)
            found = [line for line in check(root) if "names nothing" not in line]
            if len(found) != expected:
                sys.exit(f"{text}: {found}")


if len(sys.argv) != 2:
    sys.exit(__doc__)
if sys.argv[1] == "--self-test":
    self_test()
else:
    problems = check(sys.argv[1])
    if problems:
        sys.exit("\n".join(problems))
