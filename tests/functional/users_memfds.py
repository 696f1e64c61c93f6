"""What tierd shares with a client is attacked through its descriptors, as another user than tierd's (see users.sh)."""
import ctypes
import fcntl
import mmap
import os
import sys

from messages import MAP, OPEN, READY, Client, data, define, number
from users import ALICE, BOB, train

PR_SET_DUMPABLE = 4
KEEP_SIZE, PUNCH_HOLE = 1, 2
F_ADD_SEALS, F_SEAL_WRITE = 1033, 8
PAGE = 4096
READ_ONLY = {"directory", "arena", "cache", "node", "job"}
WRITABLE = {"window", "leases", "gradients"}
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


def map_for_writing(fd):
    mmap.mmap(fd, PAGE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE).close()


def make_writable(fd):
    address = libc.mmap(None, PAGE, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if libc.mprotect(address, PAGE, mmap.PROT_READ | mmap.PROT_WRITE) < 0:
        raise OSError(ctypes.get_errno(), "mprotect")


def punch(fd):
    if libc.fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 0, PAGE) < 0:
        raise OSError(ctypes.get_errno(), "fallocate")


ATTACKS = {
    "map": map_for_writing,
    "protect": make_writable,
    "write": lambda fd: os.pwrite(fd, b"x", 0),
    "punch": punch,
    "open again": lambda fd: os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDWR)),
    "open again by all": lambda fd: os.fchmod(fd, 0o777),
    "cut": lambda fd: os.truncate(fd, 0),
    "grow": lambda fd: os.truncate(fd, os.fstat(fd).st_size + PAGE),
    "seal": lambda fd: fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE),
}


def succeeding(fd):
    found = set()
    for name, attack in ATTACKS.items():
        try:
            attack(fd)
            found.add(name)
        except OSError:
            pass
    return found


def join():
    client = Client()
    status, text, _ = client.call(OPEN, data(1, "attacked") + number(3, 1) + number(4, 3))
    assert status == 0, text
    for unit in range(4):
        assert define(client, 1, f"unit{unit}", 1 << 20)[0] == 0
    assert client.call(READY, number(1, 1) + number(2, 20000))[0] == 0
    assert client.call(MAP, b"")[0] == 0 and client.call(MAP, data(1, "attacked"))[0] == 0
    return client


def attack_all():
    """Of each thing that is shared, by its name."""
    client, attacked = join(), set()
    for fd in client.descriptors:
        link = os.readlink(f"/proc/self/fd/{fd}")
        if "/memfd:tierd-" not in link:
            continue
        name = link.removeprefix("/memfd:tierd-").split(" ")[0]
        attacked.add(name)
        # Who may write there may empty it, too, and hurts himself.
        expected = {"map", "protect", "write", "punch"} if name in WRITABLE else set()
        assert succeeding(fd) == expected, (name, succeeding(fd))
    assert attacked == READ_ONLY | WRITABLE, attacked
    client.close()


def become(uid):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # Changing the user hides /proc/self/fd, which an attacker would not suffer from.
    assert libc.prctl(PR_SET_DUMPABLE, 1) == 0


def as_another(run):
    child = os.fork()
    if child == 0:
        try:
            become(ALICE)
            run()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def the_attacks_can_succeed():
    """A plain memfd of another user falls to them, also where only reading was meant."""
    plain = os.memfd_create("plain")
    os.truncate(plain, PAGE)
    read_only = os.open(f"/proc/self/fd/{plain}", os.O_RDONLY)

    def run():
        assert "open again" in succeeding(read_only)
        assert {"map", "protect", "write", "punch", "open again", "cut", "grow"} <= succeeding(plain)

    as_another(run)
    os.close(read_only)
    os.close(plain)


the_attacks_can_succeed()
as_another(attack_all)
# Nobody else has noticed.
train(BOB, job="beside")
