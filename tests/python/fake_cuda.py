# SPDX-License-Identifier: Apache-2.0
"""A fake GPU for the Python package, on the fake CUDA driver of tests/gpu.

Device memory of the fake is host memory of the rank. torch computes on the CPU, at once: its
tensors here are CPU tensors over that memory, and the host waits for torch's current stream where
kernels would come behind the stream. So a unit that libzinf does not bring shows as wrong values.

Kernels that come late are reads: copies on the current stream, out of parameters and gradients, to
be compared with what they had. Hooks of watch() turn the current stream for each module, forward
and backward, and queue a read there. FakeCuda queues one where a unit goes. write() is a kernel
that writes. Calls for which libzinf was not told the current stream count as wrong reads.

The fake cannot be used after a fork: a test starts a process for each run.
"""

from __future__ import annotations

import ctypes as c
import functools
import os
from typing import Any, Callable

import torch
from zinf.module import device
from zinf.session import Session

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_BUILD = os.path.join(_ROOT, os.environ.get("ZINF_BUILD", "build/release"))
DRIVER = os.path.join(_BUILD, "tests", "gpu", "libcuda.so.1")
CHUNK = 2 << 20  # bytes; a small unit takes one


class FakeDriver:
    """The functions of the fake driver that a trainer needs."""

    def __init__(self, index: int) -> None:
        self._library = c.CDLL(DRIVER)
        self._context = c.c_void_p()
        self._check(self._library.cuInit(0))
        self._check(self._library.cuDevicePrimaryCtxRetain(c.byref(self._context), index))

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(f"FAKE CUDA error {code}")

    def _call(self, function: Any, *arguments: Any) -> None:
        self._check(self._library.cuCtxPushCurrent_v2(self._context))
        code = function(*arguments)
        self._check(self._library.cuCtxPopCurrent_v2(None))
        self._check(code)

    def make_stream(self) -> int:
        stream = c.c_void_p()
        self._call(self._library.cuStreamCreateWithPriority, c.byref(stream), 1, 0)
        return int(stream.value or 0)

    def wait(self, stream: int) -> None:
        self._call(self._library.cuStreamSynchronize, c.c_void_p(stream))

    def read(self, target: int, source: int, byte_count: int, stream: int) -> None:
        """Queue a copy from device memory to host memory."""
        arguments = c.c_void_p(target), c.c_uint64(source), c.c_size_t(byte_count)
        self._call(self._library.cuMemcpyDtoHAsync_v2, *arguments, c.c_void_p(stream))

    def write(self, target: int, source: int, byte_count: int, stream: int) -> None:
        """Queue a copy from host memory to device memory."""
        arguments = c.c_uint64(target), c.c_void_p(source), c.c_size_t(byte_count)
        self._call(self._library.cuMemcpyHtoDAsync_v2, *arguments, c.c_void_p(stream))


