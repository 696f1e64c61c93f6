#!/usr/bin/env python3
"""Checks the commit of the extent store, exhaustively: every interleaving of updates, a commit, a snapshot, a roll back to
it and a reader, interrupted anywhere, and again while it opens.

usage: commit.py [--long]   the sizes of any day; with --long larger ones, of some minutes

An interruption is a power failure (each write that no flush has covered is kept, lost or torn, by itself), a kill (the
device keeps what it has), or a flush that fails (what it should have covered is kept or lost, and nobody is told which).

What must hold:
- Opening finds a superblock, a whole map, and every extent that the map names, and those of the snapshot.
- What it finds is the last step that was acknowledged or served, or a later one whose commit had begun; once a roll back
  was acknowledged, nothing that was taken back.
- No extent of it is of a later step than the map.
- Who reads gets the version that was there when he began, or that of the snapshot, though it be deleted meanwhile.
- An update finds a place, at the latest when the commit and the reader are done.

A superblock copy is as good as its best record, and a record is never half new: a torn copy is the old or the new one.
A root stands for the whole map. A value is a block with its checksum, which is seeded with epoch and generation: no
two contents are taken for one another.

The design must hold in several sizes, and each mutation, which takes a precaution away, must be caught. Two precautions
cover for each other here, so that only both together are missed: the flush on opening, and the open commit, whose flush
does the same. The first is there because who reads before it may see what is not safe, the second because no (epoch,
generation) may come twice.
"""
import itertools
import os
import sys
import time
from collections import namedtuple

EXTENTS = (0, 1)
TORN = "torn"

# What the devices hold: a tuple of values over all locations, safe, and what no flush has covered (None: nothing).
# promised: era and step of what was acknowledged.
State = namedtuple("State", "safe fresh memory promised failures")
# The daemon. era: how often it was rolled back by the time that it was opened; versions: (place, value) of each extent; host: the value of extent 1, where only host memory has it;
# todo: what opening or the commit still does; changes: snapshots taken and dropped.
Memory = namedtuple("Memory", "era newest frozen generation epoch pair step versions updated host todo reader changes")
Root = namedtuple("Root", "era step slot versions snapshot")
Commit = namedtuple("Commit", "generation epoch root")


class Violation(Exception):
    pass


class Case:
    """The sizes of a run, and the precautions that it does without."""

    def __init__(self, *without, devices=1, snapshots=0, roll_backs=0, reader=False, host=False, steps=3, failures=2):
        self.without = set(without)
        self.devices, self.reader, self.host = devices, reader, host
        self.snapshots, self.roll_backs = snapshots, roll_backs
        self.steps, self.failures = steps, failures
        # What is reserved: an update writes to a spare place, and the one that it replaces is the next spare one.
        self.places = range((2 + snapshots) * len(EXTENTS) + ("spare place" not in self.without))
        first = len(self.places)
        self.slots = range(first, first + 2 + snapshots)
        first = self.slots.stop
        self.copies = range(first, first + 4)
        self.locations = range(self.copies.stop)

    def __str__(self):
        sizes = f"{self.steps} steps, {self.failures} failures, {self.devices} devices"
        extras = [name.replace("_", " ") for name in ("snapshots", "roll_backs", "reader", "host") if getattr(self, name)]
        return ", ".join(["without " + " and ".join(sorted(self.without))] * bool(self.without) + [sizes] + extras)

    def device(self, location):
        if location in self.slots:
            return 0
        return location % self.devices

    def pair(self, number):
        """Of its two copies each lies on a device of its own, if there are two."""
        return self.copies[2 * number : 2 * number + 2]


def first_state(case):
    versions = tuple((extent, (extent, 0, 0)) for extent in EXTENTS)
    root = Root(0, 0, case.slots[0], versions, None)
    safe = [None] * len(case.locations)
    for place, value in versions:
        safe[place] = value
    safe[root.slot] = root
    for copy in case.copies:
        safe[copy] = Commit(0, 0, root)
    return State(tuple(safe), (None,) * len(safe), None, (0, 0), 0)


def seen(state, location):
    fresh = state.fresh[location]
    return state.safe[location] if fresh is None else fresh


def put(values, location, value):
    return values[:location] + (value,) + values[location + 1 :]


def written(state, location, value):
    """The states after a write: what the same location had before may be safe by then."""
    after = state._replace(fresh=put(state.fresh, location, value))
    yield after
    if state.fresh[location] is not None:
        yield after._replace(safe=put(state.safe, location, state.fresh[location]))


def covered(case, state, device):
    return [i for i in case.locations if state.fresh[i] is not None and case.device(i) == device]


