# SPDX-License-Identifier: Apache-2.0
"""Values of a model in zinf: state_dict(), load_state_dict(), and the move into zinf.

state_dict() returns plain copies on the CPU, made unit by unit, at any moment. Tied parameters
share a copy. load_state_dict() first notes what is to be written, and writes it unit by unit when
the outermost module has been loaded. It is collective: all ranks load the same, and the values of
rank 0 count. The optimizer state stays, unless Engine.keeps_state is False.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..errors import InvalidArgument
from . import hooks
from .init import fill, settle
from .parameter import Guarded, NoDispatch, plain

if TYPE_CHECKING:
    from .engine import Engine
    from .units import Slot

__all__ = ["add_hooks", "changed_place", "first_values", "move_parameter", "places_of"]


# ---- the move into zinf ----


def first_values(parameter: nn.Parameter, view: torch.Tensor) -> None:
    """Write the values of a parameter of the model into zinf's memory."""
    if parameter.device.type == "meta":
        raise InvalidArgument(
            "the model is on the meta device and has no values: build it inside zinf.init(), or "
            "begin the job with a snapshot"
        )
    if not fill(parameter, view):
        view.copy_(parameter.detach())


def move_parameter(parameter: nn.Parameter, view: torch.Tensor) -> None:
    """Put a parameter at its address in zinf's memory; what it had before is freed."""
    if parameter.device.type == "meta":
        swap = getattr(torch.utils, "swap_tensors", None)
        if swap is None:
            raise InvalidArgument(
                "parameters on the meta device need torch 2.3: build the model inside zinf.init()"
            )
        swap(parameter, nn.Parameter(view, parameter.requires_grad))
        return
    settle(parameter)
    parameter.data = view


# ---- the model stays as it is ----

Place = tuple[dict[str, Any], str, Any]


def places_of(model: nn.Module) -> list[tuple[str, dict[str, Any], list[Place]]]:
    """Return where each parameter and submodule is, for changed_place()."""
    places = []
    for name, module in model.named_modules():
        for table in (module._parameters, module._modules):
            entries: list[Place] = [(table, key, value) for key, value in table.items()]
            places.append((name, table, entries))
    return places


def changed_place(places: list[tuple[str, dict[str, Any], list[Place]]]) -> str:
    """Return what has changed since places_of(): a text; "": nothing."""
    for name, table, entries in places:
        if len(table) != len(entries):
            known = {key for _, key, _ in entries}
            for key in table:
                if key not in known and not _is_free(table[key]):
                    return f"'{_join(name, key)}' is new"
        for _, key, value in entries:
            if table.get(key) is not value:
                return f"'{_join(name, key)}' was {'replaced' if key in table else 'removed'}"
    return ""


def _is_free(item: Any) -> bool:
    """Whether an added item has nothing to train."""
    if isinstance(item, nn.Module):
        return not any(True for _ in item.parameters())
    return item is None


def _join(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


# ---- state_dict() ----


class _StateHook(hooks.ModuleHook):
    """Replaces views of parameters in a state_dict by copies."""

    def __call__(self, module: nn.Module, state: Any, prefix: str, metadata: Any) -> None:
        if prefix or not self.is_mine(module):
            return  # a child's part of it
        places: dict[int, list[str]] = {}
        slots: dict[int, Slot] = {}
        for key, value in state.items():
            if isinstance(value, Guarded) and not isinstance(value, nn.Parameter):
                slot = value._zinf
                places.setdefault(slot.index, []).append(key)
                slots[slot.index] = slot
        held = None
        try:
            for index in sorted(places):  # of one unit after the other
                unit = slots[index].unit
                if unit is not held:
                    if held is not None:
                        held.release()
                    held = None
                    unit.hold()
                    held = unit
                copied = plain(slots[index].parameter, is_on_host=True).data
                for key in places[index]:
                    state[key] = copied
        finally:
            if held is not None:
                held.release()


# ---- load_state_dict() ----


class _Loader:
    """Notes what load_state_dict() copies to parameters, and writes it at the end."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.outermost: Any = None
        self.values: dict[int, tuple[Slot, torch.Tensor]] = {}

    def begin(self, module: nn.Module) -> None:
        if self.outermost is None or self.outermost is module:
            self.outermost = module
            self.values = {}
            self.engine.recorder = self.record

    def record(self, slot: Slot, value: torch.Tensor) -> None:
        self.values[slot.index] = (slot, value)

    def end(self, module: nn.Module) -> None:
        if self.outermost is not module:
            return
        values, self.values = self.values, {}
        self.outermost = None
        self.engine.recorder = None
        if values:
            self.write(values)

    def write(self, values: dict[int, tuple[Slot, torch.Tensor]]) -> None:
        engine = self.engine
        engine.begin_writing()
        for unit in engine.units:
            found = [values[slot.index] for slot in unit.slots if slot.index in values]
            if not found:
                continue
            is_root = engine.session.rank == 0
            if is_root:
                engine.open_unit(unit)
            try:
                if is_root:
                    with NoDispatch(), torch.no_grad():
                        for slot, value in found:
                            engine.write_target(slot).copy_(value)
            finally:
                engine.close_unit(unit)
        engine.commit()


class _LoadBegins(hooks.ModuleHook):
    def __init__(self, module: nn.Module, loader: _Loader) -> None:
        super().__init__(module)
        self._loader = loader

    def __call__(self, state: Any, prefix: str, metadata: Any, *_: Any) -> None:
        module = self._module()
        if module is None:
            return
        if metadata.get("assign_to_params_buffers"):
            raise InvalidArgument(
                "load_state_dict(assign=True) would replace parameters that lie in zinf: load "
                "without assign"
            )
        self._loader.begin(module)


class _LoadEnds(hooks.ModuleHook):
    def __init__(self, module: nn.Module, loader: _Loader) -> None:
        super().__init__(module)
        self._loader = loader

    def __call__(self, module: nn.Module, incompatible_keys: Any) -> None:
        if self.is_mine(module):
            self._loader.end(module)


class _ZeroGrad:
    """model.zero_grad(): forgets the gradients of a step that has begun, as of an optimizer."""

    def __init__(self, engine: Engine, model: nn.Module) -> None:
        self._engine = engine
        self._model = model

    def __call__(self, set_to_none: bool = True) -> None:
        self._engine.discard()
        type(self._model).zero_grad(self._model, set_to_none)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = memo.get(id(self._model))
        return None if copied is None else type(copied).zero_grad.__get__(copied)

    def __reduce__(self) -> Any:
        return getattr, (self._model, "zero_grad")


def add_hooks(engine: Engine, model: nn.Module) -> None:
    """Let a model and its modules save and load what lies in zinf."""
    loader = _Loader(engine)
    for item in model.modules():
        if not any(True for _ in item.parameters()):
            continue
        module: Any = item
        module._register_state_dict_hook(_StateHook(module))
        module._register_load_state_dict_pre_hook(_LoadBegins(module, loader))
        module.register_load_state_dict_post_hook(_LoadEnds(module, loader))
    model.zero_grad = _ZeroGrad(engine, model)  # type: ignore[method-assign]
