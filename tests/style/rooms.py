#!/usr/bin/env python3
"""The modules of daemon/, offload/, collectives/ and client/, and their order: fails where a file includes a header of a module above its
own, or an object calls a function of one. docs/HACKING.md says what a module above may do instead. Of a module of daemon/
others include its front alone, MODULE/MODULE.h. No more than LARGEST_CIRCLE files call one another in a circle.

usage: rooms.py ROOT BUILD           checks
       rooms.py ROOT BUILD --picture prints what docs/architecture.md has between its marks
"""
import collections
import os
import re
import subprocess
import sys

# From the bottom up.
ROOMS = {
    "daemon": {
        "request": "a request of a client, and where its answer goes",
        "model": "what a job is: catalog, options, shape, names; data that all may read",
        "telemetry": "events and who watches them, traces, counters, where they arise",
        "resources": "the node's memory and disk: budgets, staging buffers, who holds what",
        "residency": "packs in host memory: slots, gather, prefetch, eviction, cache",
        "gpu": "packs in the memory of GPUs, gradients pushed from there, sums and updates there, mirrors of state",
        "gradients": "pushes, sums, spilling, the norm",
        "update": "the step: decision, sweep, early updates, warm state",
        "durability": "records, commits, snapshots, the list of jobs",
        "values": "values of tensors: readers, views, copies, sources, drafts",
        "scrub": "verifying what lies on NVMe, and what is damaged there",
        "life": "a job from its opening to its end: ranks, epochs, plans, idle jobs",
        "recovery": "jobs come back from their stores: after a start, a roll back, a fork",
        "observe": "what users are shown: reports, statistics, wear",
        "session": "sockets, frames, requests decoded and handed on",
        "service": "the process: configuration, systemd, signals",
    },
    "offload": {
        "optimizer": "the optimizers' kernels, and number formats",
        "device": "tiers of memory, io_uring, the schedule of a device",
        "store": "extents, maps, commits, snapshots, forks",
        "cuda": "GPUs: what serves them, their memory, copies from and to it, kernels and updates",
    },
    "collectives": {
        "nccl": "GPU memory of ranks: communicators, by NCCL",
    },
    "client": {
        "library": "libtierd",
        "safetensors": "files of tensors",
        "tierctl": "the command",
        "python": "the Python package",
    },
    "client/library": {
        "connection": "the socket that all threads share: frames, mappings, messages of errors",
        "gpu": "the GPU that a rank gathers on: its memory, streams, events",
        "pages": "what a rank has of a job: tickets, leases, gradient buffers, the exchange window",
        "joining": "a rank comes into its job: opened, ready, and again after a connection was lost",
        "calls": "the functions of tierd.h",
    },
}

LARGEST_CIRCLE = 10

TOPS = sorted({top.split("/")[0] for top in ROOMS})

MARKS = "<!-- modules: begin, by tests/style/rooms.py -->\n", "<!-- modules: end -->\n"
INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')


def rooms_of(path):
    """The modules that a file is in, by the folder that they are modules of."""
    return {top: room for top, rooms in ROOMS.items() for room in rooms if path.startswith(f"{top}/{room}/")}


def includes(root):
    """(module, module): lines that include a header of the second."""
    found = collections.defaultdict(set)
    for top in TOPS:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in filter(lambda name: name.endswith((".c", ".h", ".cu")), names):
                path = os.path.relpath(os.path.join(folder, name), root)
                with open(os.path.join(root, path), encoding="utf-8") as lines:
                    headers = [match[1] for match in map(INCLUDE.match, lines) if match]
                for header in headers:
                    for pair in pairs(rooms_of(path), rooms_of(header)):
                        found[pair].add(f"{path} includes {header}")
    return found


def past_fronts(included):
    """path: headers of modules below that it includes and that are no fronts."""
    found = collections.defaultdict(list)
    for pair, texts in included.items():
        top, room = pair[1]
        if top != "daemon" or goes_up(pair):
            continue
        for path, header in (text.split(" includes ") for text in texts):
            if header != f"{top}/{room}/{room}.h":
                found[path].append(header)
    return found


def pairs(ours, theirs):
    """Two modules of one folder: each as that folder and its name."""
    return [((top, room), (top, theirs[top])) for top, room in ours.items() if theirs.get(top, room) != room]


