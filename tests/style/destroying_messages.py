#!/usr/bin/env python3
"""What tells people to do something that destroys state says so in the same breath.

usage: destroying_messages.py SOURCE | --self-test

A text of the daemon, the library or tierctl that proposes to drop a job, to replace it, to give up or to delete a snapshot,
or to force any of these, has the word "destroy", or says that the state is lost already.
"""
import os
import re
import sys

FOLDERS = "daemon", "client"
# Literals that the compiler puts together.
TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')
PROPOSES = re.compile(
    r"tierctl drop|\bdrop (it|one|that|a job|that one)\b|with replace\b|(?<!\.\.\. )\breplace it, |or replace it(?! with --force)"
    r"|--replace\b|--lost\b(?! (is|goes))|delete (one|a snapshot|the snapshot|that one)\b|snapshot --delete\b|with --(force|yes)\b"
)
SAYS = re.compile(r"\bdestroys?\b|state is lost|the state of job %s is lost")
# Of files that a person names: what is there is replaced, as that says.
OF_FILES = re.compile(r"exists; name another file, or replace it with --force")


def find_silent(source):
    """The texts that propose it, and do not say it, with their lines."""
    for found in TEXT.finditer(source):
        text = re.sub(r'"\s*"', "", found.group())
        if PROPOSES.search(text) and not SAYS.search(text) and not OF_FILES.search(text):
            yield source.count("\n", 0, found.start()) + 1, text


def check(root):
    silent = []
    for folder in FOLDERS:
        for path, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    file = os.path.join(path, name)
                    with open(file, encoding="utf-8") as opened:
                        silent += [f"{os.path.relpath(file, root)}:{line}: {text}" for line, text in find_silent(opened.read())]
    return silent


def test():
    for text, count in (
        ('f("job %s is in the way; tierctl drop " "ends it");', 1),
        ('f("job %s is in the way; tierctl drop destroys its " "state");', 0),
        ('f("job %s exists; resume or replace it");', 1),
        ('f("job %s is in use; end them, or drop it with --force");', 1),
        ('f("give it up (tierctl snapshot %s --delete --lost)");', 1),
        ('f("its state is lost; open it with replace");', 0),
        ('f("%s exists; name another file, or replace it with --force", path);', 0),
        ('f("a drop of water"); f("job_drop");', 0),
    ):
        assert len(list(find_silent(text))) == count, text


if sys.argv[1] == "--self-test":
    test()
else:
    lines = check(sys.argv[1])
    for line in lines:
        print(f"{line}\n  does not say that this destroys state", file=sys.stderr)
    sys.exit(bool(lines))