def flushed(case, state, device):
    safe, fresh = list(state.safe), list(state.fresh)
    for location in covered(case, state, device):
        safe[location], fresh[location] = fresh[location], None
    return state._replace(safe=tuple(safe), fresh=tuple(fresh))


# ---- What ends a session


def roots_of(state):
    for copy in state.safe + state.fresh:
        if isinstance(copy, Commit):
            yield copy.root
            if copy.root.snapshot:
                yield copy.root.snapshot


def ended(case, state):
    """Without memory. What no superblock leads to is never read again: states that differ in it alone are one."""
    wanted = {}
    for root in roots_of(state):
        wanted.setdefault(root.slot, set()).add(root)
        for place, value in root.versions:
            wanted.setdefault(place, set()).add(value)
    safe, fresh = list(state.safe), list(state.fresh)
    for location in (*case.places, *case.slots):
        if fresh[location] is not None and fresh[location] not in wanted.get(location, ()):
            fresh[location] = TORN
        if safe[location] not in wanted.get(location, ()):
            safe[location] = TORN
        if fresh[location] == safe[location]:
            fresh[location] = None
    return State(tuple(safe), tuple(fresh), None, state.promised, state.failures)


def closed(case, state):
    return ended(case, state)._replace(failures=state.failures + 1)


def outcomes(case, state, locations, may_tear):
    """Each of these writes is kept, lost or torn."""
    choices = []
    for location in locations:
        choice = {state.safe[location], state.fresh[location]}
        if may_tear and location not in case.copies:
            choice.add(TORN)
        choices.append(choice)
    for choice in itertools.product(*choices):
        safe, fresh = list(state.safe), list(state.fresh)
        for location, value in zip(locations, choice):
            safe[location], fresh[location] = value, None
        yield state._replace(safe=tuple(safe), fresh=tuple(fresh))


def interrupted(case, state):
    if state.failures == case.failures:
        return
    if state.memory is not None:
        yield closed(case, state)
    fresh = [i for i in case.locations if state.fresh[i] is not None]
    if fresh:
        for after in outcomes(case, state, fresh, True):
            yield closed(case, after)


# ---- Opening


def check_root(state, root, what):
    if seen(state, root.slot) != root:
        raise Violation(f"the map of {what} is gone")
    for place, value in root.versions:
        if seen(state, place) != value:
            raise Violation(f"an extent of {what} is gone")
        if value[1] > root.step:
            raise Violation(f"{what} is of several steps")


def opened(case, state):
    if "flush on open" not in case.without:
        for device in range(case.devices):
            state = flushed(case, state, device)
    best = max((seen(state, copy) for copy in case.copies), key=lambda commit: commit.generation)
    pair = next(i for i in (0, 1) if best in [seen(state, copy) for copy in case.pair(i)])
    root = best.root
    check_root(state, root, "the newest commit")
    if root.snapshot:
        check_root(state, root.snapshot, "the snapshot")
    if root.era < state.promised[0]:
        raise Violation("what was rolled back is there again")
    if (root.era, root.step) < state.promised:
        raise Violation(f"step {state.promised[1]} was promised, and step {root.step} is there")
    todo = [("write", copy, best) for copy in case.pair(pair) if seen(state, copy) != best]
    if todo:
        todo += [("flush", device) for device in range(case.devices)]
    generation, epoch = best.generation, best.epoch + 1
    if "open commit" not in case.without:
        generation, pair = generation + 1, 1 - pair
        todo += [("write", copy, Commit(generation, epoch, root)) for copy in case.pair(pair)]
        todo += [("flush", device) for device in range(case.devices)]
    todo.append(("serve",))
    memory = Memory(
        root.era, root, None, generation, epoch, pair, root.step, root.versions, (), None, tuple(todo), None, 0
    )
    return state._replace(memory=memory)


# ---- A commit


def commit_todo(case, memory, root):
    commit = Commit(memory.generation + 1, memory.epoch, root)
    pair = case.pair(1 - memory.pair)
    root_write = [("root",)]
    covered_devices = range(1 if "flush of all devices" in case.without else case.devices)
    first = [] if "first flush" in case.without else [("flush", device) for device in covered_devices]
    superblocks = [("write", copy, commit) for copy in pair]
    second = [] if "second flush" in case.without else [("flush", device) for device in range(case.devices)]
    if "map before superblock" in case.without:
        todo = superblocks + root_write + first + second + [("acknowledge",)]
    elif "acknowledgement last" in case.without:
        todo = root_write + first + superblocks + [("acknowledge",)] + second
    else:
        todo = root_write + first + superblocks + second + [("acknowledge",)]
    return tuple(todo)


