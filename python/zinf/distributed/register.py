# SPDX-License-Identifier: Apache-2.0
"""The base class of the backend, and its registration with torch."""

from __future__ import annotations

import os
from typing import Any, Callable

import torch
import torch.distributed as dist

from ..errors import InvalidArgument, Unsupported

__all__ = ["base_class", "register"]

NAME = "zinf"


def base_class() -> Any:
    """Return torch's class that a backend in Python derives from.

    A subclass of Backend can stand beside other backends in one group ("cpu:zinf,cuda:nccl"). It is
    chosen where torch calls its methods and keeps Work.is_completed(). Otherwise the backend is a
    ProcessGroup. ZINF_DIST_BASE=backend asks for Backend all the same: there is_completed() of a
    call with async_op stays False, so only wait() tells its end.
    """
    if not dist.is_available():
        raise Unsupported("this torch was built without torch.distributed")
    c10d = torch._C._distributed_c10d
    backend = getattr(c10d, "Backend", None)
    wish = os.environ.get("ZINF_DIST_BASE", "")
    if wish not in ("", "backend", "group"):
        raise InvalidArgument(f"ZINF_DIST_BASE is {wish!r}: it is backend, group, or not set")
    if backend is not None and wish != "group":
        is_called, is_kept = _probe(backend)
        if is_called and (is_kept or wish == "backend"):
            return backend
        if wish == "backend":
            raise Unsupported(f"torch {torch.__version__} calls no method of a Backend in Python")
    return c10d.ProcessGroup


def _probe(backend: Any) -> tuple[bool, bool]:
    """Whether torch calls a method of a Backend in Python, and asks its Work whether it is over."""
    calls: list[str] = []

    class Over(work_class()):  # type: ignore[misc]
        def wait(self, timeout: Any = None) -> bool:
            return True

        def is_completed(self) -> bool:
            return True

    class Probe(backend):  # type: ignore[misc]
        def getBackendName(self) -> str:  # noqa: N802 - torch's name
            return NAME

        def barrier(self, opts: Any = None) -> Any:
            calls.append("barrier")
            return Over()

    try:
        group = dist.ProcessGroup(torch._C._distributed_c10d.HashStore(), 0, 1)
        kind = dist.ProcessGroup.BackendType.CUSTOM
        group._register_backend(torch.device("cpu"), kind, Probe(0, 1))
        group._set_default_backend(kind)
        is_kept = bool(group.barrier().is_completed())
    except (AttributeError, RuntimeError, TypeError):  # What an earlier torch lacks.
        return False, False
    return bool(calls), is_kept


def work_class() -> Any:
    """Return torch's class of calls under way."""
    return getattr(dist, "Work", None) or torch._C._distributed_c10d.Work


def register(creator: Callable[[Any, Any], Any], is_group: bool) -> None:
    """Register the backend under its name, once. is_group: it is a ProcessGroup, not a Backend."""
    if NAME.upper() in dist.Backend._plugins:
        return
    try:
        dist.Backend.register_backend(NAME, creator, extended_api=True, devices=["cpu"])
    except TypeError:  # torch 1 has no devices.
        dist.Backend.register_backend(NAME, creator, extended_api=True)
    # torch's flight recorder asks C++ for the group's name, which a ProcessGroup of Python lacks.
    # The recorder leaves out backends of this set.
    recorded = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", None)
    if is_group and recorded is not None:
        recorded.add(NAME)
