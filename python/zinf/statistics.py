# SPDX-License-Identifier: Apache-2.0
"""zinf.stats(): where the time of this rank went, what the job moved, and what it holds.

    print(zinf.stats())

Times are this rank's waits in calls of zinf, so that forward and backward alone are the rest of a
step. Bytes are the job's on this node.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import nn

from . import admin
from .errors import InvalidArgument, ZinfError
from .module.engine import Engine, engine_of, living_engines

__all__ = ["Memory", "Stats", "StepRow", "UnitRow", "stats"]


@dataclasses.dataclass(frozen=True)
class UnitRow:
    """A unit: waits for the parameters and for the gradient buffer."""

    name: str
    parameter_count: int
    unshard_count: int
    unshard_s: float
    unshard_longest_s: float
    gradient_s: float
    last_step_s: float  # both kinds, in the newest step


@dataclasses.dataclass(frozen=True)
class StepRow:
    """A step: the time in this rank, and the waits in it.

    commit_s: the wait for the commit of the former step. read_bytes to is_skipped: the daemon's
    figures; None until this rank has waited for the commit of this step.
    """

    number: int  # of this process, from 1
    wall_s: float
    unshard_s: float
    gradient_s: float
    norm_s: float
    commit_s: float
    other_s: float
    read_bytes: int | None
    write_bytes: int | None
    daemon_s: float | None
    norm: float | None
    is_skipped: bool | None

    @property
    def waits_s(self) -> float:
        """The sum of all waits."""
        return self.unshard_s + self.gradient_s + self.norm_s + self.commit_s + self.other_s


@dataclasses.dataclass(frozen=True)
class Memory:
    """Memory of this process, and what the job holds on this node. Bytes.

    anonymous, shared: of this process; shared memory counts in each rank that has it mapped.
    cpu, nvme: of the job, by plane (param, grad, reduced_grad, state, staging, collectives).
    """

    anonymous: int
    shared: int
    peak: int
    cpu: dict[str, int]
    nvme: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Stats:
    """What zinf.stats() returns. steps: the newest 64, oldest first."""

    job: str
    rank: int
    world_size: int
    step_count: int
    units: tuple[UnitRow, ...]
    steps: tuple[StepRow, ...]
    read_bytes: int
    write_bytes: int
    pool: dict[str, int]  # of parameters on NVMe: hits, late, misses, evictions; else empty
    memory: Memory

    def as_dict(self) -> dict[str, Any]:
        """Return the values as dicts, lists and numbers."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def stats(model: Any = None) -> Stats:
    """Return the statistics of a prepared model, or of the only one of this process.

    model: a prepared model, the engine of zinf.initialize(), or an Engine. Waits for nothing.
    """
    engine = _find(model)
    session = engine.session
    waits = session.waits
    last: dict[int, int] = waits.steps[-1].units_ns if waits.steps else {}
    rows = []
    for unit in engine.units:
        unshard, gradient = (waits.sum_of(kind, unit.index) for kind in ("unshard", "gradient"))
        rows.append(
            UnitRow(
                unit.name,
                len(unit.slots),
                unshard.count,
                unshard.total_ns / 1e9,
                unshard.longest_ns / 1e9,
                gradient.total_ns / 1e9,
                last.get(unit.index, 0) / 1e9,
            )
        )
    first = waits.step_count - len(waits.steps) + 1
    steps = [_step_row(first + index, step) for index, step in enumerate(waits.steps)]
    job = _job(engine)
    held: dict[str, dict[str, int]] = job.get("held") or {}
    pool: dict[str, int] = job.get("param_pool") or {}
    anonymous, shared, peak = _process_memory()
    return Stats(
        session.job,
        session.rank,
        session.world_size,
        waits.step_count,
        tuple(rows),
        tuple(steps),
        int(job.get("read_bytes", 0)),
        int(job.get("write_bytes", 0)),
        {name: int(pool[name]) for name in ("hits", "late", "misses", "evictions") if name in pool},
        Memory(
            anonymous,
            shared,
            peak,
            {plane: int(value["cpu_bytes"]) for plane, value in held.items()},
            {plane: int(value["nvme_bytes"]) for plane, value in held.items()},
        ),
    )


