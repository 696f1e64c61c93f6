"""The stand-in for the GPU driver (tests/lib/gpu) in a process of the tests, where libtierd finds it, too.

Memory of the GPU is memory of the host there: a test can look at it when a stream would. What it reads it tells the stand-in, which
ends the process at a race with what the daemon does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from typing_extensions import CapsuleType

from conftest import STANDINS

ON_HOST, ON_GPU = 1, 2  # of DLPack

_USED = b"used_dltensor"
_set_name = ctypes.pythonapi.PyCapsule_SetName
_set_name.restype, _set_name.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Driver:
    """Of this process, whose first one loads the library: whoever asks for libcuda.so.1 afterwards gets it."""

    _Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(STANDINS / "libcuda.so.1"))
        self._context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)
        self._scratch: dict[int, Any] = {}
        self._registered: list[Any] = []  # still, of streams that are gone
        self._functions: list[Any] = []  # that streams call

    def _call(self, name: str, *arguments: Any) -> None:
        error = getattr(self._library, name)(*arguments)
        assert error == 0, f"{name}: error {error}"

    def stream(self) -> int:
        """A new one."""
        stream = ctypes.c_void_p()
        self._call("cuCtxSetCurrent", self._context)
        self._call("cuStreamCreate", ctypes.byref(stream), 1)
        assert stream.value is not None
        scratch = self._scratch[stream.value] = ctypes.create_string_buffer(4096)
        self._call("cuMemHostRegister_v2", scratch, ctypes.c_size_t(len(scratch)), 0)
        return stream.value

    def destroy(self, stream: int) -> None:
        self._registered.append(self._scratch.pop(stream))
        self._call("cuCtxSetCurrent", self._context)
        self._call("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def launch(self, stream: int, function: Callable[[], None]) -> None:
        """Has the stream call it, in a thread of the driver's."""
        called = self._Function(lambda _: function())
        self._functions.append(called)
        self._call("cuCtxSetCurrent", self._context)
        self._call("cuLaunchHostFunc", ctypes.c_void_p(stream), called, None)

    def record(self, stream: int) -> int:
        """A new event."""
        event = ctypes.c_void_p()
        self._call("cuCtxSetCurrent", self._context)
        self._call("cuEventCreate", ctypes.byref(event), 2)
        self._call("cuEventRecord", event, ctypes.c_void_p(stream))
        assert event.value is not None
        return event.value

    def wait(self, stream: int, event: int) -> None:
        self._call("cuCtxSetCurrent", self._context)
        self._call("cuStreamWaitEvent", ctypes.c_void_p(stream), ctypes.c_void_p(event), 0)

    def read(self, stream: int, *ranges: tuple[int, int]) -> None:
        """Has the stream run a kernel that reads these addresses and bytes; what is there then stands there now."""
        self.run(stream, *((address, length, False) for address, length in ranges))

    def run(self, stream: int, *ranges: tuple[int, int, bool]) -> None:
        """The same of a kernel that reads, or also writes there."""
        self._call("cuCtxSetCurrent", self._context)
        self._call("standin_await", ctypes.c_void_p(stream))
        # What it is: a kernel's end would tell the process of the end of what was before.
        size = ctypes.c_size_t(1)
        self._call(
            "cuMemsetD8Async", ctypes.c_uint64(_address(self._scratch[stream])), 0, size, ctypes.c_void_p(stream)
        )
        for address, length, is_written in ranges:
            if length > 0:
                place = ctypes.c_uint64(address), ctypes.c_size_t(length)
                self._library.standin_touch(ctypes.c_void_p(stream), *place, ctypes.c_bool(is_written))


def _address(buffer: Any) -> int:
    return ctypes.addressof(buffer)


class Tensor:
    """What a capsule has, and who has it: DLPack's DLTensor."""

    def __init__(self, capsule: CapsuleType, *, is_versioned: bool = False):
        self.capsule = capsule
        name, offset = (b"dltensor_versioned", 32) if is_versioned else (b"dltensor", 0)
        self._at = _pointer_of(capsule, name) + offset
        self.flags = ctypes.c_uint64.from_address(self._at - 8).value if is_versioned else 0

    @property
    def address(self) -> int:
        return ctypes.c_uint64.from_address(self._at).value

    @property
    def device(self) -> tuple[int, int]:
        kind, number = (ctypes.c_int32 * 2).from_address(self._at + 8)
        return kind, number

    def give_back(self) -> None:
        """As who has taken it does, without the interpreter's lock."""
        _set_name(self.capsule, _USED)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ctypes.c_size_t.from_address(self._at + 56).value)(self._at)

    def show_on_host(self) -> CapsuleType:
        """The capsule, of memory of the host: so frameworks take it that have no GPU."""
        ctypes.c_int32.from_address(self._at + 8).value = ON_HOST
        return self.capsule
