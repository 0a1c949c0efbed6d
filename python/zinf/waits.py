# SPDX-License-Identifier: Apache-2.0
"""How long a session waited, by kind of wait, by unit and by step. zinf.stats() shows it.

The kinds: unshard (parameters of a unit), gradient (the gradient buffer of a unit), begin (a step
begins), norm (gradients of all ranks), step (a step ends), commit (a ticket).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .libzinf.structures import StepStats

__all__ = ["KINDS", "Sum", "Waits"]

KINDS = ("unshard", "gradient", "begin", "norm", "step", "commit")
_STEPS_MAX = 64  # steps that are kept
_NO_UNIT = -1


@dataclasses.dataclass
class Sum:
    """Number, sum and maximum of the durations of one kind of call."""

    count: int = 0
    total_ns: int = 0
    longest_ns: int = 0

    def add(self, duration_ns: int) -> None:
        """Add a call."""
        self.count += 1
        self.total_ns += duration_ns
        self.longest_ns = max(self.longest_ns, duration_ns)


class Step:
    """The waits of one step, and what the daemon said of it."""

    def __init__(self, began_ns: int) -> None:
        self.began_ns = began_ns
        self.wall_ns = 0  # from the end of the former step
        self.waits_ns = dict.fromkeys(KINDS, 0)
        self.units_ns: dict[int, int] = {}
        self.stats: StepStats | None = None  # after its commit was waited for


class Waits:
    """The waits of a session. Calls of several threads are counted without a lock."""

    def __init__(self) -> None:
        self.sums: dict[tuple[str, int], Sum] = {}
        self.steps: collections.deque[Step] = collections.deque(maxlen=_STEPS_MAX)
        self.step_count = 0
        self._open: dict[int, Step] = {}  # by ticket
        self._present = Step(time.perf_counter_ns())

    @contextlib.contextmanager
    def of(self, kind: str, unit: int = _NO_UNIT) -> Iterator[None]:
        """Count the time of the block."""
        began = time.perf_counter_ns()
        try:
            yield
        finally:
            duration = time.perf_counter_ns() - began
            found = self.sums.get((kind, unit))
            if found is None:
                found = self.sums[kind, unit] = Sum()
            found.add(duration)
            self._present.waits_ns[kind] += duration
            if unit != _NO_UNIT:
                units = self._present.units_ns
                units[unit] = units.get(unit, 0) + duration

    def end_step(self, ticket: int) -> None:
        """End a step whose commit has this ticket."""
        now = time.perf_counter_ns()
        step = self._present
        step.wall_ns = now - step.began_ns
        self.steps.append(step)
        self.step_count += 1
        if len(self._open) >= _STEPS_MAX:  # tickets that nobody waits for
            self._open.clear()
        self._open[ticket] = step
        self._present = Step(now)

    def note(self, ticket: int, stats: StepStats) -> None:
        """Note the statistics of a step."""
        step = self._open.pop(ticket, None)
        if step is not None:
            step.stats = stats

    def sum_of(self, kind: str, unit: int) -> Sum:
        """Return the waits of a kind for a unit."""
        return self.sums.get((kind, unit), Sum())
