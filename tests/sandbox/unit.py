"""A unit is the section [Service] of a unit file, with its drop-ins behind it."""
import sys


def die(text):
    print(f"sandbox: {text}", flush=True)
    sys.exit(1)


def skip(text):
    """What cannot be done here."""
    print(f"skipped: {text}", flush=True)
    sys.exit(77)


class Unit:
    def __init__(self, paths):
        self.lines = []
        for path in paths:
            section = ""
            with open(path, encoding="utf-8") as file:
                for line in file.read().splitlines():
                    if line.startswith("["):
                        section = line
                    elif line and line[0] != "#" and section == "[Service]":
                        key, _, value = line.partition("=")
                        self.lines.append((key, value))

    def values(self, key):
        return [value for name, value in self.lines if name == key]

    def get(self, key):
        """The value that counts: the last; "": there is none."""
        return self.values(key)[-1] if self.values(key) else ""

    def is_on(self, key):
        value = self.get(key)
        if value not in ("", "no", "yes"):
            die(f"{key}={value} is neither yes nor no")
        return value == "yes"

    def words(self, key):
        """Lines add up, and an empty one begins anew. A '~' before a list holds for all its words."""
        words = []
        for value in self.values(key):
            inverse = "~" * value.startswith("~")
            words = words + [inverse + word for word in value.removeprefix("~").split()] if value else []
        return words
