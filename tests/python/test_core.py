"""The extension module by itself, without PyTorch: threads beside each other, and what is left behind a failure."""

from __future__ import annotations

import gc
import threading
from array import array
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from typing_extensions import Buffer, CapsuleType

import tierd
from conftest import PATIENCE, Daemon, interrupted, no_hang
from tierd import _core

# Of bf16: large enough that a thread is still at the NaNs of a debugging run when the next one comes.
LARGE = 8 << 20
TENSOR = {"name": "weight", "format": _core.BF16, "initializer": _core.INITIALIZE_ONES}


class Capsule:
    """What has a capsule, as NumPy takes it."""

    def __init__(self, capsule: CapsuleType | None):
        assert capsule is not None
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> CapsuleType:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def at_once(*calls: Callable[[], object]) -> list[object]:
    """What each of them returns, in a thread of its own."""
    start = threading.Barrier(len(calls))
    results: list[object] = [None] * len(calls)

    def run(number: int) -> None:
        start.wait()
        results[number] = calls[number]()

    threads = [threading.Thread(target=run, args=[number]) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def open_ranks(name: str, world_size: int, elements: int, **more: object) -> list[_core.Job]:
    """All ranks of a job of one unit, ready."""
    jobs = []
    for rank in range(world_size):
        options = {
            "name": name,
            "rank": rank,
            "world_size": world_size,
            "mode": _core.REPLACE if rank == 0 else _core.EITHER,
            **more,
        }
        jobs.append(_core.Node(reconnect_ms=PATIENCE * 1000).open_job(options))
        jobs[-1].define("unit", [{**TENSOR, "shape": (elements,)}])
    at_once(*(job.ready for job in jobs))
    return jobs


def prepare_nothing(job: _core.Job) -> None:
    pass


def push(job: _core.Job) -> None:
    job.gradients(0)
    job.push(0)


def push_and_step(job: _core.Job) -> None:
    push(job)
    job.step({"learning_rate": 1.0})


def read(job: _core.Job, memory: Buffer) -> None:
    job.read(0, 0, "parameter", memory)


def read_many(job: _core.Job, memory: Buffer) -> None:
    job.read_many([(0, 0, "parameter", memory)])


@pytest.mark.parametrize(
    ("prepare", "call"),
    [
        (push_and_step, lambda job, memory: job.gather(0)),
        (push, lambda job, memory: job.gradients(0)),
        (push, lambda job, memory: job.step({"learning_rate": 1.0}).wait()),
        (prepare_nothing, read),
        (prepare_nothing, read_many),
        (prepare_nothing, lambda job, memory: job.write_begin()),
    ],
    ids=["gather", "gradients", "step", "read", "read_many", "write_begin"],
)
def test_ctrl_c_ends_a_wait_which_can_begin_again(
    daemon: Daemon, prepare: Callable[[_core.Job], None], call: Callable[[_core.Job, Buffer], object]
) -> None:
    (job,) = open_ranks("interrupted", 1, 100, gradient_buffers=1)
    memory = array("H", bytes(200))
    with daemon.stopped():
        prepare(job)
        interrupted(lambda: call(job, memory))
    with no_hang():
        call(job, memory)
        job.close()


def test_a_job_tells_where_its_memory_is_mapped(daemon: Daemon) -> None:
    (job,) = open_ranks("mapped", 1, 100)
    parameters, gradients = job.mappings()
    with job.gather(0) as lease:
        view: Any = lease[0]
        address = numpy.frombuffer(view, numpy.uint8).ctypes.data
    assert parameters[0] <= address
    assert address + 200 <= sum(parameters)
    assert gradients[1] >= 200
    assert gradients[0] not in (0, parameters[0])


def test_ctrl_c_ends_the_waits_of_a_reader(daemon: Daemon) -> None:
    (job,) = open_ranks("looked_at", 1, 100)
    reader = _core.Node().open_reader("looked_at")
    memory = array("H", bytes(200))
    for call in (lambda: reader.refresh("parameter"), lambda: reader.read([(0, 0, memory)])):
        with daemon.stopped():
            interrupted(call)
        with no_hang():
            call()
    assert memory == array("H", [0x3F80] * 100)
    reader.close()
    job.detach()


def test_ctrl_c_before_another_rank_writes_leaves_it_to_begin_again() -> None:
    jobs = open_ranks("written", 2, 100)
    interrupted(jobs[0].write_begin)
    with no_hang():
        at_once(*(job.write_begin for job in jobs))
        jobs[1].write(0, 0, array("H", [0x4000] * 100))
        for ticket in [job.write_end() for job in jobs]:
            assert ticket.wait()
    memory = array("H", bytes(200))
    read(jobs[0], memory)
    assert memory == array("H", [0x4000] * 100)
    for job in jobs:
        job.detach()


def test_a_job_stays_while_a_gradient_buffer_of_it_is_viewed() -> None:
    job = _core.Node().open_job({"name": "viewed", "rank": 0, "world_size": 1})
    job.define("unit", [{**TENSOR, "format": _core.FP32, "shape": (LARGE,)}])
    job.ready()
    views = [numpy.from_dlpack(Capsule(job.gradients(0)[0]))]
    del job
    gc.collect()
    # What is not written yet is a NaN in a debugging run.
    assert numpy.isnan(views[0]).all()
    with pytest.raises(tierd.Error, match="rank 0 of job viewed is held by process"):
        _core.Node().open_job({"name": "viewed", "rank": 0, "world_size": 1})
    views.clear()
    job = _core.Node().open_job({"name": "viewed", "rank": 0, "world_size": 1})
    job.detach()


def test_ranks_of_one_process_meet_again_when_the_daemon_is_back(daemon: Daemon) -> None:
    jobs = open_ranks("meet", 2, 100)
    daemon.kill()
    daemon.start()
    with no_hang():
        at_once(*(lambda job=job: job.prefetch(0) for job in jobs))
    for job in jobs:
        job.detach()


@pytest.mark.parametrize("kept", [0, 1])
def test_threads_that_want_the_same_buffer_share_it(kept: int) -> None:
    (job,) = open_ranks("share", 1, LARGE)
    views = at_once(lambda: job.gradients(0), lambda: job.gradients(0))
    del views[1 - kept]
    with pytest.raises(tierd.Error, match="a tensor still views the unit's gradient buffer"):
        job.push(0)
    views.clear()
    job.push(0)
    job.detach()


def test_threads_that_define_units_have_their_own() -> None:
    count = 200
    job = _core.Node().open_job({"name": "define", "rank": 0, "world_size": 1, "mode": _core.REPLACE})

    def define(number: int) -> list[int]:
        units = []
        for unit in range(count):
            name = f"{number}-{unit}"
            units.append(job.define(name, [{**TENSOR, "name": f"{name}-{i}", "shape": (1,)} for i in range(number)]))
        return units

    ones, twos = at_once(lambda: define(1), lambda: define(2))
    job.ready()
    assert isinstance(ones, list) and isinstance(twos, list)
    assert [len(job.gather(unit)) for unit in [*ones, *twos]] == [1] * count + [2] * count
    job.detach()


def test_a_gathered_tensor_is_a_buffer_that_keeps_its_lease_and_cannot_be_written() -> None:
    job = _core.Node().open_job({"name": "buffer", "rank": 0, "world_size": 1, "mode": _core.REPLACE})
    numbers = {**TENSOR, "name": "numbers", "format": _core.FP32, "shape": (2, 3)}
    job.define("unit", [{**TENSOR, "shape": (5,)}, numbers])
    job.ready()
    with job.gather(0) as lease:
        views = [memoryview(lease[i]) for i in range(len(lease))]
    with pytest.raises(ValueError, match="the lease is released"):
        lease[0]
    assert [(view.format, view.shape, view.strides) for view in views] == [("H", (5,), (2,)), ("f", (2, 3), (12, 4))]
    values: list[object] = [view.tolist() for view in views]
    assert values == [[0x3F80] * 5, [[1.0] * 3] * 2]  # bf16 as its bits
    for view in views:
        assert view.readonly
        with pytest.raises(TypeError):
            view[0] = 1
    assert job.leases(0) == 1
    views.clear()
    del view
    assert job.leases() == 0
    job.detach()


def test_a_push_that_fails_leaves_no_buffer_behind() -> None:
    (job,) = open_ranks("fails", 1, 100)
    job.step_begin({"learning_rate": 1.0}, None, 1)
    for _ in range(2):
        job.gradients(0)
        job.push(0)
    job.statistics()  # behind the answer to the second one, which is refused
    job.gradients(0)
    with pytest.raises(tierd.Error, match="1 micro-batches were announced"):
        job.push(0)
    assert job.step({"learning_rate": 1.0}).wait()
    job.detach()


def test_a_job_is_not_closed_under_the_view_of_a_gradient_buffer() -> None:
    (job,) = open_ranks("viewed", 1, 100)
    views = job.gradients(0)
    for leave in (job.close, job.detach):
        with pytest.raises(tierd.Error, match="a tensor still views a gradient buffer"):
            leave()
    del views
    job.push(0)
    assert job.step({"learning_rate": 1.0}).wait()
    job.close()


def test_a_ticket_says_whether_the_time_was_over() -> None:
    first, second = open_ranks("ticket", 2, 100)
    ticket = first.step({"learning_rate": 1.0})
    assert not ticket.wait(timeout_ms=0)
    assert not ticket.wait(timeout_ms=1)
    second.step({"learning_rate": 1.0})
    assert ticket.wait()
    assert ticket.result()["step"] == 1
    for job in (first, second):
        job.detach()


def test_times_that_are_no_ints_are_refused() -> None:
    (job,) = open_ranks("times", 1, 100)
    with pytest.raises(OverflowError):
        job.ready(1 << 32)
    with pytest.raises(OverflowError):
        _core.Node().set_timeout(1 << 32)
    job.detach()


def test_a_blob_that_becomes_longer_and_shorter_is_got_whole() -> None:
    writer, reader = jobs = open_ranks("blobs", 2, 100, blob_bytes=16 << 20)
    versions = [None, b"", bytes([1]) * (3 << 20), bytes([2]) * 10, bytes([3]) * 1000]
    is_done = threading.Event()

    def change() -> None:
        try:
            for step in range(200):
                writer.blob_set("one", versions[1 + step % 4] or b"", is_shared=True)
                for job in jobs:
                    job.gradients(0)
                    job.push(0)
                for ticket in [job.step({"learning_rate": 0.0}) for job in jobs]:
                    ticket.wait()
        finally:
            is_done.set()

    def look() -> list[int]:
        found: list[int] = []
        while not is_done.is_set():
            blob = reader.blob_get("one", is_shared=True)
            if blob not in versions:
                found.append(len(blob or b""))
        return found

    with no_hang():
        assert at_once(change, look)[1] == []
    for job in jobs:
        job.detach()


def test_memory_of_a_reader_is_its_own_and_stays_within_its_bounds() -> None:
    (job,) = open_ranks("core-memory", 1, 3000)
    reader = _core.Node().open_reader("core-memory", -1, None)
    memory = reader.memory(8192)
    with pytest.raises(_core.Error, match="already"):
        reader.memory(8192)
    for offset, size in ((0, 8193), (8193, 0), (-1, 1), (1, -1), (8192, 1), (2**62, 2**62)):
        with pytest.raises(ValueError, match="8192 bytes"):
            memory.capsule(offset, size)
    part = memory.capsule(64, 6000)
    reader.read([(0, 0, part)])
    reader.close()
    with pytest.raises(_core.Error, match="closed"):
        reader.memory(8192)
    again = _core.Node().open_reader("core-memory", -1, None)
    with pytest.raises(TypeError, match="memory of a reader"):
        again.renew(b"other memory")  # type: ignore[arg-type]
    again.renew(memory)
    del memory
    again.read([(0, 0, part)])
    with pytest.raises(OverflowError):
        again.memory(-1)
    with pytest.raises(_core.Error, match="1 TiB"):
        _core.Node().open_reader("core-memory", -1, None).memory(0)
    job.detach()