def used_places(case, memory):
    """Those that somebody may still have to find as they are."""
    roots = [memory.newest, memory.frozen]
    if "keeping the last commit" in case.without and memory.frozen:
        roots = [memory.frozen]
    if "keeping what is frozen" in case.without:
        roots = [memory.newest]
    if "keeping snapshots" not in case.without:
        roots += [root.snapshot for root in roots if root]
    used = {place for root in roots if root for place, _ in root.versions}
    if memory.reader and "counting readers" not in case.without:
        used.add(memory.reader[0])
    return used


def find_place(case, memory, extent):
    """A free one: nothing is rewritten where it lies, even if no root names it yet."""
    used = used_places(case, memory) | {place for place, _ in memory.versions}
    return next((place for place in case.places if place not in used), None)


def free_slot(case, memory, snapshot):
    taken = {root.slot for root in (memory.newest, memory.newest.snapshot, snapshot) if root}
    return next(i for i in case.slots if i not in taken)


def freeze(case, state, snapshot):
    """Begins a commit; what only host memory has is written first."""
    memory = state.memory
    versions = memory.versions
    if memory.host:
        versions = put(versions, 1, (find_place(case, memory, 1), memory.host))
    root = Root(memory.era, memory.step, free_slot(case, memory, snapshot), versions, snapshot)
    todo = commit_todo(case, memory, root)
    if memory.host:
        todo = (("write back", versions[1][0]),) + todo
    changes = memory.changes + (snapshot != memory.newest.snapshot)
    return state._replace(memory=memory._replace(frozen=root, todo=todo, changes=changes))


def roll_back(case, state):
    """What the daemon has in memory is not what the job is then, so that session ends with it."""
    memory = state.memory
    kept = memory.newest.snapshot
    root = Root(memory.newest.era + 1, kept.step, free_slot(case, memory, kept), kept.versions, kept)
    todo = commit_todo(case, memory, root)
    if "ending at a roll back" not in case.without:
        todo += (("end",),)
    return state._replace(memory=memory._replace(frozen=root, todo=todo))


def begin_commit(case, state):
    memory = state.memory
    if memory.todo or memory.updated:
        return
    if memory.host and find_place(case, memory, 1) is None:
        if not memory.reader:
            raise Violation("what host memory has finds no place")
        return
    kept = memory.newest.snapshot
    if memory.step > memory.newest.step:
        yield freeze(case, state, kept)
    if memory.changes < 2 * case.snapshots:  # one is taken, and dropped
        yield freeze(case, state, None if kept else memory.newest)
    if kept and memory.newest.era < case.roll_backs:
        yield roll_back(case, state)


def write_back(case, state, place):
    memory = state.memory
    versions = put(memory.versions, 1, (place, memory.host))
    for after in written(state, place, memory.host):
        yield after._replace(memory=memory._replace(versions=versions, host=None))


def flush(case, state, device):
    """It may fail; then what it should have covered is kept or lost, and the session ends."""
    fresh = covered(case, state, device)
    if "reaping before flushes" in case.without and state.memory.frozen:
        for location in fresh:
            if location in case.places:
                left = flushed(case, state, device)
                safe = put(left.safe, location, state.safe[location])
                yield left._replace(safe=safe, fresh=put(left.fresh, location, state.fresh[location]))
    yield flushed(case, state, device)
    if state.failures == case.failures or not fresh:
        return
    for after in outcomes(case, state, fresh, False):
        yield after if "ending at a failed flush" in case.without else closed(case, after)


def carry_on(case, state):
    """The next of what opening or the commit has to do."""
    memory = state.memory
    if not memory.todo:
        return
    what, rest = memory.todo[0], memory.todo[1:]
    then = state._replace(memory=memory._replace(todo=rest))
    if what[0] == "write back":
        yield from write_back(case, then, what[1])
    elif what[0] == "root":
        root = memory.frozen
        if "freezing the map" in case.without:
            root = root._replace(versions=memory.versions)
            rest = tuple(("write", w[1], w[2]._replace(root=root)) if w[0] == "write" else w for w in rest)
            then = state._replace(memory=memory._replace(todo=rest, frozen=root))
        yield from written(then, root.slot, root)
    elif what[0] == "write":
        generation, pair = what[2].generation, 0 if what[1] in case.pair(0) else 1
        then = then._replace(memory=then.memory._replace(generation=generation, pair=pair))
        yield from written(then, what[1], what[2])
    elif what[0] == "flush":
        yield from flush(case, then, what[1])
    elif what[0] == "end":
        yield ended(case, then)
    else:
        if what[0] == "acknowledge":
            then = then._replace(memory=then.memory._replace(newest=memory.frozen, frozen=None))
        newest = then.memory.newest
        yield then._replace(promised=max(state.promised, (newest.era, newest.step)))


# ---- Updates and readers


def is_opening(memory):
    return bool(memory.todo) and memory.todo[-1] == ("serve",)