def _find(model: Any) -> Engine:
    if isinstance(model, Engine):
        return model
    if isinstance(model, nn.Module):
        found = engine_of(model)
        if found is None:
            raise InvalidArgument("stats(): the model is not prepared: call zinf.prepare()")
        return found
    if model is not None:
        raise InvalidArgument(f"stats() takes a prepared model, not {type(model).__name__}")
    engines = [engine for engine in living_engines() if not engine.session.is_closed]
    if len(engines) != 1:
        raise InvalidArgument(
            f"stats(): this process has {len(engines)} prepared models: give one, stats(model)"
        )
    return engines[0]


def _step_row(number: int, step: Any) -> StepRow:
    waits: dict[str, int] = step.waits_ns
    told = step.stats
    return StepRow(
        number,
        step.wall_ns / 1e9,
        waits["unshard"] / 1e9,
        waits["gradient"] / 1e9,
        waits["norm"] / 1e9,
        waits["commit"] / 1e9,
        (waits["begin"] + waits["step"]) / 1e9,
        None if told is None else int(told.read_bytes),
        None if told is None else int(told.write_bytes),
        None if told is None else told.step_ns / 1e9,
        None if told is None else float(told.norm),
        None if told is None else bool(told.is_skipped),
    )


def _job(engine: Engine) -> dict[str, Any]:
    """Return what the daemon says of the job. Empty: it cannot be asked."""
    session = engine.session
    try:
        found = admin.jobs(session.job, socket_path=session.config.socket_path)
    except ZinfError:
        return {}
    return found[0] if found else {}


def _process_memory() -> tuple[int, int, int]:
    """Return anonymous, shared and peak memory of this process."""
    values: dict[str, int] = {}
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in ("RssAnon", "RssShmem", "RssFile", "VmHWM"):
                values[name] = int(rest.split()[0]) << 10
    return values.get("RssAnon", 0), values.get("RssShmem", 0), values.get("VmHWM", 0)


# ---- printing ----


def _bytes(count: float | None) -> str:
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f}"


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Return aligned lines: the first column to the left, the others to the right."""
    lines = [head, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(head))]
    return [
        "  ".join(
            text.ljust(width) if index == 0 else text.rjust(width)
            for index, (text, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    ]


_ROWS_SHOWN = 10


def _lines(found: Stats) -> list[str]:
    lines = [
        f"job {found.job}, rank {found.rank} of {found.world_size}, {found.step_count} steps",
        "",
        *_table(
            ["waits by step, ms", "wall", "waits", "unshard", "gradient", "norm", "commit", "other",
             "read", "written"],
            [
                [str(step.number), _ms(step.wall_s), _ms(step.waits_s), _ms(step.unshard_s),
                 _ms(step.gradient_s), _ms(step.norm_s), _ms(step.commit_s), _ms(step.other_s),
                 _bytes(step.read_bytes), _bytes(step.write_bytes)]
                for step in found.steps[-_ROWS_SHOWN:]
            ],
        ),
        "",
        *_table(
            ["waits by unit, ms", "calls", "unshard", "longest", "gradient", "last step"],
            [
                [unit.name, str(unit.unshard_count), _ms(unit.unshard_s),
                 _ms(unit.unshard_longest_s), _ms(unit.gradient_s), _ms(unit.last_step_s)]
                for unit in found.units
            ],
        ),
        "",
        f"moved since the daemon started: {_bytes(found.read_bytes)} read, "
        f"{_bytes(found.write_bytes)} written",
    ]  # fmt: skip
    if found.pool:
        text = ", ".join(f"{count} {name}" for name, count in found.pool.items())
        lines.append(f"parameters on NVMe: {text}")
    memory = found.memory
    lines += [
        f"this process: {_bytes(memory.anonymous)} anonymous, {_bytes(memory.shared)} shared, "
        f"{_bytes(memory.peak)} at most",
        "",
        *_table(
            ["the job holds", "memory", "NVMe"],
            [
                [plane, _bytes(count), _bytes(memory.nvme.get(plane, 0))]
                for plane, count in memory.cpu.items()
                if count or memory.nvme.get(plane, 0)
            ],
        ),
    ]
    return lines
