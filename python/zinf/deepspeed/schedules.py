# SPDX-License-Identifier: Apache-2.0
"""Learning rates of DeepSpeed's JSON, with DeepSpeed's values.

libzinf computes the values (zinf/lr.h). A schedule writes them into `param_groups`: the first ones
when it is made, the next ones at each step(). Its state is the number of its last step, which
DeepSpeed calls last_batch_iteration.
"""

from __future__ import annotations

import ctypes as c
from typing import Any

from ..errors import InvalidArgument
from ..libzinf import load
from ..libzinf.structures import LrOptions, LrValue

__all__ = [
    "LRRangeTest",
    "OneCycle",
    "Schedule",
    "WarmupCosineLR",
    "WarmupDecayLR",
    "WarmupLR",
    "from_options",
]

_TEXT_BYTES = 256
_SHAPES = {"linear": 1, "log": 4}  # enum zinf_lr_shape


class Schedule:
    """A schedule of one optimizer. `options`: one for each parameter group."""

    def __init__(self, optimizer: Any, options: list[LrOptions], last_batch_iteration: int) -> None:
        self.optimizer = optimizer
        self.last_batch_iteration = last_batch_iteration
        self._library = load()
        self._options = options
        self._last_lr: list[float] = [group["lr"] for group in optimizer.param_groups]
        text = c.create_string_buffer(_TEXT_BYTES)
        for option in options:
            if self._library.zinf_lr_check(c.byref(option), text, _TEXT_BYTES):
                raise InvalidArgument(text.value.decode(errors="replace"))
        if last_batch_iteration < 0:
            self._write()

    def _values(self) -> list[LrValue]:
        values = []
        for option in self._options:
            value = LrValue()
            if self._library.zinf_lr_at(
                c.byref(option), max(0, self.last_batch_iteration + 1), c.byref(value)
            ):
                raise InvalidArgument(
                    f"a schedule has no value for step {self.last_batch_iteration}"
                )
            values.append(value)
        return values

    def _write(self) -> None:
        for group, value in zip(self.optimizer.param_groups, self._values()):
            group["lr"] = value.lr
            if value.has_betas and "betas" in group:
                group["betas"] = (value.beta1, value.beta2)
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def step(self, last_batch_iteration: int | None = None) -> None:
        """Go to the next step, or to the step that is given, and write its values."""
        if last_batch_iteration is None:
            last_batch_iteration = self.last_batch_iteration + 1
        self.last_batch_iteration = last_batch_iteration
        self._write()

    def get_lr(self) -> list[float]:
        """Return the learning rate of each parameter group."""
        return [value.lr for value in self._values()]

    def get_last_lr(self) -> list[float]:
        """Return the learning rates that were written last."""
        return self._last_lr

    def get_mom(self) -> list[tuple[float, float]] | None:
        """Return beta1 and beta2 of each parameter group; None: the schedule leaves them."""
        values = self._values()
        if not values or not values[0].has_betas:
            return None
        return [(value.beta1, value.beta2) for value in values]

    def state_dict(self) -> dict[str, Any]:
        """Return the number of the last step."""
        return {"last_batch_iteration": self.last_batch_iteration}

    def load_state_dict(self, sd: dict[str, Any]) -> None:
        """Continue after a step. The values in force are those of the optimizer's state."""
        self.last_batch_iteration = sd["last_batch_iteration"]
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]


def from_options(optimizer: Any, options: LrOptions) -> Schedule:
    """Return the schedule of a file: `options` for all parameter groups, each with its own lr."""
    kinds = (LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR)
    name = load().zinf_lr_name(options.kind).decode()
    for kind in kinds:
        if kind.__name__ == name:
            made: Schedule = kind.__new__(kind)
            copies = []
            for group in optimizer.param_groups:
                copied = LrOptions.from_buffer_copy(bytes(options))
                copied.lr = float(group["lr"])
                copies.append(copied)
            Schedule.__init__(made, optimizer, copies, -1)
            return made
    raise InvalidArgument(f"the scheduler '{name}' is none of DeepSpeed's")


def _make(name: str, optimizer: Any, **fields: Any) -> list[LrOptions]:
    """Return the options of each group. A field is a value, or a list with one for each group."""
    library = load()
    kind = c.c_int32()
    if library.zinf_lr_find(name.encode(), c.byref(kind)):
        raise InvalidArgument(f"libzinf has no schedule '{name}'")
    groups = optimizer.param_groups
    made = []
    for number, group in enumerate(groups):
        option = LrOptions()
        library.zinf_lr_defaults(kind, c.byref(option))
        option.lr = float(group["lr"])
        for field, value in fields.items():
            if isinstance(value, (list, tuple)):
                if len(value) != len(groups):
                    raise ValueError(
                        f"{name}: {len(value)} values are given for {field}, and the optimizer has "
                        f"{len(groups)} parameter groups"
                    )
                setattr(option, field, value[number])
            elif value is not None:
                setattr(option, field, value)
        made.append(option)
    return made


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} is {value!r}: it must be a whole number above 0")
    return value


