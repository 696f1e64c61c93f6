"""Waiting for what nothing tells of: looking again and again."""
import time

# Longer than anything here takes, on a busy machine and with sanitizers.
PATIENCE = 200


def wait_until(condition):
    """The pause is for what is waited for: who looks without one takes a processor away from it. The deadline is for hangs,
    and goes by the clock: a number of looks is soon over where looking is quick and a disk slow."""
    deadline, pause = time.monotonic() + PATIENCE, 0.001
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
