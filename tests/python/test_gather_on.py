"""Units in the memory of a GPU, by the extension module alone. A stand-in plays the GPU's driver, in this process and in the daemon."""

from __future__ import annotations

import ctypes
import errno
import gc
import itertools
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import tierd
from conftest import PATIENCE, Daemon
from driver_stand_in import ON_GPU, ON_HOST, Driver, Tensor
from tierd import _core

UNITS = 4
ELEMENTS = 1 << 20  # else they would share a pack
SHAPE = (2, ELEMENTS // 2)
TENSORS = [
    {"name": "weight", "format": _core.FP32, "initializer": _core.INITIALIZE_NORMAL, "b": 1.0, "shape": SHAPE},
    {"name": "bias", "format": _core.BF16, "initializer": _core.INITIALIZE_ONES, "shape": (5,)},
]


@pytest.fixture(scope="module")
def driver() -> Driver:
    return Driver()


_numbers = itertools.count()


def open_job(daemon: Daemon, **options: Any) -> _core.Job:
    given = {"name": f"gather_on-{next(_numbers)}", "rank": 0, "world_size": 1, "gpu": 0}
    given |= {"optimizer": _core.SGD, "durability": _core.DURABILITY_NONE}
    job = _core.Node(str(daemon.socket)).open_job(given | options)
    for unit in range(UNITS):
        job.define(f"unit {unit}", [tensor | {"name": f"{tensor['name']} {unit}"} for tensor in TENSORS])
    job.ready()
    return job


@pytest.fixture
def job(driver: Driver, gpu_daemon: Daemon) -> Iterator[_core.Job]:
    job = open_job(gpu_daemon)
    yield job
    gc.collect()
    job.detach()


@pytest.fixture
def no_switches() -> Iterator[None]:
    """A thread goes on until it gives the interpreter's lock up by itself."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(PATIENCE)
    yield
    sys.setswitchinterval(interval)


class OnHost:
    """What has a capsule, as NumPy takes it."""

    def __init__(self, tensor: Tensor):
        self._tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return self._tensor.show_on_host()

    def __dlpack_device__(self) -> tuple[int, int]:
        return ON_HOST, 0


def values(capsule: Any) -> Any:
    """An array of what the capsule has, which keeps it."""
    return numpy.from_dlpack(OnHost(Tensor(capsule)))


def test_a_stream_sees_what_host_memory_has(job: _core.Job, driver: Driver) -> None:
    assert job.state()["gpu_bytes"] >= UNITS * 4 * ELEMENTS
    stream = driver.stream()
    for unit in range(UNITS):
        with job.gather_on(unit, stream) as lease, job.gather(unit) as there:
            weight, bias = lease.capsules()
            assert Tensor(bias).device == (ON_GPU, 0)
            array = values(weight)
            driver.read(stream, (array.ctypes.data, array.nbytes))
            assert array.shape == SHAPE
            assert (array == numpy.from_dlpack(there[0])).all()
            assert lease.version == there.version == 0


def test_views_keep_the_lease_and_a_step_waits_for_none(job: _core.Job, driver: Driver) -> None:
    stream = driver.stream()
    with job.gather_on(0, stream) as lease:
        array = values(lease[0].__dlpack__(stream=stream))
    with pytest.raises(ValueError, match="the lease is released"):
        lease.capsules()
    assert job.leases(0) == 1
    job.gradients(0)
    job.push(0)
    with pytest.raises(tierd.Error, match='leases on a GPU of 1 unit are held: "unit 0"'):
        job.step({"learning_rate": 1.0})
    driver.read(stream, (array.ctypes.data, array.nbytes))
    del array, lease
    assert job.leases() == 0
    job.step({"learning_rate": 1.0})
    assert job.gather_on(0, stream).version == 1


def test_a_stream_that_is_destroyed_keeps_no_lease(job: _core.Job, driver: Driver) -> None:
    stream, other = driver.stream(), driver.stream()
    lease = job.gather_on(0, stream)
    array = values(lease[0].__dlpack__(stream=other))
    driver.read(stream, (array.ctypes.data, array.nbytes))
    driver.destroy(stream)
    assert job.leases(0) == 2
    del array, lease
    assert job.leases() == 0
    driver.destroy(other)
    job.gradients(0)
    job.push(0)
    job.step({"learning_rate": 1.0})
    assert job.gather_on(0, driver.stream()).version == 1


@pytest.mark.parametrize("how", ["release", "lease", "capsule", "array", "tensor"])
def test_python_goes_on_while_a_lease_of_a_stream_that_is_gone_comes_back(
    job: _core.Job, driver: Driver, how: str, no_switches: None
) -> None:
    """All that the GPU was told is waited for, and may want Python: whoever waits has given the interpreter's lock up."""
    stream, other = driver.stream(), driver.stream()
    held: Any = job.gather_on(0, stream)
    if how not in ("release", "lease"):
        held = held.capsules()[0]
    if how in ("array", "tensor"):
        held = values(held) if how == "array" else Tensor(held)
    driver.destroy(stream)
    is_time, said = threading.Event(), list[str]()

    def say() -> None:
        is_time.wait()
        said.append("meanwhile")

    driver.launch(other, say)
    is_time.set()
    if how == "release":
        held.release()
    elif how == "tensor":
        held.give_back()
    del held
    assert (said, job.leases()) == (["meanwhile"], 0)
    driver.destroy(other)


def test_memory_is_overwritten_behind_all_streams_that_used_it(gpu_daemon: Daemon, driver: Driver) -> None:
    """Else the stand-in ends the daemon, or this process."""
    job = open_job(gpu_daemon, gpu_budget=9 << 20)
    streams = [driver.stream() for _ in range(3)]
    for _ in range(3):
        for unit in range(UNITS):
            lease = job.gather_on(unit, streams[0])
            arrays = [values(lease[0].__dlpack__(stream=stream)) for stream in streams[:2]]
            lease.use_on(streams[2])
            lease.release()
            for stream in streams:
                driver.read(stream, (arrays[0].ctypes.data, arrays[0].nbytes))
            assert job.leases(unit) == 3
            del arrays
            assert job.leases(unit) == 0
    job.detach()


def test_dlpack_is_that_of_the_array_api(job: _core.Job, driver: Driver) -> None:
    stream, other = driver.stream(), driver.stream()
    view = job.gather_on(0, stream)[0]
    assert view.__dlpack_device__() == (ON_GPU, 0)
    for options in ({"stream": stream}, {"stream": -1}, {"stream": stream, "max_version": (0, 8)}):
        tensor = Tensor(view.__dlpack__(**options, dl_device=(ON_GPU, 0), copy=False))
        assert tensor.device == (ON_GPU, 0)
    newer = Tensor(view.__dlpack__(stream=stream, max_version=(1, 1)), is_versioned=True)
    assert (newer.address, newer.device, newer.flags) == (tensor.address, (ON_GPU, 0), 1)
    assert job.leases() == 1
    view.__dlpack__(stream=other)
    assert job.leases() == 2
    refused: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"copy": True}, BufferError),
        ({"dl_device": (ON_HOST, 0)}, BufferError),
        ({"stream": 0}, ValueError),
        ({"stream": "1"}, AttributeError),
    ]
    for options, error in refused:
        with pytest.raises(error):
            view.__dlpack__(**options)
    with pytest.raises(BufferError, match="memory of a GPU"):
        memoryview(view)
    host = job.gather(0)[0]
    assert not numpy.from_dlpack(host).flags.writeable
    assert not hasattr(host, "__cuda_array_interface__")
    with pytest.raises(ValueError, match="one in host memory"):
        job.gather(0).use_on(stream)


