# SPDX-License-Identifier: Apache-2.0
"""Optimizer state of a model in zinf, from and to torch's layout.

torch keeps a dict for each parameter: exp_avg and exp_avg_sq of Adam and AdamW, momentum_buffer of
SGD, sum of Adagrad, exp_avg of Lion, and the number of its steps. zinf counts steps once for the
job. Parameters pass one by one, so that no more than one of them is in memory beside the dict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Callable

import torch

from ..errors import InvalidArgument
from ..session import StateKind
from .parameter import Guarded

if TYPE_CHECKING:
    from .engine import Engine
    from .units import Slot

__all__ = [
    "betas_of",
    "fill_from_master",
    "is_counted",
    "kind_of",
    "load",
    "names_of",
    "one_count",
    "read",
    "read_kind",
    "slot_of",
    "write",
    "write_kind",
]

_KINDS: dict[str, dict[str, StateKind]] = {
    "adamw": {"exp_avg": StateKind.EXP_AVG, "exp_avg_sq": StateKind.EXP_AVG_SQ},
    "adam": {"exp_avg": StateKind.EXP_AVG, "exp_avg_sq": StateKind.EXP_AVG_SQ},
    "sgd": {"momentum_buffer": StateKind.MOMENTUM},
    "adagrad": {"sum": StateKind.SUM},
    "lion": {"exp_avg": StateKind.EXP_AVG},
}
# Without a count of their own torch's SGD and other Lions have none.
_COUNTED = frozenset(("adamw", "adam", "adagrad"))


def slot_of(parameter: torch.Tensor) -> Slot | None:
    """Return the place of a trained parameter; None: it has no state."""
    if not isinstance(parameter, Guarded):
        return None
    slot: Slot = parameter._zinf
    return slot if slot.is_trained else None


def is_counted(kind: str) -> bool:
    """Whether torch's optimizer of this kind keeps a number of steps."""
    return kind in _COUNTED


def names_of(kind: str, groups: Iterable[dict[str, Any]]) -> list[str]:
    """Return torch's names of the state. groups: SGD without momentum keeps none."""
    if kind == "sgd" and not any(group.get("momentum") for group in groups):
        return []
    return list(_KINDS[kind])


def betas_of(kind: str, *groups: Mapping[str, Any]) -> tuple[float, float]:
    """Return the betas of the steps to come, for Session.set_update_count().

    groups: the first one that has betas counts. Zeros for an optimizer without them.
    """
    if kind in ("adam", "adamw"):
        for group in groups:
            if group.get("betas"):
                first, second = group["betas"]
                return float(first), float(second)
    return 0.0, 0.0


def kind_of(optimizer: str, name: str) -> StateKind:
    """Return zinf's number of a kind of state. name: torch's, such as "exp_avg"."""
    return _KINDS[optimizer][name]


def read_kind(engine: Engine, slot: Slot, kind: StateKind) -> torch.Tensor:
    """Return one kind of a parameter's state: float32 on the CPU. Not collective, between steps."""
    values = torch.empty(tuple(slot.shape), dtype=torch.float32)
    engine.session.state_read(slot.index, kind, values.data_ptr(), values.numel())
    return values


def write_kind(engine: Engine, slot: Slot, kind: StateKind, values: torch.Tensor | None) -> None:
    """Write one kind of a parameter's state, between steps; engine.commit() commits it. Collective.

    values: those of rank 0 count; other ranks may give None.
    """
    given = None if values is None else values.detach().to("cpu", torch.float32).contiguous()
    address = 0 if given is None else given.data_ptr()
    engine.session.state_write(slot.index, kind, address, math.prod(slot.shape), 0)


def read(engine: Engine, kind: str, parameters: Iterable[Any]) -> dict[int, dict[str, Any]]:
    """Return torch's state by index of the parameter: float32 tensors on the CPU.

    Of the last step. Not collective. Before the first step it is empty, as torch's is.
    """
    engine.last_stats()  # waits for the commit of the last step
    count = engine.session.update_count
    state: dict[int, dict[str, Any]] = {}
    if count <= 0:
        return state
    for index, parameter in enumerate(parameters):
        slot = slot_of(parameter)
        if slot is None:
            continue
        entry: dict[str, Any] = {}
        if kind in _COUNTED:
            entry["step"] = torch.tensor(float(count))
        for name in _KINDS[kind]:
            entry[name] = read_kind(engine, slot, _KINDS[kind][name])
        state[index] = entry
    return state


