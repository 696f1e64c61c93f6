"""A limit of host memory for processes and all that they start: a cgroup, where one can be made."""
import errno
import os

ROOT = "/sys/fs/cgroup"


def write(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="ascii") as file:
        file.write(str(value))


def own_group(controller):
    """Where this process is in the hierarchy: of cgroup v1's controller, or, with "", of cgroup v2."""
    with open("/proc/self/cgroup", encoding="ascii") as lines:
        for line in lines:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controller in controllers.split(","):
                return path.lstrip("/")
    raise OSError(errno.ENOENT, "this system has no such cgroup")


class Limit:
    def __init__(self, limit_bytes):
        self.folder, self.reason = None, None
        try:
            if os.path.exists(os.path.join(ROOT, "cgroup.controllers")):
                self._make(os.path.join(ROOT, own_group("")), "memory.max", "memory.swap.max", limit_bytes)
            else:
                self._make(os.path.join(ROOT, "memory", own_group("memory")), "memory.limit_in_bytes", "memory.swappiness",
                           limit_bytes)
        except OSError as error:
            self.remove()
            self.reason = error.strerror

    def _make(self, parent, name, swap, limit_bytes):
        self.folder = os.path.join(parent, f"tierd-demo-{os.getpid()}")
        os.mkdir(self.folder)
        write(self.folder, name, limit_bytes)
        write(self.folder, swap, 0)

    def describe(self):
        if self.reason:
            return f"not enforced, only measured: no cgroup can be made: {self.reason}"
        return "enforced by a cgroup"

    def enter(self):
        """In a child that is about to become a program."""
        if self.folder:
            write(self.folder, "cgroup.procs", os.getpid())

    def remove(self):
        """When all that has entered has ended."""
        folder, self.folder = self.folder, None
        try:
            if folder:
                os.rmdir(folder)
        except OSError:
            pass
