"""What programs say of themselves stands in columns. help.py: commands, one a line, as for a shell, on the standard input."""
import re
import shlex
import subprocess
import sys


def shown_by(command):
    done = subprocess.run(shlex.split(command), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout and not done.stderr, (command, done)
    return done.stdout.splitlines()


def look(command):
    """A text begins behind the item that it explains, or on the next line where that is too long."""
    begins = {}
    for line in shown_by(command):
        assert line == line.rstrip() and "\t" not in line, (command, line)
        found = re.match(r"  \S.*?  +(?=\S)", line) or re.match(r"   +(?=\S)", line)
        if found:
            begins.setdefault(found.end(), line)
    assert len(begins) == 1, f"{command}: texts begin in several columns:\n" + "\n".join(begins.values())


for command in sys.stdin.read().splitlines():
    look(command)
