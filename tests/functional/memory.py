"""The daemon's memory, and whether it grows when it is looked at again and again."""
import os
from statistics import median

# Fewer samples show no slope.
LEAST = 20
# Memory comes in pages, and the heap in a few of them.
GRAIN = 64 << 10


def daemon_file(name):
    with open(f"/proc/{os.environ['TIERD_PID']}/{name}", encoding="utf-8") as file:
        return file.read()


def private_bytes():
    """That the daemon has for itself; not what it only reads of its programs, which others may read too, or not."""
    fields = dict(line.split(":", 1) for line in daemon_file("smaps_rollup").splitlines()[1:])
    return int(fields["Private_Dirty"].split()[0]) << 10


def is_sanitized():
    """By its shadow memory. What is freed is kept for long then, and leaks are the sanitizer's to find."""
    return int(daemon_file("status").split("VmSize:")[1].split()[0]) > 1 << 30


class Trend:
    """The slope of the second half of the samples, when all that comes once has come, beside the noise in them."""

    def __init__(self):
        self.samples = []

    def add(self, seconds, value):
        self.samples.append((seconds, value))

    def __len__(self):
        return len(self.samples)

    def half(self):
        return self.samples[len(self.samples) // 2:]

    def slope(self):
        """Per second: the median of the slopes between any two samples (Theil and Sen)."""
        half = self.half()
        slopes = [(y - v) / (x - u) for i, (x, y) in enumerate(half) for u, v in half[:i]]
        return median(slopes) if slopes else 0.0

    def noise(self):
        """How far samples lie from that line: three standard deviations, by the median of the distances."""
        slope = self.slope()
        rests = [y - slope * x for x, y in self.half()]
        return 3 * 1.4826 * median(abs(rest - median(rests)) for rest in rests)

    def drift(self):
        """What the slope makes of the second half."""
        half = self.half()
        return self.slope() * (half[-1][0] - half[0][0])

    def grows(self):
        return len(self) >= LEAST and self.drift() > max(self.noise(), GRAIN)

    def __str__(self):
        if len(self) < LEAST:
            return f"memory of {self.samples[-1][1] >> 10} KiB at the end, too few rounds for a slope"
        return (f"memory from {self.samples[0][1] >> 10} to {self.samples[-1][1] >> 10} KiB; in the second half "
                f"{self.drift() / 1024:+.1f} KiB by the slope ({self.slope() * 3600 / 1024:+.1f} KiB an hour), "
                f"noise {self.noise() / 1024:.1f} KiB")
