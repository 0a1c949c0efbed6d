# SPDX-License-Identifier: Apache-2.0
"""Activations outside of the process: zinf.offload.activations().

    with zinf.offload.activations(model):
        loss = model(batch)
    loss.backward()

Forward saves tensors for backward. Inside the block the daemon takes each large tensor and writes
it to NVMe, and the process frees the memory. Backward reads the tensor again, and begins to read
the tensors saved before. Without an NVMe tier the tensors stay in the daemon's memory.

A saved tensor keeps its values, also if the script writes to the original later. Parameters of zinf
are not saved, as zinf brings their memory back for backward.
"""

from __future__ import annotations

import collections
import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .config import parse_bytes
from .errors import InvalidArgument, NoSpace, Timeout, Unsupported, ZinfError
from .module.engine import Engine, engine_of, living_engines
from .module.parameter import Guarded
from .session import Session

__all__ = ["Activations", "activations"]

_TENSORS_MAX = 4000  # of libzinf's 4096: frees may be under way
_PUTS_MAX = 16  # that are under way
_AHEAD = 2  # tensors that backward reads in advance


class _Saved:
    """A tensor that autograd saved, in the daemon. It is deleted with the graph."""

    __slots__ = ("__weakref__", "before", "count", "get", "id", "memory", "put", "shape", "store")

    def __init__(self, store: _Store, tensor: torch.Tensor) -> None:
        self.store = store
        self.id = -1
        self.shape = (tensor.shape, tensor.stride(), tensor.dtype)
        self.count = tensor.numel() * tensor.element_size()
        self.put = self.get = 0  # tickets
        self.memory: torch.Tensor | None = None  # of get: it must live until the ticket is waited
        self.before: Any = None  # weak: the one that was saved before

    def __del__(self) -> None:
        # Not freed here: this runs at any moment, also amid a call of the session.
        if self.id >= 0:
            self.store.garbage.append((self.id, (self.put, self.get), self.memory))


class _Store:
    """The tensors of one session."""

    def __init__(self, session: Session, budget_bytes: int) -> None:
        session.tensor_open(budget_bytes)
        self.session = session
        self.budget_bytes = budget_bytes
        self.garbage: collections.deque[Any] = collections.deque()
        self.puts: collections.deque[Any] = collections.deque()  # weak, in order
        self.next_id = 1
        self.count = 0
        self.last: Any = lambda: None

    def put(self, tensor: torch.Tensor) -> _Saved:
        """Hand a dense tensor over. Raises NoSpace, StoreFailed and the like."""
        saved = _Saved(self, tensor)
        if saved.count > self.budget_bytes:
            raise NoSpace(
                f"an activation of {saved.count} bytes does not fit into budget_bytes "
                f"{self.budget_bytes} of zinf.offload.activations(): give at least twice its size"
            )
        while len(self.puts) >= _PUTS_MAX:
            self.wait_put(self.puts.popleft()())
        saved.put = self.session.tensor_put(self.next_id, tensor.data_ptr(), saved.count)
        saved.id = self.next_id
        self.next_id += 1
        self.count += 1
        saved.before, self.last = self.last, weakref.ref(saved)
        self.puts.append(self.last)
        return saved

    def wait_put(self, saved: _Saved | None) -> None:
        """Wait until a tensor is stored. Raises the error of its store."""
        if saved is not None and saved.put:
            ticket, saved.put = saved.put, 0
            try:
                self.session.wait(ticket)
            except (KeyboardInterrupt, Timeout):
                saved.put = ticket
                raise

    def take(self, saved: _Saved) -> torch.Tensor:
        """Return the values of a tensor in memory of their own. It may be taken again."""
        self.wait_put(saved)
        was_begun = saved.get != 0
        self.begin_get(saved)
        earlier = saved
        for _ in range(_AHEAD):
            earlier = earlier.before()
            if earlier is None:
                break
            with contextlib.suppress(ZinfError):  # Its own take() reports it.
                self.wait_put(earlier)
                self.begin_get(earlier)
        if was_begun:
            try:
                return self.wait_get(saved)
            except NoSpace:  # It was begun while others took the room.
                self.begin_get(saved)
        return self.wait_get(saved)

    def wait_get(self, saved: _Saved) -> torch.Tensor:
        """Wait for what begin_get() began."""
        ticket, saved.get = saved.get, 0
        try:
            self.session.wait(ticket)
        except (KeyboardInterrupt, Timeout):
            saved.get = ticket
            raise
        memory, saved.memory = saved.memory, None
        assert memory is not None
        return memory

    def begin_get(self, saved: _Saved) -> None:
        """Start to read a tensor."""
        if saved.get:
            return
        shape, stride, dtype = saved.shape
        memory = torch.empty_strided(shape, stride, dtype=dtype)
        saved.get = self.session.tensor_get(saved.id, memory.data_ptr(), saved.count)
        saved.memory = memory

    def finish(self) -> None:
        """Wait for all that is under way: the job may end then."""
        while self.puts:
            with contextlib.suppress(ZinfError):
                self.wait_put(self.puts.popleft()())
        self.sweep()

    def sweep(self) -> None:
        """Delete the tensors whose graphs are gone."""
        while self.garbage:
            number, tickets, _ = self.garbage.popleft()
            self.count -= 1
            if self.session.is_closed:
                continue
            for ticket in tickets:
                with contextlib.suppress(ZinfError):  # Nobody needs the tensor any more.
                    if ticket:
                        self.session.wait(ticket)
            self.session.tensor_free(number)


