"""Asks tierctl(1), which knows by its daemon, or by the daemon's own code, what this package does not compute itself."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

from tierd._core import Error
from tierd.daemon import program

# tierctl's exit status where no daemon answers.
_NO_DAEMON = 3


def ask(*arguments: str, socket: str | None = None, given: Any = None) -> Any:
    """What a verb of tierctl says with --json. given: what its standard input has, as JSON.

    tierd.Error: no daemon answers (ECONNREFUSED), or what tierctl says is wrong, with its code (else EINVAL).
    """
    command: Sequence[str] = [program("tierctl"), "--json", *arguments, *(["--socket", socket] if socket else [])]
    text = None if given is None else json.dumps(given)
    environment = os.environ | {"TIERD": program()}
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=environment, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        code, said = _error_in(done.stderr.strip() or f"tierctl {arguments[0]} says nothing")
        raise Error(errno.ECONNREFUSED if done.returncode == _NO_DAEMON else code, said) from None


def _error_in(text: str) -> tuple[int, str]:
    """The error that tierctl tells, with --json as JSON, in the last of its lines; those before it are warnings."""
    try:
        told = json.loads(text.splitlines()[-1])
        return getattr(errno, told["code"] or "", errno.EINVAL), told["message"]
    except (ValueError, LookupError, TypeError):
        return errno.EINVAL, text.removeprefix("tierctl: ")
