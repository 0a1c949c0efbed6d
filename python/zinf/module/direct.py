# SPDX-License-Identifier: Apache-2.0
"""Gradients of embeddings and heads that backward puts straight into zinf's memory.

Autograd makes a dense gradient of an embedding: as large as the vocabulary, and zero except in the
rows of the tokens. Autograd then adds this gradient to the gradient of a tied head, which is as
large. In this module the embedding adds its rows to zinf's buffer, and the head computes its
product in zinf's buffer. No dense gradient is made beside the buffer.

Bits: if every use of a parameter takes this way, the gradient has autograd's bits. Rows are summed
in autograd's order, and each sum is added once. If another use of the parameter goes through
autograd, the gradients are added in another order, and the sum differs by rounding.

Conditions: a model on the CPU, a large outer module (units.py), a step of one micro-batch, and a
gradient of the parameter's type. Other uses go through autograd. gradients.py adds the parts up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

if TYPE_CHECKING:
    from .units import Slot

__all__ = [
    "embedding",
    "has_hooks",
    "is_transformed",
    "linear",
    "takes_embedding",
    "takes_linear",
]

_embedding_backward: Any = torch.ops.aten.embedding_dense_backward

# Autograd calls the backward of a function for inputs that need a gradient.
_needs_grad = torch.zeros((), requires_grad=True, device="cpu")

# Whether a transform of torch.func runs: tensors have no values of their own inside of it.
is_transformed: Callable[[], bool] = getattr(
    torch._C, "_are_functorch_transforms_active", lambda: False
)


class _Part:
    """A use of a parameter, with a gradient that does not go through autograd.

    plain: returns the parameter as a plain tensor, while it is present.
    """

    def __init__(self, slot: Slot, plain: Callable[[], torch.Tensor]) -> None:
        self.slot = slot
        self.plain = plain
        self.factors: tuple[torch.Tensor, torch.Tensor] | None = None
        self.has_come = False
        slot.part_count += 1
        slot.has_parts = slot.unit.has_parts = True

    def _come(self) -> None:
        """Note that the part is there. It comes again in a later backward of a retained graph."""
        if self.has_come:
            self.slot.is_repeated = True
            return
        self.has_come = True
        self.slot.part_count = max(0, self.slot.part_count - 1)

    def add_rows(self, rows: torch.Tensor, gradient: torch.Tensor, padding: int) -> None:
        """Add the gradient of a lookup. rows: (n,) int64; gradient: (n, width)."""
        found, inverse = torch.unique(rows, return_inverse=True)
        place = (found == padding).nonzero().flatten().tolist() if padding >= 0 else []
        sums = _embedding_backward(gradient, inverse, len(found), place[0] if place else -1, False)
        self._come()
        self.slot.unit.engine.gradients.take_rows(self.slot, found, sums)

    def add_product(self) -> None:
        """Add the product of the factors."""
        if self.factors is not None:
            (left, right), self.factors = self.factors, None
            self._come()
            self.slot.unit.engine.gradients.take_product(self.slot, left, right)


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, _: torch.Tensor, rows: torch.Tensor, part: _Part, padding: int
    ) -> torch.Tensor:
        weight = part.plain()
        ctx.save_for_backward(rows)
        ctx.part, ctx.padding, ctx.width = part, padding, weight.shape[1]
        return F.embedding(rows, weight)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (rows,) = ctx.saved_tensors
        flat = rows.reshape(-1).to(torch.int64)
        ctx.part.add_rows(flat, gradient.reshape(-1, ctx.width), ctx.padding)
        return None, None, None, None


class _Collect(torch.autograd.Function):
    """The node of the parameter: autograd.grad() of other tensors does not come here."""

    @staticmethod
    def forward(ctx: Any, token: torch.Tensor, part: _Part) -> torch.Tensor:
        ctx.part = part
        return token.detach()

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> Any:
        ctx.part.add_product()
        return None, None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: torch.Tensor, x: torch.Tensor, part: _Part) -> torch.Tensor:
        ctx.save_for_backward(x, token)
        ctx.part = part
        return F.linear(x, part.plain())

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, token = ctx.saved_tensors
        weight = ctx.part.plain()
        flat = gradient.reshape(-1, weight.shape[0])
        passed = flat.mm(weight).view(x.shape) if ctx.needs_input_grad[1] else None
        ctx.part.factors = flat.t(), x.reshape(-1, weight.shape[1])
        return token, passed, None


def has_hooks(slot: Slot) -> bool:
    """Whether the parameter has hooks of its gradient beside zinf's own (watch_parameter())."""
    parameter: Any = slot.parameter
    after = getattr(parameter, "_post_accumulate_grad_hooks", None) or ()
    return bool(parameter._backward_hooks) or len(after) > 1


def _takes_parts(slot: Slot) -> bool:
    """Whether gradients of the parameter may come in parts."""
    unit = slot.unit
    if not (unit.is_outer and torch.is_grad_enabled() and slot.is_trained):
        return False
    if unit.engine.device.is_gpu:
        return False
    if slot.grad is None or slot.grad.dtype != unit.engine.dtype:
        return False
    return unit.engine.takes_parts and slot.parameter.requires_grad and not has_hooks(slot)


def _is_plain(tensor: Any) -> bool:
    return (
        type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.numel() > 0
        and not is_transformed()
    )


def _is_autocast() -> bool:
    try:
        return torch.is_autocast_enabled("cpu")
    except TypeError:  # torch < 2.4
        return torch.is_autocast_cpu_enabled()


def takes_embedding(slot: Slot, rows: Any, options: dict[str, Any]) -> bool:
    """Whether embedding() may be used. options: those of torch's function, by name."""
    is_usual = not options.get("scale_grad_by_freq") and not options.get("sparse")
    padding = options.get("padding_idx")
    has_padding = padding is None or -slot.shape[0] <= padding < slot.shape[0]
    return is_usual and has_padding and _is_plain(rows) and _takes_parts(slot)


def takes_linear(slot: Slot, x: Any, bias: Any) -> bool:
    """Whether linear() may be used."""
    return (
        bias is None
        and _is_plain(x)
        and x.dim() > 1
        and x.dtype == slot.unit.engine.dtype
        and _takes_parts(slot)
        and not _is_autocast()
    )


def embedding(
    slot: Slot, plain: Callable[[], torch.Tensor], rows: torch.Tensor, padding: int | None
) -> torch.Tensor:
    """Look rows of a parameter up, which is present, as torch does."""
    place = -1 if padding is None else padding % slot.shape[0]
    result: Any = _Embedding.apply
    return result(_needs_grad, rows, _Part(slot, plain), place)  # type: ignore[no-any-return]


def linear(slot: Slot, plain: Callable[[], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Multiply by a parameter, which is present, as torch does without a bias."""
    part = _Part(slot, plain)
    collect: Any = _Collect.apply
    result: Any = _Linear.apply
    return result(collect(_needs_grad, part), x, part)  # type: ignore[no-any-return]
