#!/usr/bin/env python3
"""Starts a program under the restrictions of a unit file, as far as they can be had without systemd.

usage: sandbox.py --unit FILE… [--bind SOURCE:DESTINATION]… [-- PROGRAM ARGUMENT…]

Without a program it starts ExecStart=. A directive that it does not know is an error, so that nothing is added to the unit
that no test has looked at. It needs root; 77 says that this machine does not allow what it needs."""
import argparse
import ctypes
import errno
import grp
import os
import pwd
import resource
import sys
import tempfile

import filters
from unit import Unit, die, skip

# What this program applies beside what filters.py does; PrivateUsers= is switched off, with a reason in the unit.
APPLIED = set("""User Group UMask LimitMEMLOCK LimitNOFILE OOMScoreAdjust NoNewPrivileges CapabilityBoundingSet
AmbientCapabilities RuntimeDirectory RuntimeDirectoryMode StateDirectory StateDirectoryMode ConfigurationDirectory
ReadWritePaths ProtectSystem ProtectHome PrivateTmp PrivateNetwork ProtectKernelTunables ProtectControlGroups
RestrictAddressFamilies SystemCallArchitectures SystemCallFilter SystemCallErrorNumber ExecStart PrivateUsers""".split())
# What is the service manager's, when it starts and ends a service, or needs BPF.
LEFT_OUT = set("""Type ExecReload ExecStop Restart WatchdogSec TimeoutStartSec TimeoutStopSec RuntimeDirectoryPreserve
RemoveIPC IPAddressDeny""".split())
FOLDERS = {"RuntimeDirectory": "/run", "StateDirectory": "/var/lib"}
LIMITS = {"LimitMEMLOCK": resource.RLIMIT_MEMLOCK, "LimitNOFILE": resource.RLIMIT_NOFILE}
# Of the kernel's headers.
MS_NOSUID, MS_NODEV, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 2, 4, 1 << 12, 1 << 13, 1 << 14, 1 << 18
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x20000, 0x4000000, 0x40000000
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 23, 24, 38, 47, 4
libc = ctypes.CDLL(None, use_errno=True)


def call(function, *arguments):
    """Of the C library; words are paths."""
    if function(*(word.encode() if isinstance(word, str) else word for word in arguments)) < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{function.__name__}{arguments}: {os.strerror(error)}")


def check_directives(unit):
    for key, _ in unit.lines:
        if key not in APPLIED | LEFT_OUT | set(filters.DIRECTIVES) | set(filters.GROUPS):
            die(f"{key}= is in the unit, and nobody has decided how it is tested")
    if unit.is_on("PrivateUsers"):
        die("PrivateUsers=yes would hide who the clients are")


# ---- Mounts: what is seen of the machine's files, and what may be changed of them


def mount(source, target, kind=None, flags=0, options=None):
    call(libc.mount, source, target, kind, ctypes.c_ulong(flags), options)


def bind(source, destination):
    mount(source, destination, flags=MS_BIND | MS_REC)


def set_read_only(path, is_read_only=True, is_recursive=False):
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY * is_read_only, MOUNT_ATTR_RDONLY * (not is_read_only))
    call(libc.syscall, SYS_MOUNT_SETATTR, AT_FDCWD, path, AT_RECURSIVE * is_recursive, attributes,
         ctypes.c_size_t(ctypes.sizeof(attributes)))


def leave_namespaces(unit):
    flags = CLONE_NEWNS | CLONE_NEWNET * unit.is_on("PrivateNetwork") | CLONE_NEWUTS * unit.is_on("ProtectHostname")
    try:
        call(libc.unshare, flags)
        mount(None, "/", flags=MS_REC | MS_PRIVATE)
    except OSError as error:
        skip(f"this machine does not allow us namespaces of our own: {error}")


def mount_fresh(path, options):
    mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options)


def hide_folder(path):
    if os.path.exists(path):
        mount_fresh(path, "mode=000,nr_inodes=1")
        set_read_only(path)


def hide_file(path):
    """Another file, which nobody may read, is seen in its place."""
    if os.path.exists(path):
        with tempfile.NamedTemporaryFile() as hidden:
            os.fchmod(hidden.fileno(), 0)
            bind(hidden.name, path)


def make_devices():
    """Nodes are bound, because containers may not make any."""
    folder = tempfile.mkdtemp()
    mount_fresh(folder, "mode=755")
    for name in ("null", "zero", "full", "random", "urandom"):
        os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        bind(f"/dev/{name}", f"{folder}/{name}")
    mount(folder, "/dev", flags=MS_MOVE)
    os.rmdir(folder)
    set_read_only("/dev")