_stores: weakref.WeakKeyDictionary[Session, _Store] = weakref.WeakKeyDictionary()


class Activations:
    """What a block of activations() did."""

    def __init__(self, engine: Engine, store: _Store, min_bytes: int) -> None:
        self.tensor_count = 0  # tensors that were put into the daemon
        self.byte_count = 0
        self.error: ZinfError | None = None
        self._engine = engine
        self._store = store
        self._min_bytes = min_bytes

    def pack(self, tensor: torch.Tensor) -> Any:
        """Take a tensor that autograd saves. Called by autograd."""
        if isinstance(tensor, Guarded) or self._is_parameter(tensor):
            return tensor
        if tensor.layout is not torch.strided or tensor.device.type != "cpu":
            return tensor.detach()
        if tensor.is_leaf and isinstance(tensor, nn.Parameter):  # of another model
            return tensor, tensor._version
        try:
            return self._put(tensor)
        except ZinfError as error:
            self.error = error
            raise

    def _put(self, tensor: torch.Tensor) -> Any:
        store = self._store
        store.sweep()
        with torch.no_grad():
            core = _without_repeats(tensor.detach()).resolve_conj().resolve_neg()
            is_large = core.numel() * core.element_size() >= self._min_bytes
            if not is_large or store.count >= _TENSORS_MAX:
                return tensor.shape, core.clone(memory_format=torch.preserve_format)
            stride = core.stride()
            if not _is_dense(core):
                core = core.contiguous()
            saved = store.put(core)
        self.tensor_count += 1
        self.byte_count += saved.count
        return tensor.shape, stride, saved

    def unpack(self, packed: Any) -> torch.Tensor:
        """Return a tensor that backward needs. Called by autograd."""
        if isinstance(packed, torch.Tensor):
            return packed
        if len(packed) == 2 and isinstance(packed[1], int):
            tensor, version = packed
            if tensor._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: a parameter of shape {tuple(tensor.shape)} is at version "
                    f"{tensor._version}; expected version {version} instead"
                )
            return tensor  # type: ignore[no-any-return]
        shape = packed[0]
        if len(packed) == 2:
            return packed[1].expand(shape)  # type: ignore[no-any-return]
        stride, saved = packed[1:]
        self._store.sweep()
        core = self._store.take(saved)
        if core.stride() != stride:
            other = torch.empty_strided(core.shape, stride, dtype=core.dtype)
            core = other.copy_(core)
        return core.expand(shape)

    def _is_parameter(self, tensor: torch.Tensor) -> bool:
        """Whether a plain tensor lies in the memory of a parameter of zinf."""
        address = tensor.data_ptr() if tensor.layout is torch.strided else 0
        return any(
            slot.address <= address < slot.end
            for unit in self._engine.units
            if unit.is_resident
            for slot in unit.slots
        )


def _without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without the copies of expand()."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill the memory from data_ptr() on, in any order of dimensions."""
    expected = 1
    pairs = sorted(zip(tensor.stride(), tensor.shape))
    for stride, size in pairs:
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


@contextlib.contextmanager
def activations(
    model: nn.Module | None = None,
    *,
    budget_bytes: int | str = "64M",
    min_bytes: int | str = "256K",
) -> Iterator[Activations]:
    """Keep tensors that autograd saves inside the block in the daemon, on NVMe if it has a store.

    model: prepared; None: the only prepared model of this process.
    budget_bytes: the daemon's memory for tensors on their way, at least twice the largest tensor.
        The first block of a session makes it.
    min_bytes: smaller tensors stay in the process, and so do tensors beyond 4000 at once.
    Raises NoSpace and StoreFailed in forward or backward if a tensor cannot be kept or read.
    """
    budget = parse_bytes(budget_bytes, "budget_bytes")
    least = parse_bytes(min_bytes, "min_bytes")
    engine = _find_engine(model)
    if engine.device.is_gpu:
        raise Unsupported(
            f"zinf.offload.activations() of a model on {engine.device.place}: zinf stores tensors "
            "of the CPU. Use torch.utils.checkpoint, or torch.autograd.graph.save_on_cpu()"
        )
    store = _stores.get(engine.session)
    if store is None:
        store = _stores[engine.session] = _Store(engine.session, budget)
        engine.before_close.append(store.finish)
    elif store.budget_bytes != budget:
        raise InvalidArgument(
            f"budget_bytes is {budget}, and a former block of this model said {store.budget_bytes}:"
            " give the same to all blocks"
        )
    store.sweep()
    done = Activations(engine, store, max(1, least))
    try:
        with torch.autograd.graph.saved_tensors_hooks(done.pack, done.unpack):
            yield done
    except RuntimeError as error:
        # An exception loses its class on its way through autograd of torch < 2.0.
        cause, done.error = done.error, None
        if cause is None or isinstance(error, ZinfError):
            raise
        error.__traceback__ = None  # Its frames keep the graph alive.
        raise cause from None
    finally:
        done.error = None  # The graph has `done`, and an exception has frames with the graph.


def _find_engine(model: nn.Module | None) -> Engine:
    if model is not None:
        engine = engine_of(model)
        if engine is None:
            raise InvalidArgument(
                "zinf.offload.activations(): the model is not in zinf; call zinf.prepare(), or "
                "fully_shard() and make its optimizer, first"
            )
        return engine
    living = [engine for engine in living_engines() if not engine.session.is_closed]
    if len(living) != 1:
        raise InvalidArgument(
            f"zinf.offload.activations(): this process has {len(living)} models in zinf; name the "
            "model"
        )
    return living[0]
