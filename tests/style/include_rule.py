#!/usr/bin/env python3
"""Who may include whom: fails on an #include that points the wrong way. See docs/HACKING.md.

usage: include_rule.py ROOT | include_rule.py --self-test
"""
import os
import re
import sys
import tempfile

# Folders of the tree that the files of a folder may include, beside those of the folder itself.
MAY_INCLUDE = {
    "common": set(),
    "proto": {"common"},
    # Of the machine's GPUs users are told by their own processes, too, and a rank gathers on one.
    "client": {"proto", "common", "offload/cuda/driver.h", "offload/cuda/gpus.h", "collectives/nccl/nccl.h"},
    "offload": {"common"},
    "collectives": {"common"},
    "daemon": {"common", "proto", "offload", "collectives"},
    # Nothing that computes: what the examples compute is the reference for the daemon's numbers.
    "examples": {"client/tierd.h", "common/cleanup.h", "common/clock.h", "common/cuda_code.h", "common/dynamic_library.h", "common/simd.h"},
    "tests": {"common", "proto", "client", "offload", "collectives", "daemon", "examples"},
}

# Headers from outside, and the only files (or folders, with a final slash) that may include them. tests/ may include any.
VENDOR = [
    (r"liburing(\.h|/.*)", ["offload/device/ring.c"]),
    (r"(event2?/.*|event\.h)", ["daemon/"]),
    (r"(protobuf-c/.*|.*\.pb-c\.h)", ["proto/", "client/", "daemon/"]),
    (r"Python\.h", ["client/python/"]),
    (r"cuda.*", ["offload/cuda/"]),
    (r"nccl.*", ["collectives/nccl/"]),
    (r"(ucp|uct|ucs|ucm)/.*", ["collectives/ucx/"]),
]

SOURCE = (".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".in")
INCLUDE = re.compile(r'\s*#\s*include\b\s*(?:"([^"]+)"|<([^>]+)>|(.*))')


def sources(root):
    for folder in sorted(MAY_INCLUDE):
        for path, folders, names in os.walk(os.path.join(root, folder)):
            folders.sort()
            for name in sorted(names):
                if name.endswith(SOURCE):
                    yield os.path.relpath(os.path.join(path, name), root)


def target(root, file, header):
    """The path in the tree that an include means, or None for a header from outside."""
    beside = os.path.normpath(os.path.join(os.path.dirname(file), header))
    if header.startswith(".") or os.path.exists(os.path.join(root, beside)):
        return beside
    path = os.path.normpath(header)
    return path if path.split("/")[0] in MAY_INCLUDE else None


def breach(root, file, header):
    folder = file.split("/")[0]
    path = target(root, file, header)
    if path:
        owner = path.split("/")[0]
        allowed = MAY_INCLUDE[folder]
        if owner not in MAY_INCLUDE:
            return f"{path} lies outside the folders of the tree"
        if owner != folder and owner not in allowed and path not in allowed:
            return f"{folder}/ may not include {path}"
    if folder == "tests":
        return None
    for pattern, places in VENDOR:
        if re.fullmatch(pattern, header) and not file.startswith(tuple(places)):
            return f"only {' and '.join(places)} may include {header}"
    return None


def check(root):
    found = []
    for file in sources(root):
        with open(os.path.join(root, file), encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                quoted, angled, other = match.groups()
                reason = (f"cannot tell what {other!r} includes" if other is not None
                          else breach(root, file, quoted or angled))
                if reason:
                    found.append(f"{file}:{number}: {reason}")
    return found


def self_test():
    good = {
        "common/log.c": '#include <stdio.h>\n#include "common/log.h"\n',
        "common/log.h": "// #include <liburing.h>\n",
        "proto/frame.c": '#include "frame.h"\n#include "proto/tierd.pb-c.h"\n#include "common/log.h"\n',
        "proto/frame.h": "",
        "client/library/pages/job.c": '#include "client/tierd.h"\n#include "proto/frame.h"\n',
        "client/tierd.h": "",
        "client/python/core/job.c": '#include <Python.h>\n#include "client/tierd.h"\n',
        "offload/device/ring.c": "#include <liburing.h>\n",
        "offload/cuda/gpu.c": "#include <cuda_runtime.h>\n",
        "collectives/local.c": '#include "common/log.h"\n',
        "daemon/service/main.c": '#include <event2/event.h>\n#include "offload/ring.h"\n#include "collectives/x.h"\n',
        "examples/gpt/gpt.c": '#include "client/tierd.h"\n#include "common/cleanup.h"\n#include "model.h"\n',
        "tests/unit/ring.c": '#include "daemon/session/session.h"\n#include <liburing.h>\n',
    }
    bad = {
        "common/log.c": '#include "proto/frame.h"\n',
        "proto/frame.c": '#include "client/tierd.h"\n',
        "client/library/pages/job.c": '#include <daemon/session/session.h>\n',
        "client/value.c": "#include <Python.h>\n",
        "client/main.c": '#include "../daemon/session/session.h"\n',
        "offload/device/nvme.c": "  #  include <liburing.h>\n",
        "offload/device/host.c": '#include "proto/pages.h"\n',
        "offload/store/store.c": '#include "collectives/collective.h"\n',
        "offload/device/memory.c": "#include <cuda.h>\n",
        "collectives/local.c": '#include "offload/device/tier.h"\n',
        "collectives/ring.c": "#include <event2/event.h>\n",
        "collectives/peer.c": "#include <ucp/api/ucp.h>\n",
        "daemon/service/main.c": '#include "client/tierd.h"\n',
        "daemon/life/job.c": "#include <nccl.h>\n",
        "examples/gpt/gpt.c": '#include "common/bfloat16.h"\n',
        "examples/gpt/model.c": '#include "proto/pages.h"\n',
        "daemon/macro.c": "#include HEADER\n",
    }
    with tempfile.TemporaryDirectory() as root:
        for files, expected in ((good, 0), (bad, len(bad))):
            for file, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, file)), exist_ok=True)
                with open(os.path.join(root, file), "w", encoding="utf-8") as out:
                    out.write(text)
            found = check(root)
            if len(found) != expected:
                print("\n".join(found))
                sys.exit(f"{len(found)} breaches found, {expected} made")


if len(sys.argv) != 2:
    sys.exit(__doc__)
if sys.argv[1] == "--self-test":
    self_test()
else:
    breaches = check(sys.argv[1])
    if breaches:
        sys.exit("\n".join(breaches))
