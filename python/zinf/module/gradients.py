# SPDX-License-Identifier: Apache-2.0
"""Gradients on their way into zinf.

Autograd accumulates a gradient into `p.grad`. The hook of that moment copies it into zinf's buffer
(the first one of a step) or adds it there, and sets `p.grad` to None. Some uses of large parameters
bring their part of the gradient themselves (direct.py). When the last gradient of a unit came in
the last micro-batch, the unit is handed over to the reduction. The order is that of backward, which
is equal in all ranks that run the same model; the rest comes last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

import torch

from ..errors import Canceled, MissingGradient, ZinfError
from . import direct
from .parameter import NoDispatch

if TYPE_CHECKING:
    from .engine import Engine
    from .units import Slot, Unit

__all__ = ["Gradients", "watch_parameter"]

_NAMES_MAX = 6  # parameters that an error names

# Puts a gradient into a buffer (True), or adds it there (False).
Adder = Callable[[torch.Tensor, bool], None]


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


def _put(buffer: torch.Tensor, gradient: torch.Tensor, is_first: bool) -> None:
    if is_first:
        buffer.copy_(gradient)
    else:
        buffer.add_(gradient)


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
            if slot.has_parts and not slot.is_dense:  # Parts may come again behind it.
                slot.is_repeated = True
            slot.is_dense = False
            found = gradient.detach()
            if found.layout is not torch.strided:
                found = found.to_dense()
            self._add(slot, lambda buffer, is_first: _put(buffer, found, is_first))
        self._go_on(slot.unit)

    @property
    def takes_parts(self) -> bool:
        """Whether a gradient may come in parts: autograd adds up those of one micro-batch."""
        return self.micro_batches == 1 and not self.has_no_sync and not self.no_sync_depth

    def take_rows(self, slot: Slot, rows: torch.Tensor, gradient: torch.Tensor) -> None:
        """Add rows to a gradient: a part of it. rows: (n,), each once; gradient: (n, width)."""

        def add(buffer: torch.Tensor, is_first: bool) -> None:
            if is_first:
                buffer.zero_()
            buffer.index_add_(0, rows, gradient)

        self._take_part(slot, add)

    def take_product(self, slot: Slot, left: torch.Tensor, right: torch.Tensor) -> None:
        """Add a product of matrices to a gradient: a part of it."""

        def add(buffer: torch.Tensor, is_first: bool) -> None:
            if is_first:
                torch.mm(left, right, out=buffer)
            else:
                buffer.add_(left.mm(right))

        self._take_part(slot, add)

    def _take_part(self, slot: Slot, add: Adder) -> None:
        if direct.has_hooks(slot):  # Autograd would call them with the whole gradient.
            raise ZinfError(
                f"register hooks on '{slot.name}' before forward: an embedding or a head puts its "
                "gradient into zinf's memory, and a hook that was registered after forward would "
                "not see it"
            )
        with NoDispatch(), torch.no_grad():
            self._add(slot, add)
        self._go_on(slot.unit)

    def _go_on(self, unit: Unit) -> None:
        """Give back or hand over a unit when the last of its gradients is there."""
        if unit.round_count == len(unit.slots):
            unit.end_backward()
        if unit.has_parts and any(
            slot.has_more or slot.beside is not None for slot in unit.trained
        ):
            return
        if self._is_complete(unit) and not unit.is_rest and unit.call_count <= 1:
            self._hand(unit)

    def _add(self, slot: Slot, add: Adder) -> None:
        """Have `add` put a gradient into zinf, unless another rank discards the step."""
        if self.canceled is not None or slot.grad is None:  # None: it is in no optimizer
            return
        if self.engine.is_gpu:
            self.engine.order()
        try:
            if self._is_apart(slot):
                self._add_apart(slot, slot.grad, add)
                return
            self._open(slot)
            add(slot.grad, not slot.rounds)
            self._count(slot)
        except Canceled as error:
            self.canceled = error

    def _is_apart(self, slot: Slot) -> bool:
        """Whether parts of a gradient are added up beside zinf's buffer.

        Autograd adds up the parts of a backward pass, and then adds the sum to `p.grad`. So parts
        of a later pass are kept apart. So are those of a unit that would hold memory for gradients
        which other units need meanwhile.
        """
        if not slot.unit.has_parts:
            return False
        is_later = slot.rounds > (slot.round == self.round)
        return slot.beside is not None or is_later or (slot.has_more and not slot.unit.has_room)

    def _add_apart(self, slot: Slot, buffer: torch.Tensor, add: Adder) -> None:
        self._check_handed(slot)
        self.has_any = True
        is_first = slot.beside is None
        if slot.beside is None:
            slot.beside = torch.empty_like(buffer)
        add(slot.beside, is_first)
        if not slot.has_more:
            self._join(slot)

    def _join(self, slot: Slot) -> None:
        """Put the sum of parts that were kept apart into zinf."""
        beside, slot.beside = slot.beside, None
        if beside is None or slot.grad is None or self.canceled is not None:
            return
        if self.engine.is_gpu:
            self.engine.order()
        self._open(slot)
        with NoDispatch(), torch.no_grad():
            _put(slot.grad, beside, not slot.rounds)
        self._count(slot)

    def _open(self, slot: Slot) -> None:
        """Have the buffer of the slot's unit."""
        self._check_handed(slot)
        unit = slot.unit
        if not unit.is_acquired:
            self.engine.begin_step()
            self.engine.session.grad_acquire(unit.index)
            unit.is_acquired = True
        self.has_any = True

    def _check_handed(self, slot: Slot) -> None:
        unit = slot.unit
        if unit.is_handed:
            raise ZinfError(
                f"parameter '{slot.name}' got a gradient after its unit '{unit.name}' was handed "
                "over in this step: call optimizer.step() or optimizer.zero_grad() first. For "
                "several backward passes in a step set gradient_accumulation_steps, or use "
                "no_sync() for all but the last"
            )

    def _count(self, slot: Slot) -> None:
        """Note that a gradient is in the buffer."""
        unit = slot.unit
        if not slot.rounds:
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
        if self.engine.is_gpu:
            self.engine.order()
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
            self._join_parts(unit)
            for slot in unit.trained:
                slot.is_repeated = False
            is_whole = self.is_final and all(slot.rounds for slot in unit.trained)
            if self._is_complete(unit) or (is_whole and unit.is_acquired):
                self._hand(unit)
            unit.final_count = unit.round_count = 0
        self.round += 1

    def _join_parts(self, unit: Unit) -> None:
        """Put into zinf what was kept apart for parts that have not come."""
        try:
            for slot in unit.trained:
                self._join(slot)
        except Canceled as error:
            self.canceled = error

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
        if self.engine.is_gpu:
            self.engine.order()
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
                slot.beside = None
                slot.is_repeated = False
                slot.rounds = 0
                slot.round = slot.final_round = -1

    def forget_parts(self) -> None:
        """Expect no parts of the graphs so far: after a step they are refused."""
        for unit in self.engine.units:
            unit.has_parts = False
            for slot in unit.trained:
                slot.part_count = 0
                slot.has_parts = slot.is_dense = False


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