def _shape(value: str) -> int:
    return _SHAPES.get(value, _SHAPES["log"])  # as the original, which only warns


class LRRangeTest(Schedule):
    """Learning rates that grow, to find the largest one that trains."""

    def __init__(
        self,
        optimizer: Any,
        lr_range_test_min_lr: Any = 1e-3,
        lr_range_test_step_size: int = 2000,
        lr_range_test_step_rate: float = 1.0,
        lr_range_test_staircase: bool = False,
        last_batch_iteration: int = -1,
    ) -> None:
        options = _make(
            "LRRangeTest",
            optimizer,
            min_lr=lr_range_test_min_lr,
            step_count=_count("lr_range_test_step_size", lr_range_test_step_size),
            step_rate=lr_range_test_step_rate,
            is_staircase=lr_range_test_staircase,
        )
        super().__init__(optimizer, options, last_batch_iteration)


class OneCycle(Schedule):
    """One cycle up and down, then a decay. Momentum moves against the learning rate."""

    def __init__(
        self,
        optimizer: Any,
        cycle_min_lr: Any,
        cycle_max_lr: Any,
        decay_lr_rate: float = 0.0,
        cycle_first_step_size: int = 2000,
        cycle_second_step_size: int | None = None,
        cycle_first_stair_count: int = 0,
        cycle_second_stair_count: int | None = None,
        decay_step_size: float = 0,
        cycle_momentum: bool = True,
        cycle_min_mom: Any = 0.8,
        cycle_max_mom: Any = 0.9,
        decay_mom_rate: float = 0.0,
        last_batch_iteration: int = -1,
    ) -> None:
        options = _make(
            "OneCycle",
            optimizer,
            min_lr=cycle_min_lr,
            max_lr=cycle_max_lr,
            decay_lr_rate=decay_lr_rate,
            first_count=_count("cycle_first_step_size", cycle_first_step_size),
            second_count=cycle_second_step_size,
            first_stairs=cycle_first_stair_count,
            second_stairs=cycle_second_stair_count,
            decay_step_count=decay_step_size,
            cycles_momentum=cycle_momentum and "betas" in optimizer.defaults,
            min_momentum=cycle_min_mom,
            max_momentum=cycle_max_mom,
            decay_momentum_rate=decay_mom_rate,
        )
        super().__init__(optimizer, options, last_batch_iteration)


class WarmupLR(Schedule):
    """A warm-up to warmup_max_lr, which then stays. None: the optimizer's learning rate."""

    def __init__(
        self,
        optimizer: Any,
        warmup_min_lr: Any = 0.0,
        warmup_max_lr: Any = None,
        warmup_num_steps: int = 1000,
        warmup_type: str = "log",
        last_batch_iteration: int = -1,
    ) -> None:
        options = _make(
            "WarmupLR",
            optimizer,
            min_lr=warmup_min_lr,
            max_lr=warmup_max_lr,
            warmup_count=_count("warmup_num_steps", warmup_num_steps),
            warmup_shape=_shape(warmup_type),
        )
        super().__init__(optimizer, options, last_batch_iteration)


class WarmupDecayLR(Schedule):
    """A warm-up, then a straight line to 0 at total_num_steps."""

    def __init__(
        self,
        optimizer: Any,
        total_num_steps: int,
        warmup_min_lr: Any = 0.0,
        warmup_max_lr: Any = 0.001,
        warmup_num_steps: int = 1000,
        warmup_type: str = "log",
        last_batch_iteration: int = -1,
    ) -> None:
        options = _make(
            "WarmupDecayLR",
            optimizer,
            total_count=_count("total_num_steps", total_num_steps),
            min_lr=warmup_min_lr,
            max_lr=warmup_max_lr,
            warmup_count=_count("warmup_num_steps", warmup_num_steps),
            warmup_shape=_shape(warmup_type),
        )
        super().__init__(optimizer, options, last_batch_iteration)


class WarmupCosineLR(Schedule):
    """A warm-up to the optimizer's learning rate, then half a cosine to cos_min_ratio of it."""

    def __init__(
        self,
        optimizer: Any,
        total_num_steps: int,
        warmup_min_ratio: float = 0.0,
        warmup_num_steps: int = 1000,
        cos_min_ratio: float = 0.0001,
        warmup_type: str = "log",
        last_batch_iteration: int = -1,
    ) -> None:
        options = _make(
            "WarmupCosineLR",
            optimizer,
            total_count=_count("total_num_steps", total_num_steps),
            warmup_ratio=warmup_min_ratio,
            min_ratio=cos_min_ratio,
            warmup_count=_count("warmup_num_steps", warmup_num_steps),
            warmup_shape=_shape(warmup_type),
        )
        super().__init__(optimizer, options, last_batch_iteration)
