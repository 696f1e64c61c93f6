"""The filters: which system calls a sandboxed process may make."""
import ctypes
import errno
import os
import socket
import stat
import subprocess

from unit import die, skip

# Of the headers of libseccomp and of the kernel.
ALLOW, EQUAL, NOT_EQUAL, MASKED = 0x7FFF0000, 4, 1, 7
NAMESPACES = (0x20000, 0x40000000, 0x10000000, 0x20000000, 0x8000000, 0x4000000, 0x2000000, 0x80)
PROT_WRITE, PROT_EXEC, SHM_EXEC = 2, 4, 0o100000
# The argument that is a mode.
MODES = {
    "chmod": 1, "fchmod": 1, "fchmodat": 2, "mkdir": 1, "mkdirat": 2, "mknod": 1, "mknodat": 2,
    "open": 2, "openat": 3, "creat": 1,
}
try:
    seccomp = ctypes.CDLL("libseccomp.so.2")
except OSError:
    skip("libseccomp is not installed")
seccomp.seccomp_init.restype = ctypes.c_void_p


class Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint), ("operator", ctypes.c_int), ("first", ctypes.c_uint64), ("second", ctypes.c_uint64),
    )


def refusal(error):
    return 0x00050000 | error


class Filter:
    """Of system calls, which ends with the process. What is not said is done as by default."""

    def __init__(self, default):
        self.context = ctypes.c_void_p(seccomp.seccomp_init(default))

    def add(self, action, name, *comparison):
        """Calls that only other architectures have are passed over, as systemd does."""
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        compared = (Comparison(*comparison),) if comparison else ()
        result = number >= 0 and seccomp.seccomp_rule_add_array(
            self.context, action, number, len(compared), (Comparison * len(compared))(*compared))
        if result < 0:
            die(f"no rule for {name}: {os.strerror(-result)}")

    def refuse(self, name, *comparison, error=errno.EPERM):
        self.add(refusal(error), name, *comparison)

    def refuse_bits(self, name, argument, bits):
        self.refuse(name, argument, MASKED, bits, bits)

    def load(self):
        result = seccomp.seccomp_load(self.context)
        if result < 0:
            skip(f"the kernel takes no filter of system calls: {os.strerror(-result)}")


# ---- Groups of system calls


def learn_groups():
    """From systemd-analyze(1), which calls a group such as @system-service has."""
    said = subprocess.run(["systemd-analyze", "--no-pager", "syscall-filter"], capture_output=True, text=True)
    groups = {}
    for line in said.stdout.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith("@"):
            members = groups.setdefault(word, [])
        elif word and line.startswith(" "):
            members.append(word)
    if said.returncode != 0 or not groups:
        skip("systemd-analyze, which knows the groups of system calls, does not work here")
    return groups


def calls_of(groups, name):
    if not name.startswith("@"):
        return {name}
    if name not in groups:
        die(f"no group of system calls is called {name}")
    return set().union(*(calls_of(groups, member) for member in groups[name]))


# ---- Directives


def restrict_namespaces(refused):
    for kind in NAMESPACES:
        refused.refuse_bits("clone", 0, kind)
        refused.refuse_bits("unshare", 0, kind)
    refused.refuse("setns")
    # Its flags lie in memory, where a filter cannot look; libraries fall back to clone.
    refused.refuse("clone3", error=errno.ENOSYS)


def deny_write_execute(refused):
    refused.refuse_bits("mmap", 2, PROT_WRITE | PROT_EXEC)
    refused.refuse_bits("mprotect", 2, PROT_EXEC)
    refused.refuse_bits("pkey_mprotect", 2, PROT_EXEC)
    refused.refuse_bits("shmat", 2, SHM_EXEC)


def restrict_set_id(refused):
    for name, argument in MODES.items():
        refused.refuse_bits(name, argument, stat.S_ISUID)
        refused.refuse_bits(name, argument, stat.S_ISGID)
    refused.refuse("openat2", error=errno.ENOSYS)


def restrict_realtime(refused):
    refused.refuse("sched_setscheduler", 1, EQUAL, os.SCHED_FIFO)
    refused.refuse("sched_setscheduler", 1, EQUAL, os.SCHED_RR)
    refused.refuse("sched_setattr")


def lock_personality(refused):
    refused.refuse("personality", 0, NOT_EQUAL, ctypes.CDLL(None).personality(0xFFFFFFFF))


def protect_hostname(refused):
    refused.refuse("sethostname")
    refused.refuse("setdomainname")


DIRECTIVES = {
    "RestrictNamespaces": restrict_namespaces,
    "MemoryDenyWriteExecute": deny_write_execute,
    "RestrictSUIDSGID": restrict_set_id,
    "RestrictRealtime": restrict_realtime,
    "LockPersonality": lock_personality,
    "ProtectHostname": protect_hostname,
    "ProtectKernelLogs": lambda refused: refused.refuse("syslog"),
}
GROUPS = {"ProtectClock": "@clock", "ProtectKernelModules": "@module", "PrivateDevices": "@raw-io"}


def refuse_by_directives(unit, groups):
    refused = Filter(ALLOW)
    for key, add in DIRECTIVES.items():
        if unit.is_on(key):
            add(refused)
    for key, group in GROUPS.items():
        for name in calls_of(groups, group) if unit.is_on(key) else ():
            refused.refuse(name)
    families = unit.words("RestrictAddressFamilies")
    if families not in ([], ["AF_UNIX"]):
        die(f"RestrictAddressFamilies={families}: only AF_UNIX is understood")
    if families:
        refused.refuse("socket", 0, NOT_EQUAL, socket.AF_UNIX, error=errno.EAFNOSUPPORT)
    return refused


def allow_calls(unit, groups):
    """Whatever the list does not name is refused; None: there is no list."""
    words = unit.words("SystemCallFilter")
    if not words:
        return None
    if words[0].startswith("~"):
        die("SystemCallFilter= must begin with what it allows")
    allowed = calls_of(groups, "@default")
    for word in words:
        named = calls_of(groups, word.removeprefix("~"))
        allowed = allowed - named if word.startswith("~") else allowed | named
    filter_ = Filter(refusal(errno.EPERM))
    for name in allowed:
        filter_.add(ALLOW, name)
    return filter_


def apply(unit, groups):
    """For this process and what it becomes, for good; NoNewPrivileges is on. The list of what is allowed comes last: loading
    a filter is not in it. Each filter knows the native architecture only, as SystemCallArchitectures=native says."""
    if unit.get("SystemCallArchitectures") != "native" or unit.get("SystemCallErrorNumber") != "EPERM":
        die("SystemCallArchitectures=native and SystemCallErrorNumber=EPERM are the only ones understood")
    for loaded in (refuse_by_directives(unit, groups), allow_calls(unit, groups)):
        if loaded:
            loaded.load()
