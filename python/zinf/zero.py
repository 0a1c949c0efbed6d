# SPDX-License-Identifier: Apache-2.0
"""deepspeed.zero for scripts: Init and GatheredParameters over parameters in zinf."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import torch

from .errors import InvalidArgument
from .module.engine import Engine
from .module.init import init, is_pending
from .module.parameter import Guarded, NoDispatch, guard, plain
from .module.units import Slot, Unit

__all__ = ["GatheredParameters", "Init", "register_external_parameter"]


class Init:
    """Build a model inside the block without memory for its parameters: zinf.init().

    enabled: False does nothing. Other arguments are DeepSpeed's, and have no effect: types and
    places come from the configuration that zinf.initialize() gets. A model that exists already
    (module=) stays as it is.
    """

    def __init__(
        self, module: torch.nn.Module | None = None, *unused: Any, enabled: bool = True, **also: Any
    ) -> None:
        self.enabled = enabled and module is None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Init:
        if self.enabled:
            self._stack.enter_context(init())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def register_external_parameter(module: torch.nn.Module, parameter: Any) -> None:
    """Do nothing: any use of a parameter brings its unit."""


def unregister_external_parameter(module: torch.nn.Module, parameter: Any) -> None:
    """Do nothing."""


class GatheredParameters:
    """Have parameters present inside the block; with modifier_rank, let that rank write them.

    params: a parameter, or several. Those outside zinf are left alone. modifier_rank: inside the
        block the parameters are ordinary tensors with memory of their own. At its end the values
        of this rank become those of all ranks and are committed, unit by unit. Units of which no
        value changed stay as they are; the optimizer state of the others becomes zero. Between
        steps only, and collective. On a GPU those tensors lie there, all at once: name as few as it
        has room for.
    fwd_module: has no effect. enabled: False does nothing.
    """

    def __init__(
        self,
        params: Any,
        modifier_rank: int | None = None,
        fwd_module: torch.nn.Module | None = None,
        enabled: bool = True,
    ) -> None:
        is_many = isinstance(params, Iterable) and not isinstance(params, torch.Tensor)
        given: list[Any] = list(params) if is_many else [params]
        self.modifier_rank = modifier_rank
        self._engine: Engine | None = None
        self._slots: list[Slot] = []
        self._held: list[Unit] = []
        self._views: dict[int, torch.Tensor] = {}  # of zinf's memory
        self._is_open = False
        if not enabled:
            return
        if modifier_rank and any(is_pending(item) for item in given):
            raise InvalidArgument(
                f"modifier_rank is {modifier_rank}: before zinf.initialize() only the values of "
                "rank 0 count"
            )
        slots = {item._zinf.index: item._zinf for item in given if isinstance(item, Guarded)}
        if not slots:
            return
        self._slots = [slots[index] for index in sorted(slots)]
        self._engine = self._slots[0].unit.engine
        if any(slot.unit.engine is not self._engine for slot in self._slots):
            raise InvalidArgument("GatheredParameters: parameters of two models; use two blocks")
        world_size = self._engine.session.world_size
        if modifier_rank is not None and not 0 <= modifier_rank < world_size:
            raise InvalidArgument(
                f"modifier_rank is {modifier_rank}: the job has the ranks 0 to {world_size - 1}"
            )

    def _units(self) -> list[Unit]:
        return list(dict.fromkeys(slot.unit for slot in self._slots))

    def __enter__(self) -> None:
        engine = self._engine
        if engine is None:
            return
        if self.modifier_rank is None:
            for unit in self._units():
                unit.hold()
                self._held.append(unit)
            return
        if engine.session.world_size > 1 and not torch.distributed.is_initialized():
            raise InvalidArgument(
                "GatheredParameters with modifier_rank over several ranks needs torch.distributed: "
                "call zinf.init_distributed() at the beginning"
            )
        engine.begin_writing()
        for slot in self._slots:
            self._views[slot.index] = _give_memory(slot)
        self._is_open = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._held:
            self._held.pop().release()
        engine = self._engine
        if engine is None or self.modifier_rank is None or not self._is_open:
            return
        self._is_open = False
        values = {
            slot.index: _take_memory(slot, self._views.pop(slot.index)) for slot in self._slots
        }
        if kind is not None:
            return  # what an exception left is no state for all ranks
        for slot in self._slots:
            if values[slot.index].shape != slot.parameter.shape:
                raise InvalidArgument(
                    f"parameter '{slot.name}' got another shape inside GatheredParameters"
                )
        is_root = engine.session.rank == self.modifier_rank
        written = self._written(engine, values, is_root)
        for unit in written:
            if is_root:
                engine.open_unit(unit)
                with NoDispatch(), torch.no_grad():
                    for slot in self._slots:
                        if slot.unit is unit:
                            engine.write_target(slot).copy_(values[slot.index])
            engine.close_unit(unit, self.modifier_rank)
        if written:
            engine.commit()

    def _written(
        self, engine: Engine, values: dict[int, torch.Tensor], is_root: bool
    ) -> list[Unit]:
        """Return the units of which modifier_rank changed a value. Collective."""
        units = self._units()
        flags = torch.zeros(len(units), dtype=torch.int64)
        if is_root:
            for slot in self._slots:
                index = units.index(slot.unit)
                if not flags[index] and not torch.equal(plain(slot.parameter), values[slot.index]):
                    flags[index] = 1
        if engine.session.world_size > 1:
            flags = flags.to(_place_for_collectives())
            torch.distributed.broadcast(flags, self.modifier_rank)
        return [unit for unit, flag in zip(units, flags.tolist()) if flag]


def _place_for_collectives() -> torch.device:
    """Return where torch.distributed takes tensors. NCCL takes none of the CPU."""
    if torch.distributed.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _give_memory(slot: Slot) -> torch.Tensor:
    """Make a parameter an ordinary one with a copy of its values. Return its view of zinf."""
    item: Any = slot.parameter
    values = plain(item).data
    item.__class__ = type(item).__bases__[1]  # the class that guard() replaced
    view: torch.Tensor = item.data
    item.data = values
    return view


def _take_memory(slot: Slot, view: torch.Tensor) -> torch.Tensor:
    """Put a parameter back to its address in zinf. Return what it had inside the block."""
    item: Any = slot.parameter
    values: torch.Tensor = item.data
    item.data = view
    guard(item, slot)
    return values


_LATER = ("TiledLinear", "TiledLinearReturnBias", "unwrap_model_for_generation")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        raise AttributeError(f"zinf.zero has no '{name}': units of zinf are whole modules")
    raise AttributeError(f"module 'zinf.zero' has no attribute '{name}'")