def test_numba_finds_its_interface(job: _core.Job, driver: Driver) -> None:
    stream = driver.stream()
    lease = job.gather_on(1, stream)
    shown = [view.__cuda_array_interface__ for view in (lease[0], lease[1])]
    assert [(each["shape"], each["typestr"], each["version"], each["stream"]) for each in shown] == [
        (SHAPE, "<f4", 3, stream),
        ((5,), "<u2", 3, stream),
    ]
    address, is_read_only = shown[0]["data"]
    assert (address, is_read_only) == (Tensor(lease.capsules()[0]).address, True)


def test_a_stream_is_a_number_or_says_it(job: _core.Job, driver: Driver) -> None:
    class Stream:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, stream

    stream = driver.stream()
    assert job.gather_on(0, Stream()).version == job.gather_on(0, stream).version
    with pytest.raises(AttributeError):
        job.gather_on(0, "stream")  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        job.gather_on(UNITS, stream)
    with pytest.raises(tierd.Error, match="GPU 0") as caught:
        job.gather_on(UNITS - 1, 0x5000)
    assert caught.value.errno == errno.EINVAL
    assert job.leases() == 0


def test_a_job_without_a_gpu_says_so(driver: Driver, gpu_daemon: Daemon, daemon: Daemon) -> None:
    stream = driver.stream()
    for at, options, said in (
        (gpu_daemon, {"gpu": -1}, "was opened without a GPU"),
        (gpu_daemon, {"gpu_budget": 1 << 20}, "the job needs at least"),
        (daemon, {}, "no memory on GPU 0"),
    ):
        job = open_job(at, **options)
        assert job.state()["gpu_bytes"] == 0
        with pytest.raises(tierd.Error, match=said) as caught:
            job.gather_on(0, stream)
        assert caught.value.errno == errno.EOPNOTSUPP
        job.detach()
    with pytest.raises(OverflowError, match="gpu is 2147483648"):
        open_job(daemon, gpu=1 << 31)


