#!/usr/bin/env python3
"""Fails where a document has, between marks of a name, something else than a program prints.

usage: picture.py DOCUMENT NAME PROGRAM [ARGUMENT…]
"""
import subprocess
import sys


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    document, name, *command = sys.argv[1:]
    with open(document, encoding="utf-8") as file:
        _, begin, rest = file.read().partition(f"<!-- {name}: begin -->\n")
    there, end, _ = rest.partition(f"<!-- {name}: end -->\n")
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    if not begin or not end:
        sys.exit(f"{document} has no marks of {name}")
    if there != printed:
        sys.exit(f"{document} has another picture between the marks of {name} than {' '.join(command)} prints:\n{printed}")


main()