def protect_system():
    """All but the kernel's own file systems, which have directives of their own. What lies below another mount is out of
    reach already."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        # A blank in a path is \040 there.
        paths = [line.split()[4].replace("\\040", " ") for line in file]
    for path in paths:
        if path.split("/")[1] not in ("proc", "sys", "dev"):
            try:
                set_read_only(path)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EINVAL):
                    raise


def protect_kernel(unit):
    if unit.is_on("ProtectKernelTunables"):
        for path in ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"):
            if os.path.exists(path):
                bind(path, path)
                set_read_only(path, is_recursive=True)
        set_read_only("/sys", is_recursive=True)
    elif unit.is_on("ProtectControlGroups"):
        set_read_only("/sys/fs/cgroup", is_recursive=True)
    if unit.is_on("ProtectKernelModules"):
        hide_folder("/usr/lib/modules")
    if unit.is_on("ProtectKernelLogs"):
        hide_file("/proc/kmsg")


def make_folders(unit, uid, gid):
    """What the service manager makes; before anything is read-only."""
    made = [(key, f"{parent}/{unit.get(key)}") for key, parent in FOLDERS.items() if unit.get(key)]
    for key, path in made:
        os.makedirs(path, exist_ok=True)
        os.chown(path, uid, gid)
        os.chmod(path, int(unit.get(f"{key}Mode") or "755", 8))
    return [path for _, path in made]


def restrict_mounts(unit, uid, gid):
    if unit.get("ProtectSystem") not in ("strict", "no"):
        die(f"ProtectSystem={unit.get('ProtectSystem')}: only strict is understood")
    writable = make_folders(unit, uid, gid) + unit.words("ReadWritePaths")
    if unit.is_on("PrivateDevices"):
        make_devices()
    protect_kernel(unit)
    if unit.get("ProtectSystem") == "strict":
        protect_system()
    for path in ("/home", "/root", "/run/user") if unit.is_on("ProtectHome") else ():
        hide_folder(path)
    for path in ("/tmp", "/var/tmp") if unit.is_on("PrivateTmp") else ():
        mount_fresh(path, "mode=1777")
    for path in writable:
        bind(path, path)
        set_read_only(path, is_read_only=False)


# ---- Identity: user, limits and capabilities


def raise_limits(unit):
    """What this machine does not let us raise is said."""
    for key, kind in LIMITS.items():
        text = unit.get(key)
        if text:
            wanted = resource.RLIM_INFINITY if text == "infinity" else int(text)
            try:
                resource.setrlimit(kind, (wanted, wanted))
            except (OSError, ValueError):
                print(f"not applied: {key}={text}: beyond the hard limit here, {resource.getrlimit(kind)[1]}")
    score = unit.get("OOMScoreAdjust")
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="utf-8") as file:
            file.write(score)
    except OSError as error:
        print(f"not applied: OOMScoreAdjust={score}: {error.strerror}")


def drop_capabilities(unit):
    """Lists are not needed: nothing, or '~' alone, which is everything."""
    if unit.get("AmbientCapabilities") or unit.get("CapabilityBoundingSet") not in ("", "~"):
        die("AmbientCapabilities= and CapabilityBoundingSet=: only empty ones are understood")
    capability = 0
    while not unit.get("CapabilityBoundingSet") and libc.prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0:
        call(libc.prctl, PR_CAPBSET_DROP, capability, 0, 0, 0)
        capability += 1
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def take_identity(unit, uid, gid):
    raise_limits(unit)
    if unit.get("UMask"):
        os.umask(int(unit.get("UMask"), 8))
    drop_capabilities(unit)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    # Filters need it, too.
    if not unit.is_on("NoNewPrivileges"):
        die("NoNewPrivileges= is not on")
    call(libc.prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--unit", action="append", default=[])
    parser.add_argument("--bind", action="append", default=[])
    parser.add_argument("program", nargs="*")
    arguments = parser.parse_args()
    unit = Unit(arguments.unit)
    check_directives(unit)
    groups = filters.learn_groups()
    leave_namespaces(unit)
    for pair in arguments.bind:
        bind(*pair.split(":"))
    uid, gid = pwd.getpwnam(unit.get("User")).pw_uid, grp.getgrnam(unit.get("Group")).gr_gid
    restrict_mounts(unit, uid, gid)
    take_identity(unit, uid, gid)
    os.chdir("/")
    sys.stdout.flush()
    filters.apply(unit, groups)
    program = arguments.program or [unit.get("ExecStart")]
    os.execv(program[0], program)


main()
