# SPDX-License-Identifier: Apache-2.0
"""A fake GPU for the Python package, on the fake CUDA driver of tests/gpu.

Device memory of the fake is host memory of the rank. torch computes on the CPU, at once: its
tensors here are CPU tensors over that memory, and the host waits for the stream where torch's
kernels would come behind it. So a unit that libzinf does not bring shows as wrong values. What the
fake cannot show: kernels that come too late.

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


class FakeCuda(device.Cuda):
    """Cuda whose memory is the fake's."""

    dlpack_type = 1  # kDLCPU
    driver = DRIVER
    stream_count = 0  # streams that are current by turns; 0: the default stream

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.place = torch.device("cpu")
        self._fake = FakeDriver(index)
        self._streams = [self._fake.make_stream() for _ in range(self.stream_count)]
        self._turn = 0

    @classmethod
    def find(cls, index: int | None) -> FakeCuda:
        return cls(int(os.environ.get("LOCAL_RANK", "0")) if index is None else index)

    def _uuid(self) -> str:
        return f"GPU-fa4e0000-0000-0000-0000-{self.index:012x}"

    def _stream(self) -> int:
        if not self._streams:
            return 0
        self._turn += 1
        return self._streams[self._turn % len(self._streams)]

    def _is_capturing(self) -> bool:
        return False

    def open(self, session: Session) -> None:
        super().open(session)
        calls: Any = session
        for name in ("unshard", "grad_acquire"):
            setattr(calls, name, self._then_wait(getattr(session, name), session))

    def _then_wait(self, call: Callable[[int], None], session: Session) -> Any:
        @functools.wraps(call)
        def wait(unit: int) -> None:
            call(unit)
            self._fake.wait(session._gpu_stream or 0)

        return wait


def install(stream_count: int = 0) -> None:
    """Have device="cuda" mean the fake, in this process."""
    FakeCuda.stream_count = stream_count
    device.Cuda = FakeCuda  # type: ignore[misc]
