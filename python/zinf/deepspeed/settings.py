# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's JSON configuration, read by libzinf. docs/DEEPSPEED.md lists all keys."""

from __future__ import annotations

import ctypes as c
import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidArgument, error_for
from ..libzinf import load
from ..libzinf.structures import (
    DeepspeedConfig,
    DeepspeedFacts,
    DeepspeedNote,
    Dtype,
    LrOptions,
    Offload,
    Optimizer,
    ScalerOptions,
    StepOptions,
)

__all__ = ["DeepSpeed", "Note", "read"]

_TEXT_BYTES = 1024
_STRATEGIES = ("ddp", "zero1", "zero2", "zero3")


@dataclasses.dataclass(frozen=True)
class Note:
    """A key that has no effect, or another effect than in DeepSpeed."""

    key: str
    value: str
    reason: str


@dataclasses.dataclass(frozen=True)
class DeepSpeed:
    """The contents of a DeepSpeed configuration. Types and units are those of zinf/deepspeed.h."""

    train_batch: int
    micro_batch: int
    accumulation_count: int
    param_dtype: Dtype
    grad_dtype: Dtype
    reduce_dtype: Dtype | None
    zero_stage: int
    shard_ranks: int
    offload_optimizer: Offload
    offload_param: Offload
    optimizer_path: str | None
    param_path: str | None
    param_budget_bytes: int
    bucket_bytes: int
    persistent_elements: int
    ignores_unused: bool
    is_checkpointing: bool
    checkpoints_to_cpu: bool
    checkpoint_count: int
    shows_times: bool
    print_interval: int
    optimizer: Optimizer | None  # None: the trainer's; of `step` only clipping is set
    lr_decay: float
    step: StepOptions
    lr: LrOptions | None  # None: the file has no scheduler
    scaler: ScalerOptions  # kind NONE without float16
    notes: tuple[Note, ...]

    def settings(self) -> dict[str, Any]:
        """Return the settings of zinf.Config that the file gives."""
        settings: dict[str, Any] = {
            "strategy": _STRATEGIES[self.zero_stage],
            "offload_optimizer": self.offload_optimizer.name,
            "offload_param": self.offload_param.name,
            "param_dtype": self.param_dtype.name,
            "grad_dtype": self.grad_dtype.name,
            "gradient_accumulation_steps": self.accumulation_count,
            "find_unused_parameters": self.ignores_unused,
        }
        if self.reduce_dtype is not None:
            settings["reduce_dtype"] = self.reduce_dtype.name
        if self.shard_ranks:
            settings["shard_size"] = self.shard_ranks
        if self.param_budget_bytes:
            settings["param_budget_bytes"] = self.param_budget_bytes
        if self.optimizer is not None:
            settings["optimizer"] = self.optimizer.name
        return settings


def read(
    source: str | os.PathLike[str] | Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
) -> DeepSpeed:
    """Read a DeepSpeed configuration.

    source: a dict, the path of a file, or a text of JSON, which begins with "{".
    facts: fields of struct zinf_deepspeed_facts, which give the values of "auto": world_size,
        micro_batch, accumulation_count, warmup_count, total_count, lr, beta1, beta2, eps,
        weight_decay, max_norm, dtype, hidden_elements. "auto" without its fact is refused.
    Raises InvalidArgument or Unsupported with key, value and the nearest name.
    """
    library = load()
    try:
        known = DeepspeedFacts(**{"world_size": world_size(), **(facts or {})})
    except TypeError as error:
        raise InvalidArgument(f"facts: {error}") from None
    text = c.create_string_buffer(_TEXT_BYTES)
    handle = c.c_void_p()
    if isinstance(source, Mapping):
        source = json.dumps(dict(source))
    name = os.fspath(source)
    if name.lstrip().startswith("{"):
        data = name.encode()
        result = library.zinf_deepspeed_read(
            data, len(data), known, text, _TEXT_BYTES, c.byref(handle)
        )
    else:
        result = library.zinf_deepspeed_open(
            os.fsencode(name), known, text, _TEXT_BYTES, c.byref(handle)
        )
    if result:
        raise error_for(result, text.value.decode(errors="replace"))
    try:
        return _take(library, handle)
    finally:
        library.zinf_deepspeed_free(handle)


def world_size() -> int:
    """Return the number of ranks that the launcher gives, else 1."""
    for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"):
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    if os.environ.get("SLURM_STEP_ID") and os.environ.get("SLURM_NTASKS", "").isdecimal():
        return int(os.environ["SLURM_NTASKS"])
    return 1


def _take(library: Any, handle: c.c_void_p) -> DeepSpeed:
    config = DeepspeedConfig()
    library.zinf_deepspeed_get(handle, c.byref(config))
    notes: list[Note] = []
    note = DeepspeedNote()
    while library.zinf_deepspeed_get_note(handle, len(notes), c.byref(note)):
        notes.append(Note(note.key.decode(), note.value.decode(), note.reason.decode()))
    values = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(DeepSpeed)
        if field.name != "notes"
    }
    values["step"].no_bias_correction = config.has_no_bias_correction
    values.update(
        param_dtype=Dtype(config.param_dtype),
        grad_dtype=Dtype(config.grad_dtype),
        reduce_dtype=Dtype(config.reduce_dtype) if config.reduce_dtype else None,
        offload_optimizer=Offload(config.offload_optimizer),
        offload_param=Offload(config.offload_param),
        optimizer_path=_path(config.optimizer_path),
        param_path=_path(config.param_path),
        optimizer=Optimizer(config.optimizer) if config.has_optimizer else None,
        step=_copy(config.step),
        lr=_copy(config.lr) if config.has_lr else None,
        scaler=_copy(config.scaler),
        notes=tuple(notes),
    )
    return DeepSpeed(**values)


def _copy(structure: Any) -> Any:
    kind = type(structure)
    return kind.from_buffer_copy(bytes(structure))


def _path(value: bytes | None) -> str | None:
    return None if value is None else os.fsdecode(value)