def update_in_host_memory(case, state, value):
    """It waits for the version that is frozen to be written; any other time is good for writing it."""
    memory = state.memory
    owes = any(what[0] == "write back" for what in memory.todo)
    if not owes or "waiting for what is frozen" in case.without:
        yield stepped(state._replace(memory=memory._replace(host=value)), memory.versions, memory.updated + (1,))


def update(case, state, extent, value):
    memory = state.memory
    place = find_place(case, memory, extent)
    if place is None:
        if not memory.todo and not memory.reader:
            raise Violation("an update finds no place")
        return
    versions = put(memory.versions, extent, (place, value))
    for after in written(state, place, value):
        yield stepped(after, versions, memory.updated + (extent,))


def updates(case, state):
    memory = state.memory
    if memory.host and not memory.todo and find_place(case, memory, 1) is not None:
        yield from write_back(case, state, find_place(case, memory, 1))
    if memory.step == case.steps:
        return
    for extent in EXTENTS:
        value = (extent, memory.step + 1, memory.epoch)
        if extent in memory.updated:
            continue
        if extent == 1 and case.host:
            yield from update_in_host_memory(case, state, value)
        else:
            yield from update(case, state, extent, value)
    if memory.updated:  # a step may leave some alone
        yield stepped(state, memory.versions, EXTENTS)


def stepped(state, versions, updated):
    memory = state.memory._replace(versions=versions, updated=tuple(sorted(updated)))
    if len(updated) == len(EXTENTS):
        memory = memory._replace(updated=(), step=memory.step + 1)
    return state._replace(memory=memory)


def readers(case, state):
    memory = state.memory
    if not case.reader:
        return
    if memory.reader is None:
        kept = memory.newest.snapshot
        for version in memory.versions[: 1 if case.host else None] + (kept.versions if kept else ()):
            yield state._replace(memory=memory._replace(reader=version))
    else:
        place, value = memory.reader
        if seen(state, place) != value:
            raise Violation("a reader gets another version")
        yield state._replace(memory=memory._replace(reader=None))


def successors(case, state):
    yield from interrupted(case, state)
    if state.memory is None:
        yield opened(case, state)
        return
    yield from carry_on(case, state)
    if is_opening(state.memory):
        return
    yield from begin_commit(case, state)
    yield from updates(case, state)
    yield from readers(case, state)


def explore(case):
    """The number of states. Violation: with the first one that is found."""
    start = first_state(case)
    known, waiting = {start}, [start]
    while waiting:
        state = waiting.pop()
        for after in successors(case, state):
            if after not in known:
                known.add(after)
                waiting.append(after)
    return len(known)


# ---- The cases

DESIGN = (
    Case(failures=2, steps=2),
    Case(failures=1, steps=3),
    Case(failures=1, steps=2, devices=2),
    Case(failures=1, steps=1, snapshots=1, reader=True),
    Case(failures=1, steps=1, snapshots=1, roll_backs=1),
    Case(failures=1, steps=2, reader=True),
    Case(failures=2, steps=2, host=True),
    Case(failures=1, steps=2, host=True, reader=True, devices=2),
)

LARGER = (
    Case(failures=3, steps=2),
    Case(failures=2, steps=3),
    Case(failures=2, steps=3, devices=2),
    Case(failures=1, steps=2, snapshots=1),
    Case(failures=1, steps=2, snapshots=1, reader=True),
    Case(failures=2, steps=2, reader=True),
    Case(failures=2, steps=3, host=True),
)

MUTATIONS = (
    Case("first flush"),
    Case("flush of all devices", devices=2),
    Case("second flush"),
    Case("acknowledgement last"),
    Case("map before superblock"),
    Case("reaping before flushes"),
    Case("ending at a failed flush"),
    Case("flush on open", "open commit"),
    Case("keeping the last commit"),
    Case("keeping snapshots", snapshots=1, steps=2),
    Case("ending at a roll back", snapshots=1, roll_backs=1, steps=2),
    Case("counting readers", reader=True),
    Case("freezing the map"),
    Case("keeping what is frozen"),
    Case("spare place"),
    Case("waiting for what is frozen", host=True),
)


def main():
    started = time.monotonic()
    for case in DESIGN + (LARGER if sys.argv[1:] == ["--long"] else ()):
        count = explore(case)
        line = f"the design, {case}: {count} states; {time.monotonic() - started:.0f} s so far"
        print(line, flush=True)
        if path := os.environ.get("TIERD_PROGRESS"):
            with open(path, "a", encoding="utf-8") as file:
                print(line, file=file)
    missed = 0
    for case in MUTATIONS:
        try:
            explore(case)
            print(f"{case}: goes unnoticed")
            missed += 1
        except Violation as violation:
            print(f"{case}: {violation}")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
