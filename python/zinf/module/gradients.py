# SPDX-License-Identifier: Apache-2.0
"""Gradients on their way into zinf.

Autograd accumulates a gradient into `p.grad`. The hook of that moment copies it into zinf's buffer
(the first one of a step) or adds it there, and sets `p.grad` to None. When the last gradient of a
unit came in the last micro-batch, the unit is handed over to the reduction. The order is that of
backward, which is equal in all ranks that run the same model; the rest comes last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

import torch

from ..errors import Canceled, MissingGradient, ZinfError
from .parameter import NoDispatch

if TYPE_CHECKING:
    from .engine import Engine
    from .units import Slot, Unit

__all__ = ["Gradients", "watch_parameter"]

_NAMES_MAX = 6  # parameters that an error names


def watch_parameter(slot: Slot, arrived: Callable[[Slot], None]) -> None:
    """Call `arrived` whenever autograd has accumulated a gradient into the parameter."""
    parameter: Any = slot.parameter

    def hook(*_: Any) -> None:
        arrived(slot)

    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        slot.hook = parameter.register_post_accumulate_grad_hook(hook)
        return
    with NoDispatch(), torch.enable_grad():
        view: Any = parameter.expand_as(parameter)
        slot.node = view.grad_fn.next_functions[0][0]
    slot.hook = slot.node.register_hook(hook)


class Gradients:
    """The gradients of one step of this rank."""

    def __init__(self, engine: Engine, micro_batches: int, finds_unused: bool) -> None:
        self.engine = engine
        self.micro_batches = micro_batches
        self.finds_unused = finds_unused
        self.round = 0  # backward passes, ever
        self.no_sync_depth = 0
        self.has_no_sync = False  # no_sync() was used in this step
        self.has_any = False  # a gradient came in this step
        # Another rank discards the step: the gradients of this one are dropped until discard().
        self.canceled: Canceled | None = None

    # ---- during backward ----

    def arrived(self, slot: Slot) -> None:
        """Take the gradient that autograd has accumulated."""
        parameter = slot.parameter
        with NoDispatch(), torch.no_grad():
            gradient = parameter.grad
            if gradient is None:
                return
            parameter.grad = None
            self._add(slot, gradient.detach())
        unit = slot.unit
        if unit.round_count == len(unit.slots):
            unit.end_backward()
        if self._is_complete(unit) and not unit.is_rest and unit.call_count <= 1:
            self._hand(unit)

    def _add(self, slot: Slot, gradient: torch.Tensor) -> None:
        """Put a gradient into zinf, unless another rank discards the step."""
        if self.canceled is not None or slot.grad is None:  # None: it is in no optimizer
            return
        try:
            self._put(slot, slot.grad, gradient)
        except Canceled as error:
            self.canceled = error

    def _put(self, slot: Slot, buffer: torch.Tensor, gradient: torch.Tensor) -> None:
        unit = slot.unit
        if unit.is_handed:
            raise ZinfError(
                f"parameter '{slot.name}' got a gradient after its unit '{unit.name}' was handed "
                "over in this step: call optimizer.step() or optimizer.zero_grad() first. For "
                "several backward passes in a step set gradient_accumulation_steps, or use "
                "no_sync() for all but the last"
            )
        if not unit.is_acquired:
            self.engine.begin_step()
            self.engine.session.grad_acquire(unit.index)
            unit.is_acquired = True
        self.has_any = True
        if gradient.layout is not torch.strided:
            gradient = gradient.to_dense()
        if slot.rounds:
            buffer.add_(gradient)
        else:
            buffer.copy_(gradient)
            self.engine.session.grad_done(slot.index)
        if slot.round != self.round:
            slot.round = self.round
            slot.rounds += 1
            unit.round_count += 1
            if slot.rounds == self.micro_batches:
                unit.full_count += 1
        if self.is_final and slot.final_round != self.round:
            slot.final_round = self.round
            unit.final_count += 1

    @property
    def is_final(self) -> bool:
        """Whether no_sync() says that this backward pass is the last one of the step."""
        return self.has_no_sync and not self.no_sync_depth

    def _is_complete(self, unit: Unit) -> bool:
        if unit.is_handed or not unit.is_acquired or self.no_sync_depth or self.canceled:
            return False
        count = unit.final_count if self.has_no_sync else unit.full_count
        return count == len(unit.trained)

    def _hand(self, unit: Unit) -> None:
        try:
            self.engine.session.reduce(unit.index)
        except Canceled as error:
            self.canceled = error
        unit.is_acquired = False
        unit.is_handed = True

    def end_round(self) -> None:
        """End a backward pass: hand over what waits for that, the rest last."""
        for unit in self.engine.units_backward():
            unit.call_count = 0
            is_whole = self.is_final and all(slot.rounds for slot in unit.trained)
            if self._is_complete(unit) or (is_whole and unit.is_acquired):
                self._hand(unit)
            unit.final_count = unit.round_count = 0
        self.round += 1

    # ---- the end of a step ----

    def flush(self) -> None:
        """Hand over all that was not yet.

        Raises MissingGradient with the names of parameters, and Canceled.
        """
        if self.canceled is not None:
            raise Canceled(
                f"{self.canceled}. It called optimizer.zero_grad() or engine.discard(), and this "
                "rank goes on with the step: every rank makes the same calls"
            )
        units = self.engine.units_backward()
        missing = [
            slot
            for unit in units
            for slot in unit.trained
            if not slot.rounds and not unit.is_handed
        ]
        if missing and not self.finds_unused:
            raise MissingGradient(_missing_text(missing))
        for unit in units:
            if unit.is_handed or not unit.trained:
                continue
            if not unit.is_acquired:
                self.engine.session.grad_acquire(unit.index)
            self._hand(unit)

    def reset(self) -> None:
        """Forget the gradients of a step that ended."""
        self.has_no_sync = self.has_any = False
        self.canceled = None
        for unit in self.engine.units:
            unit.is_acquired = unit.is_handed = False
            unit.full_count = unit.final_count = unit.round_count = unit.call_count = 0
            for slot in unit.trained:
                slot.rounds = 0
                slot.round = slot.final_round = -1


def _missing_text(missing: list[Slot]) -> str:
    names = ", ".join(f"'{slot.name}'" for slot in missing[:_NAMES_MAX])
    more = f" and {len(missing) - _NAMES_MAX} more" if len(missing) > _NAMES_MAX else ""
    with NoDispatch():
        frozen = [slot for slot in missing if not slot.parameter.requires_grad]
    hint = f". '{frozen[0].name}' was frozen after prepare(): freeze it before" if frozen else ""
    return (
        f"no gradient in this step for parameters {names}{more}: use them in forward, freeze them "
        f"before zinf.prepare(), or set find_unused_parameters=True{hint}"
    )
