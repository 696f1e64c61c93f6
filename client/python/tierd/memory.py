"""How much memory is free for this process: on the machine, and within the limits of its control groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
# For each version: where groups lie, their limit, what they use, and what of that can be had at once.
_FILES = {
    1: (_CGROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: (_CGROUPS, "memory.max", "memory.current", "inactive_file"),
}


def free_bytes(proc: Path = Path("/proc")) -> int:
    """Bytes that could be had now without taking any from other programs."""
    return max(0, min([_available(proc), *_left_in_groups(proc)]))


def _available(proc: Path) -> int:
    lines = (proc / "meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _left_in_groups(proc: Path) -> Iterator[int]:
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        version = 2 if number == "0" else 1
        if version == 1 and "memory" not in controllers.split(","):
            continue
        root, limit, usage, inactive = _FILES[version]
        # In a container the path may be one of outside: what is left of it here is the root.
        group = root / path.lstrip("/")
        for folder in [group, *group.parents]:
            if folder.is_relative_to(root):
                yield from _left_in(folder, limit, usage, inactive)


def _left_in(folder: Path, limit: str, usage: str, inactive: str) -> Iterator[int]:
    try:
        most = (folder / limit).read_text().strip()
        used = int((folder / usage).read_text())
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:
        return
    if most != "max":
        yield int(most) - used + int(statistics.get(inactive, 0))