def test_a_lease_outlives_its_job(driver: Driver, gpu_daemon: Daemon) -> None:
    job, stream = open_job(gpu_daemon), driver.stream()
    lease = job.gather_on(0, stream)
    array = values(lease.capsules()[0])
    driver.read(stream, (array.ctypes.data, array.nbytes))
    job.close()
    with pytest.raises(tierd.Error, match="the job is closed"):
        lease.use_on(driver.stream())
    assert numpy.isfinite(array).all()
    del lease, array


def test_gradients_are_pushed_from_the_gpu(job: _core.Job, driver: Driver) -> None:
    stream = driver.stream()
    before = numpy.from_dlpack(job.gather(0)[0]).copy()
    weight, bias = job.gradients_on(0, stream)
    assert weight is not None
    gradient, halves = Tensor(weight), numpy.full(SHAPE, 0.5, numpy.float32)
    assert gradient.device == (ON_GPU, 0)
    figures = job.statistics()
    assert figures["job_gpu_parameter_bytes"] == job.state()["gpu_bytes"] > 0
    assert figures["job_gpu_gradient_bytes"] >= halves.nbytes and figures["job_gpu_update_bytes"] == 0
    driver.run(stream, (gradient.address, halves.nbytes, True))
    ctypes.memmove(gradient.address, halves.ctypes.data, halves.nbytes)
    with pytest.raises(tierd.Error, match="a tensor still views"):
        job.push_on(0, stream)
    with pytest.raises(tierd.Error, match="on its GPU already"):
        job.gradients(0)
    del weight, bias, gradient
    with pytest.raises(IndexError):
        job.push_on(0, stream, 2)
    job.push_on(0, stream, 1)
    with pytest.raises(tierd.Error) as caught:
        job.push_on(0, stream)
    assert caught.value.errno == errno.EINVAL
    job.step({"learning_rate": 1.0}, [{"learning_rate": 1.0, "weight_decay": 0.0}]).wait()
    assert (numpy.from_dlpack(job.gather(0)[0]) == before - halves).all()


def test_gradients_of_a_job_without_a_gpu_are_not_there(driver: Driver, gpu_daemon: Daemon) -> None:
    job = open_job(gpu_daemon, gpu=-1)
    with pytest.raises(tierd.Error) as caught:
        job.gradients_on(0, driver.stream())
    assert caught.value.errno == errno.EOPNOTSUPP
    job.gradients(0)
    job.push(0)
    job.detach()


def test_the_default_stream_of_each_thread_is_refused(job: _core.Job) -> None:
    with pytest.raises(ValueError, match="stream 2"):
        job.gather_on(0, 2)


def test_who_is_asked_for_a_stream_may_release_the_lease_and_close_the_job(driver: Driver, gpu_daemon: Daemon) -> None:
    job = open_job(gpu_daemon)
    lease = job.gather_on(0, driver.stream())

    class Releases:
        def __cuda_stream__(self) -> tuple[int, int]:
            lease.release()
            return 0, driver.stream()

    class Closes:
        def __cuda_stream__(self) -> tuple[int, int]:
            job.close()
            return 0, driver.stream()

    with pytest.raises(ValueError, match="released"):
        lease.use_on(Releases())
    with pytest.raises(tierd.Error, match="the job is closed"):
        job.gather_on(0, Closes())