class FakeCuda(device.Cuda):
    """Cuda whose memory is the fake's."""

    dlpack_type = 1  # kDLCPU
    driver = DRIVER
    stream_count = 0  # streams that turn() makes current; 0: the default stream
    newest: FakeCuda | None = None  # what hooks of watch() turn
    free_bytes = 1 << 30  # of the driver

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.place = torch.device("cpu")
        self._fake = FakeDriver(index)
        self.streams = [self._fake.make_stream() for _ in range(self.stream_count)] or [0]
        self.current = self.streams[0]
        self.waits = True  # the host, for units; else all values are wrong, except those of reads
        self.units: list[Any] = []
        self.wanted: dict[str, bytes] = {}  # by parameter, where the host does not wait
        self._reads: list[tuple[str, Any, bytes]] = []
        self._sources: list[Any] = []  # of writes that may come
        self._strays: list[str] = []
        FakeCuda.newest = self

    @classmethod
    def find(cls, index: int | None) -> FakeCuda:
        return cls(int(os.environ.get("LOCAL_RANK", "0")) if index is None else index)

    def _uuid(self) -> str:
        return f"GPU-fa4e0000-0000-0000-0000-{self.index:012x}"

    def _free_bytes(self) -> int:
        return self.free_bytes

    def _stream(self) -> int:
        return self.current

    def turn(self) -> None:
        """Make the next stream torch's current one."""
        self.current = self.streams[(self.streams.index(self.current) + 1) % len(self.streams)]

    def read(self, name: str, address: int, byte_count: int, wanted: bytes | None = None) -> None:
        """Queue a read on the current stream. wanted: what it shall find; None: what is there."""
        target = c.create_string_buffer(byte_count)
        wanted = c.string_at(address, byte_count) if wanted is None else wanted
        self._reads.append((f"{name} on {self.streams.index(self.current)}", target, wanted))
        self._fake.read(c.addressof(target), address, byte_count, self.current)

    def write(self, target: torch.Tensor, values: torch.Tensor, *, is_prompt: bool) -> None:
        """Write to device memory on the current stream. is_prompt: the host waits for the end."""
        source = values.detach().clone(memory_format=torch.contiguous_format)
        self._sources.append(source)
        byte_count = source.numel() * source.element_size()
        self._fake.write(target.data_ptr(), source.data_ptr(), byte_count, self.current)
        if is_prompt:
            self._fake.wait(self.current)

    def wrong_reads(self) -> list[str]:
        """Run all streams to their ends, the last stream first. Return the names of wrong reads.

        A call of libzinf counts as a wrong read where libzinf knew another stream than torch's
        current stream.
        """
        for stream in reversed(self.streams):
            self._fake.wait(stream)
        found, self._reads = self._reads, []
        strays, self._strays, self._sources = self._strays, [], []
        return [name for name, target, wanted in found if target.raw != wanted] + strays

    def _is_capturing(self) -> bool:
        return False

    def open(self, session: Session) -> None:
        super().open(session)
        calls: Any = session
        for name in ("unshard", "grad_acquire"):
            setattr(calls, name, self._then_wait(getattr(session, name)))
        for name in ("reshard", "reduce"):
            setattr(calls, name, self._read_before(name, getattr(session, name)))
        for name in ("unshard", "reshard", "grad_acquire", "reduce"):
            setattr(calls, name, self._told_before(name, session, getattr(session, name)))

    def _then_wait(self, call: Callable[[int], None]) -> Any:
        @functools.wraps(call)
        def wait(unit: int) -> None:
            call(unit)
            if self.waits:
                self._fake.wait(self.current)

        return wait

    def _told_before(self, kind: str, session: Session, call: Callable[[int], None]) -> Any:
        @functools.wraps(call)
        def told(unit: int) -> None:
            if session._gpu_stream != self.current:
                known = self.streams.index(session._gpu_stream)
                current = self.streams.index(self.current)
                self._strays.append(f"{kind} of unit {unit} on {known}, and torch is on {current}")
            call(unit)

        return told

    def _read_before(self, kind: str, call: Callable[[int], None]) -> Any:
        @functools.wraps(call)
        def read(unit: int) -> None:
            for slot in self.units[unit].slots if self.units and self.waits else ():
                if kind == "reshard":
                    self.read(f"{kind} {slot.name}", slot.address, slot.byte_count)
                elif slot.grad is not None:
                    grad = slot.grad
                    byte_count = grad.numel() * grad.element_size()
                    self.read(f"{kind} {slot.name}", grad.data_ptr(), byte_count)
            call(unit)

        return read


def watch(module: Any) -> None:
    """Turn the stream for each module without modules inside, forward and backward, and read there.

    Before zinf.prepare().
    """
    for name, inner in module.named_modules():
        if not list(inner.children()):
            inner.register_forward_pre_hook(_turn)
            inner.register_forward_hook(functools.partial(_watch_result, name))


def _turn(*_: Any) -> None:
    if FakeCuda.newest is not None:
        FakeCuda.newest.turn()


def _watch_result(name: str, module: Any, _: Any, result: Any) -> Any:
    _read(f"forward {name}", module)
    if not result.requires_grad:
        return result
    if not isinstance(module, torch.nn.Embedding):  # Its backward reads no values.
        result.register_hook(lambda _: _read(f"backward {name}", module))
    after = result * 1
    after.register_hook(_turn)  # As autograd does before it calls hooks of `result`.
    return after


def _read(name: str, module: Any) -> None:
    cuda = FakeCuda.newest
    for parameter in module._parameters.values():
        if cuda is not None and cuda.units and parameter is not None:
            slot = parameter._zinf
            wanted = cuda.wanted.get(slot.name)
            cuda.read(f"{name} {slot.name}", slot.address, slot.byte_count, wanted)


def install(stream_count: int = 0) -> None:
    """Have device="cuda" mean the fake, in this process."""
    FakeCuda.stream_count = stream_count
    device.Cuda = FakeCuda  # type: ignore[misc]
