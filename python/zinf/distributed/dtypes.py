# SPDX-License-Identifier: Apache-2.0
"""How tensors of torch travel through libzinf: element types and reductions."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ..errors import InvalidArgument, Unsupported

__all__ = ["Plan", "moved", "plan"]

F32, F16, BF16, I8, U8, I32, I64, F64 = range(1, 9)
SUM, AVG, PROD, MIN, MAX, BAND, BOR, BXOR = range(1, 9)

# Types that libzinf reduces.
NATIVE = {
    torch.float32: F32,
    torch.float16: F16,
    torch.bfloat16: BF16,
    torch.int8: I8,
    torch.uint8: U8,
    torch.int32: I32,
    torch.int64: I64,
    torch.float64: F64,
}
_FLOATS = (F32, F16, BF16, F64)
_WIDTHS = {1: U8, 2: F16, 4: I32, 8: I64}  # of types for copies: all bits are kept
_OPS: dict[Any, int] = {
    dist.ReduceOp.SUM: SUM,
    dist.ReduceOp.PRODUCT: PROD,
    dist.ReduceOp.MIN: MIN,
    dist.ReduceOp.MAX: MAX,
    dist.ReduceOp.BAND: BAND,
    dist.ReduceOp.BOR: BOR,
    dist.ReduceOp.BXOR: BXOR,
}
if hasattr(dist.ReduceOp, "AVG"):
    _OPS[dist.ReduceOp.AVG] = AVG
_NAMES = ("", "SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
# Of bools, as 0 and 1 in a byte.
_BOOL_OPS = {SUM: BOR, MAX: BOR, BOR: BOR, PROD: BAND, MIN: BAND, BAND: BAND, BXOR: BXOR}
# Integers that libzinf does not reduce: the type that holds all their values, else the type of the
# same width.
_WIDER = {torch.int16: torch.int32}
_SAME_BITS: dict[torch.dtype, torch.dtype] = {}
if hasattr(torch, "uint16"):
    _WIDER[torch.uint16] = torch.int32
    _WIDER[torch.uint32] = torch.int64
    _SAME_BITS[torch.uint64] = torch.int64


class Plan:
    """A reduction as libzinf makes it.

    dtype, op: libzinf's numbers. view: the type that the tensor is seen as, of the same width;
    wide: the type that it is converted to and from. Either may be None.
    """

    __slots__ = ("dtype", "is_complex", "op", "view", "wide")

    def __init__(
        self,
        dtype: int,
        op: int,
        view: torch.dtype | None = None,
        wide: torch.dtype | None = None,
        is_complex: bool = False,
    ) -> None:
        self.dtype, self.op, self.view, self.wide = dtype, op, view, wide
        self.is_complex = is_complex


def _number(op: Any) -> int:
    kind = getattr(op, "op", op)  # torch 2 wraps the kind of reduction.
    number = _OPS.get(kind)
    if number is None:
        number = next((value for key, value in _OPS.items() if key == kind), None)
    if number is None:
        raise Unsupported(f"zinf has no reduction {kind}: it has {', '.join(_NAMES[1:])}")
    return number


_plans: dict[tuple[torch.dtype, Any], Plan] = {}


def plan(dtype: torch.dtype, op: Any) -> Plan:
    """Return how tensors of a type are reduced. Raises Unsupported for what libzinf cannot do."""
    key = (dtype, getattr(op, "op", op))
    try:
        return _plans[key]
    except (KeyError, TypeError):
        made = _make(dtype, _number(op))
    if key[1].__hash__ is not None:
        _plans[key] = made
    return made


def _make(dtype: torch.dtype, op: int) -> Plan:
    native = NATIVE.get(dtype)
    if dtype is torch.bool and op in _BOOL_OPS:
        return Plan(U8, _BOOL_OPS[op], view=torch.uint8)
    if dtype.is_complex and op in (SUM, AVG) and dtype != getattr(torch, "complex32", None):
        real = torch.float64 if dtype is torch.complex128 else torch.float32
        return Plan(NATIVE[real], op, is_complex=True)
    if native is not None:
        if (op == AVG) == (native in _FLOATS) or op in (SUM, PROD, MIN, MAX):
            return Plan(native, op)
        if op in (BAND, BOR, BXOR) and native not in _FLOATS:
            return Plan(native, op)
    if dtype in _WIDER and op != AVG:
        return Plan(NATIVE[_WIDER[dtype]], op, wide=_WIDER[dtype])
    if dtype in _SAME_BITS and op not in (AVG, MIN, MAX):
        return Plan(NATIVE[_SAME_BITS[dtype]], op, view=_SAME_BITS[dtype])
    if op == AVG and not dtype.is_floating_point and not dtype.is_complex:
        raise Unsupported(f"zinf has no average of {dtype}: ask for SUM, and divide")
    raise Unsupported(f"zinf has no {_NAMES[op]} of {dtype}")


def moved(tensor: torch.Tensor) -> tuple[int, int]:
    """Return libzinf's type for copies of a tensor's elements, and its elements in each of them."""
    width = tensor.element_size()
    dtype = _WIDTHS.get(width)
    if dtype is not None:
        return dtype, 1
    if width % 8:
        raise InvalidArgument(f"elements of {width} bytes cannot be moved")
    return I64, width // 8