def load(
    engine: Engine,
    kind: str,
    pairs: list[tuple[Any, dict[str, Any] | None]],
    betas: tuple[float, float],
) -> None:
    """Write torch's state, commit it, and go on with its number of steps. Collective.

    pairs: each parameter with its part of the state; all ranks give the same names, and the values
    of rank 0 count. betas: of the steps to come. Raises InvalidArgument before anything is written.
    """
    found = {}
    for parameter, entry in pairs:
        slot = slot_of(parameter)
        if slot is not None:
            found[slot] = _checked(kind, slot, entry)
    if not found:
        return
    count = max(1, engine.session.update_count)  # not the first step: there is a momentum
    if kind in _COUNTED:
        count = one_count({int(float(entry["step"])): s.name for s, entry in found.items()})
    write(
        engine,
        kind,
        list(found),
        lambda slot, name: found[slot][name],
        count=count,
        betas=betas,
    )


def write(
    engine: Engine,
    kind: str,
    slots: list[Slot],
    values: Callable[[Slot, str], torch.Tensor],
    *,
    count: int,
    betas: tuple[float, float],
    has_masters: bool = False,
) -> None:
    """Write state tensor by tensor, set the number of steps, and commit. Collective.

    slots: equal on all ranks. values: returns one kind of a parameter's state, of the parameter's
    shape; rank 0 asks for it. count, betas: of Session.set_update_count(). has_masters: also of
    "master", the float32 values of parameters in 16 bits, which are written already.
    """
    engine.begin_writing()
    session = engine.session
    kinds = dict(_KINDS[kind])
    if has_masters and engine.dtype != torch.float32:
        kinds["master"] = StateKind.MASTER
    for slot in slots:
        for name, which in kinds.items():
            write_kind(engine, slot, which, values(slot, name) if session.rank == 0 else None)
    session.set_update_count(count, betas)
    engine.commit()


def fill_from_master(target: torch.Tensor, master: torch.Tensor) -> None:
    """Write into a parameter what zinf keeps of it beside this fp32 master.

    A tie between two bfloat16 values goes away from zero, as in zinf_state_write(); torch rounds it
    to the even one, which then is no value of the master. Other types are rounded by torch.
    """
    target.copy_(master)
    if target.dtype == torch.bfloat16 and master.dtype == torch.float32:
        bits = master.detach().contiguous().view(torch.int32)
        is_tie = bits.bitwise_and(0xFFFF).eq(0x8000).logical_and_(master.isfinite())
        high = (bits[is_tie] + 0x8000).bitwise_right_shift(16).to(torch.int16)
        target[is_tie] = high.view(torch.bfloat16)


def _checked(kind: str, slot: Slot, entry: dict[str, Any] | None) -> dict[str, Any]:
    """Return a parameter's part of the state, if it has all that the optimizer keeps."""
    if not entry:
        raise InvalidArgument(
            f"the loaded state of the optimizer has nothing for parameter '{slot.name}': zinf "
            "counts steps once for all parameters, so it takes the state of all or of none"
        )
    for name in _KINDS[kind]:
        values = entry.get(name)
        if not isinstance(values, torch.Tensor):
            raise InvalidArgument(
                f"the loaded state of parameter '{slot.name}' has no {name}, which {kind} keeps: "
                f"it has {', '.join(sorted(entry)) or 'nothing'}"
            )
        if tuple(values.shape) != tuple(slot.shape):
            raise InvalidArgument(
                f"{name} of parameter '{slot.name}' has shape {tuple(values.shape)}, but the "
                f"parameter {tuple(slot.shape)}"
            )
    if kind in _COUNTED and "step" not in entry:
        raise InvalidArgument(f"the loaded state of parameter '{slot.name}' has no step")
    return entry


def one_count(counts: dict[int, str]) -> int:
    """Return the only number of steps. counts: for each number the name of a parameter."""
    if len(counts) > 1:
        (first, name), (other, other_name) = list(counts.items())[:2]
        raise InvalidArgument(
            f"the loaded state counts {first} steps for parameter '{name}' and {other} for "
            f"'{other_name}': zinf counts steps once for all parameters"
        )
    return next(iter(counts))
