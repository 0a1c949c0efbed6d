# SPDX-License-Identifier: Apache-2.0
"""Hooks of a model: when its units come and go.

forward    a pre-hook holds the unit, a hook releases it. The rest stays for backward. A unit of
           several modules (tied weights) comes for each of them. An embedding holds only the rows
           that it reads, while it reads them (parameter.py)
backward   the hook of an operation's result (parameter.py) keeps the unit. It goes when the
           gradient of the block's input is there, or all its own gradients; else at the end.
           The backward of an embedding needs no values: its unit does not come. On a GPU the
           hook of a block's result keeps the unit as well: a function of its own may end the
           block, and read parameters by their addresses
recomputation (checkpointing)  nothing is released: the backward of the unit follows at once

A hook object belongs to one module. A copy of the module (deepcopy, pickle) has hooks that do
nothing, as the copy has parameters of its own.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from .engine import Engine
    from .units import Unit

__all__ = [
    "ModuleHook",
    "add_forward_hooks",
    "add_model_hooks",
    "is_inside_backward",
    "queue_at_end",
]

_engine_of_autograd: Any = torch.autograd.Variable._execution_engine


def _nothing(*_: Any, **__: Any) -> None:
    return None


def queue_at_end(call: Any) -> bool:
    """Have autograd call `call` when the backward pass that runs now ends. False: none runs."""
    try:
        _engine_of_autograd.queue_callback(call)
    except RuntimeError:
        return False
    return True


_task_id: Any = getattr(torch._C, "_current_graph_task_id", None)


def is_inside_backward() -> bool:
    """Whether this thread is inside a backward pass."""
    if _task_id is not None:
        return bool(_task_id() != -1)
    return queue_at_end(_nothing)


class ModuleHook:
    """A hook of one module, which copies of the module do not have."""

    def __init__(self, module: nn.Module) -> None:
        self._module = weakref.ref(module)

    def __deepcopy__(self, memo: Any) -> Any:
        return _nothing

    def __reduce__(self) -> Any:
        return _make_nothing, ()

    def is_mine(self, module: nn.Module) -> bool:
        """Whether the hook belongs to this module, and not to one of which it is a copy."""
        return self._module() is module


def _make_nothing() -> Any:
    return _nothing


class _Before(ModuleHook):
    def __init__(self, engine: Engine, unit: Unit, module: nn.Module) -> None:
        super().__init__(module)
        self._engine = engine
        self._unit = unit
        # A class that is derived from it may use the weight in another way.
        self._is_lookup = type(module) is nn.Embedding

    def __call__(self, module: nn.Module, args: Any) -> None:
        if self.is_mine(module):
            self._engine.enter(self._unit, args, is_lookup=self._is_lookup)


class _After(ModuleHook):
    def __init__(self, engine: Engine, unit: Unit, module: nn.Module) -> None:
        super().__init__(module)
        self._engine = engine
        self._unit = unit
        self._is_lookup = type(module) is nn.Embedding

    def __call__(self, module: nn.Module, args: Any, result: Any) -> None:
        if self.is_mine(module):
            self._engine.leave(self._unit, result, is_lookup=self._is_lookup)


class _Begin(ModuleHook):
    def __init__(self, engine: Engine, model: nn.Module) -> None:
        super().__init__(model)
        self._engine = engine

    def __call__(self, module: nn.Module, args: Any) -> None:
        if self.is_mine(module):
            self._engine.begin_forward()


class _Result(ModuleHook):
    def __init__(self, engine: Engine, model: nn.Module) -> None:
        super().__init__(model)
        self._engine = engine

    def __call__(self, module: nn.Module, args: Any, result: Any) -> None:
        if self.is_mine(module):
            self._engine.check_result(result)


def add_model_hooks(engine: Engine, model: nn.Module) -> None:
    """Add hooks to a model that is no unit's module: a graph of a former step is refused."""
    model.register_forward_pre_hook(_Begin(engine, model))
    model.register_forward_hook(_Result(engine, model))


def add_forward_hooks(engine: Engine, unit: Unit) -> bool:
    """Add the hooks of a unit's modules. Return: False if this torch skips them on an exception."""
    are_always_called = True
    for module in unit.modules:
        are_always_called = _add_forward_hooks(engine, unit, module) and are_always_called
    return are_always_called


def _add_forward_hooks(engine: Engine, unit: Unit, module: nn.Module) -> bool:
    before, after = _Before(engine, unit, module), _After(engine, unit, module)
    try:
        module.register_forward_pre_hook(before, prepend=True)
    except TypeError:  # torch < 2.0
        module.register_forward_pre_hook(before)
    try:
        module.register_forward_hook(after, always_call=True)
    except TypeError:  # torch < 2.1
        module.register_forward_hook(after)
        return False
    return True


def call_before_node(tensor: Any, hook: Any) -> None:
    """Have backward call `hook` before the operation that made a tensor, behind hooks of it."""
    register: Any = getattr(tensor.grad_fn, "register_prehook", None)
    (tensor.register_hook if register is None else register)(hook)  # None: torch < 2.0


def first_differentiable(value: Any, depth: int = 0) -> Any:
    """Return the first tensor in a value that takes part in a graph."""
    if isinstance(value, torch.Tensor):
        return value if value.requires_grad else None
    if depth > 4:
        return None
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        value = vars(value).values() if hasattr(value, "__dataclass_fields__") else ()
    for item in value:
        found = first_differentiable(item, depth + 1)
        if found is not None:
            return found
    return None
