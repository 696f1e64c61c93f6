"""GPUs: ones that are not there, events that are none, fractions that are none, gathers on none, and pushes from none."""
import struct

from hostile_cases.case import EPOCH, JOB, READY, Answered, Case
from hostile_cases.request import EVENTS, HANDLE, UUID, of_job
from messages import GPU_ATTACH, GPU_GATHER, GPU_GRADIENTS, PUSH, data, number


def attach(uuid=UUID, events=EVENTS, handle=HANDLE, budget=0, updates=None):
    fraction = b"" if updates is None else bytes([7 << 3 | 5]) + struct.pack("<f", updates)
    return number(1, JOB) + number(2, EPOCH) + data(3, uuid) + number(4, budget) + data(5, handle) * events + fraction


def asks_again_and_again(client):
    """Each is refused; the next one finds nothing of the one before."""
    for _ in range(50):
        status, text, _ = client.call(GPU_ATTACH, attach())
        assert status != 0 and "tierd sees" in text, (status, text)


def asks_and_leaves(client):
    client.send(GPU_ATTACH, attach())


MALFORMED = Answered("EINVAL", "a GPU has a UUID of 16 bytes")
CASES = [
    Case("a GPU that is not there", READY, (GPU_ATTACH, attach()), Answered("ENODEV", "tierd sees")),
    Case("2^64-1 bytes of a GPU that is not there", READY, (GPU_ATTACH, attach(budget=-1)), Answered("ENODEV", "tierd sees")),
    Case("a GPU without a UUID", READY, (GPU_ATTACH, attach(uuid=b"")), MALFORMED),
    Case("a GPU with a UUID of 100,000 bytes", READY, (GPU_ATTACH, attach(uuid=bytes(100000))), MALFORMED),
    Case("a GPU without events", READY, (GPU_ATTACH, attach(events=0)), MALFORMED),
    Case("a GPU with 10,000 events", READY, (GPU_ATTACH, attach(events=10000)), MALFORMED),
    Case("a GPU with an event of 3 bytes", READY, (GPU_ATTACH, attach(handle=bytes(3))), MALFORMED),
    *[Case(f"a GPU for {updates} of the updates", READY, (GPU_ATTACH, attach(updates=updates)), Answered("EINVAL", "from 0 to 1, or -1"))
      for updates in (float("nan"), float("inf"), -2, 1.5)],
    Case("a gather on no GPU", READY, (GPU_GATHER, of_job()[GPU_GATHER]), Answered("EINVAL", "rank 0 has asked for no GPU")),
    Case("a gather on a GPU of a version that no step has", READY, (GPU_GATHER, of_job()[GPU_GATHER] + number(4, -1)),
         Answered("EINVAL", "is ahead of every step")),
    Case("gradients on no GPU", READY, (GPU_GRADIENTS, of_job()[GPU_GRADIENTS]), Answered("EINVAL", "rank 0 has asked for no GPU")),
    *(Case(f"a push from no GPU, behind event {event}", READY, (PUSH, of_job()[PUSH] + number(8, event)),
           Answered("EINVAL", "rank 0 has no gradient buffers on a GPU")) for event in (1, -1)),
    Case("a GPU that is asked for again and again", READY, asks_again_and_again, None),
    Case("a GPU that nobody waits for", READY, asks_and_leaves, None),
]
