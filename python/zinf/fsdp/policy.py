# SPDX-License-Identifier: Apache-2.0
"""Policies of fully_shard(): types of numbers, and the place of the state.

Objects of torch's classes of the same names are accepted as well.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ..errors import InvalidArgument, Unsupported

__all__ = [
    "CPUOffloadPolicy",
    "MixedPrecisionPolicy",
    "NVMeOffloadPolicy",
    "OffloadPolicy",
    "offload_settings",
    "take_precision",
]


@dataclasses.dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Types of a module.

    param_dtype: of the parameters; None: their own. A master copy in float32 is in the optimizer's
        state. reduce_dtype: of gradients while they are summed; None: the parameters' own type
        before param_dtype. output_dtype: of floats that forward returns; None: as they are.
    cast_forward_inputs: convert floats among the arguments of forward to param_dtype.
    """

    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    output_dtype: torch.dtype | None = None
    cast_forward_inputs: bool = True

    @property
    def input_dtype(self) -> torch.dtype | None:
        """The type of arguments of forward; None: they stay."""
        return self.param_dtype if self.cast_forward_inputs else None

    def settings(self, dtype: torch.dtype) -> dict[str, str]:
        """Return settings of a session. dtype: of the parameters before."""
        if self.param_dtype is None and self.reduce_dtype is None:
            return {}
        reduce = str(self.reduce_dtype or dtype)
        return {
            "param_dtype": str(self.param_dtype or dtype),
            "grad_dtype": reduce,
            "reduce_dtype": reduce,
        }


@dataclasses.dataclass(frozen=True)
class OffloadPolicy:
    """No offload beyond the settings of the session."""


@dataclasses.dataclass(frozen=True)
class CPUOffloadPolicy(OffloadPolicy):
    """Parameters and optimizer state in the daemon's memory. The daemon decides what is pinned."""

    pin_memory: bool = True


@dataclasses.dataclass(frozen=True)
class NVMeOffloadPolicy(OffloadPolicy):
    """Parameters and optimizer state on the stores of the daemon."""


def take_precision(policy: Any) -> MixedPrecisionPolicy:
    """Return a policy of zinf or torch as zinf's. Raises Unsupported with the name of a field."""
    if policy is None:
        return MixedPrecisionPolicy()
    if type(policy).__name__ != "MixedPrecisionPolicy":
        raise InvalidArgument(
            f"mp_policy is a {type(policy).__name__}: give zinf.fsdp.MixedPrecisionPolicy or "
            "torch.distributed.fsdp.MixedPrecisionPolicy"
        )
    values = {field.name: getattr(policy, field.name) for field in dataclasses.fields(policy)}
    if values.pop("param_dtype_override_fn", None) is not None:
        raise Unsupported(
            "param_dtype_override_fn of MixedPrecisionPolicy: zinf has one type for all parameters"
        )
    made = MixedPrecisionPolicy(**values)
    for name in ("param_dtype", "reduce_dtype"):
        dtype = getattr(made, name)
        if dtype not in (None, torch.float32, torch.bfloat16, torch.float16):
            raise InvalidArgument(
                f"{name} of MixedPrecisionPolicy is {dtype}: zinf has float32, bfloat16, float16"
            )
    return made


def offload_settings(policy: Any) -> dict[str, str]:
    """Return settings of a session for an offload policy of zinf or torch."""
    places = {"OffloadPolicy": None, "CPUOffloadPolicy": "cpu", "NVMeOffloadPolicy": "nvme"}
    name = type(policy).__name__
    if policy is not None and name not in places:
        raise InvalidArgument(
            f"offload_policy is a {name}: give OffloadPolicy, CPUOffloadPolicy or "
            "NVMeOffloadPolicy of zinf.fsdp"
        )
    place = None if policy is None else places[name]
    return {} if place is None else {"offload_param": place, "offload_optimizer": place}
