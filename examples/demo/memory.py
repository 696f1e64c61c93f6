"""Host memory of a set of processes, as the kernel counts it: anonymous pages, the pages of all memfds and other shared
memory, and what is pinned beyond those."""
import os
import threading

# Mappings of memory that belongs to no process alone; their pages are not among the anonymous ones.
SHARED = ("/memfd:", "/dev/zero", "/dev/shm/", "/SYSV")
BLOCK = 512  # bytes in st_blocks, always
INTERVAL = 0.05  # seconds between samples


def children(pid):
    found = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as text:
                found += [int(child) for child in text.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def family(pids):
    """The processes and all their descendants."""
    found, todo = [], list(pids)
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children(pid)
    return found


def status_bytes(pid, names):
    values = dict.fromkeys(names, 0)
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as lines:
        for line in lines:
            name, _, rest = line.partition(":")
            if name in values:
                values[name] = int(rest.split()[0]) * 1024
    return [values[name] for name in names]


def stat_shared(path, shared):
    try:
        status = os.stat(path)
    except OSError:
        return None
    identity = status.st_dev, status.st_ino
    shared[identity] = status.st_blocks * BLOCK
    return identity


def shared_by_descriptor(pid, shared):
    """Adds the memfds that the process has open; returns their identities."""
    folder, found = f"/proc/{pid}/fd", set()
    for name in os.listdir(folder):
        try:
            is_shared = os.readlink(f"{folder}/{name}").startswith(SHARED)
        except FileNotFoundError:
            continue
        if is_shared:
            found.add(stat_shared(f"{folder}/{name}", shared))
    return found


def shared_by_mapping(pid, shared):
    """The same for memory whose descriptor was closed after it had been mapped."""
    found = set()
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            fields = line.split(None, 5)
            if len(fields) == 6 and fields[5].startswith(SHARED):
                addresses = "-".join(f"{int(address, 16):x}" for address in fields[0].split("-"))
                found.add(stat_shared(f"/proc/{pid}/map_files/{addresses}", shared))
    return found


def process_bytes(pid, shared):
    """What this process adds for itself; shared memory is collected by identity, because it counts once."""
    try:
        anonymous, pinned = status_bytes(pid, ("RssAnon", "VmPin"))
        mine = (shared_by_descriptor(pid, shared) | shared_by_mapping(pid, shared)) - {None}
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return anonymous + max(0, pinned - anonymous - sum(shared[identity] for identity in mine))


def used_bytes(pids):
    shared = {}
    own = sum(process_bytes(pid, shared) for pid in family(pids))
    return own + sum(shared.values())


def own_bytes(pids):
    """Without what is shared."""
    return sum(process_bytes(pid, {}) for pid in family(pids))


class Watch:
    """Samples the sum over some processes and their descendants, and keeps its maximum."""

    def __init__(self, pids, measure=used_bytes):
        self.pids = pids
        self.measure = measure
        self.peak = 0
        self.samples = 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self.is_over.wait(INTERVAL):
            self.peak = max(self.peak, self.measure(self.pids))
            self.samples += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.is_over.set()
        self.thread.join()