def rooms_of_object(path):
    """Meson names an object after its source: FOLDER_NAME.c.o, below the folder whose meson.build has the target."""
    *folders, name = path.split("/")
    flat = "_".join([folder for folder in folders if not folder.endswith(".p")] + [name])
    return {top: room for top, rooms in ROOMS.items() for room in rooms
            if flat.startswith(f"{top}/{room}_".replace("/", "_"))}


def symbols(build):
    """Of each object: its module, what it defines, what it wants."""
    for top in TOPS:
        objects = [os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(build, top))
                   for name in names if name.endswith(".o")]
        defined, wanted = collections.defaultdict(set), collections.defaultdict(set)
        output = subprocess.run(["nm", "-A", "-g", *sorted(objects)], stdout=subprocess.PIPE, check=True, text=True).stdout
        for line in output.splitlines():
            path, rest = line.split(":", 1)
            *_, kind, name = rest.split()
            (wanted if kind in "Uvw" else defined)[path].add(name)
        for path in objects:
            rooms = rooms_of_object(os.path.relpath(path, build))
            if rooms:
                yield rooms, os.path.basename(path)[:-len(".o")], defined[path], wanted[path]


def circles(build):
    """Files that call one another in a circle, largest first."""
    every = [(next(iter(rooms)).split("/")[0], *rest) for rooms, *rest in symbols(build)]
    home = {(top, name): (top, source) for top, source, names, _ in every for name in names}
    called = {(top, source): {home[top, name] for name in names if (top, name) in home} for top, source, _, names in every}

    def reached(first):
        seen, left = set(), [first]
        while left:
            left += [file for file in called[left.pop()] if file not in seen and not seen.add(file)]
        return seen

    reach = {file: reached(file) for file in called}
    return sorted({frozenset(other for other in reach[file] if file in reach[other]) for file in reach}, key=len, reverse=True)


def calls(build):
    """(module, module): functions of the second that the first calls."""
    every = list(symbols(build))
    home = {(next(iter(rooms)).split("/")[0], name): (rooms, source) for rooms, source, names, _ in every for name in names}
    found = collections.defaultdict(set)
    for rooms, source, _, names in every:
        for name in names:
            there, callee = home.get((next(iter(rooms)).split("/")[0], name), (rooms, source))
            for pair in pairs(rooms, there):
                found[pair].add(f"{name} of {callee} is called in {source}")
    return found


def goes_up(pair):
    order = list(ROOMS[pair[0][0]])
    return pair[0][0] == pair[1][0] and order.index(pair[1][1]) > order.index(pair[0][1])


def picture(arrows):
    lines = []
    for top, rooms in ROOMS.items():
        lines += [f"**{top}/**", "", "| module | what it is | uses |", "|---|---|---|"]
        for room in reversed(rooms):
            below = [other for other in reversed(rooms) if ((top, room), (top, other)) in arrows and
                     not goes_up(((top, room), (top, other)))]
            lines.append(f"| `{room}` | {rooms[room]} | {', '.join(below) or '-'} |")
        lines.append("")
    return "\n".join(lines)


def check(root, build):
    included, called = includes(root), calls(build)
    if not called:
        return [f"{build}: no objects that call one another: has it been built?"]
    found = []
    for pair in sorted(filter(goes_up, set(included) | set(called))):
        found.append(f"{pair[0][0]}: {pair[0][1]} -> {pair[1][1]} goes upwards:")
        found += ["    " + text for text in sorted(included[pair] | called[pair])]
    for path, headers in sorted(past_fronts(included).items()):
        found.append(f"{path} includes {', '.join(sorted(headers))}, of other modules, instead of their fronts")
    for circle in circles(build):
        if len(circle) > LARGEST_CIRCLE:
            found.append(f"{len(circle)} files call one another in a circle: {', '.join(sorted(name for _, name in circle))}")
    with open(os.path.join(root, "docs/architecture.md"), encoding="utf-8") as file:
        begin, end = map(file.read().partition, MARKS)
    if begin[2].partition(MARKS[1])[0].strip() != picture(set(included) | set(called)).strip() or not end[1]:
        found.append(f"docs/architecture.md has another picture: {os.path.basename(__file__)} ROOT BUILD --picture")
    return found


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    root, build = sys.argv[1:3]
    if sys.argv[3:] == ["--picture"]:
        print(picture(set(includes(root)) | set(calls(build))))
    else:
        breaches = check(root, build)
        if breaches:
            sys.exit("\n".join(breaches))


main()
