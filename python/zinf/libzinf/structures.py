# SPDX-License-Identifier: Apache-2.0
"""Structures and enumerations of include/zinf/*.h.

Names, order and types of the fields are those of the headers. zinf.libzinf.layout compares them
with the table of the loaded library.
"""

from __future__ import annotations

import ctypes as c
import enum
from typing import Any

u8, u32, u64 = c.c_uint8, c.c_uint32, c.c_uint64
i32, i64 = c.c_int32, c.c_int64
f64, flag, text, pointer = c.c_double, c.c_bool, c.c_char_p, c.c_void_p

PARAM_NAME_BYTES = 96  # unit and parameter names, NUL included
BLOB_BYTES = 65536
DIMS_MAX = 8
GROUP_FROZEN = 0xFFFF
GROUPS_MAX = 64
SHARD_NODE = 0xFFFFFFFF


class Dtype(enum.IntEnum):
    """enum zinf_dtype."""

    F32 = 1
    F16 = 2
    BF16 = 3
    I8 = 4
    U8 = 5
    I32 = 6
    I64 = 7


DTYPE_BYTES = {
    Dtype.F32: 4,
    Dtype.F16: 2,
    Dtype.BF16: 2,
    Dtype.I8: 1,
    Dtype.U8: 1,
    Dtype.I32: 4,
    Dtype.I64: 8,
}


class Optimizer(enum.IntEnum):
    """enum zinf_optimizer."""

    ADAMW = 1
    ADAM = 2
    SGD = 3
    ADAGRAD = 4
    LION = 5


class GradReduction(enum.IntEnum):
    """enum zinf_grad_reduction."""

    PER_STEP = 1
    PER_MICRO_BATCH = 2


class Offload(enum.IntEnum):
    """enum zinf_offload."""

    NONE = 0
    CPU = 1
    NVME = 2


class Strategy(enum.IntEnum):
    """enum zinf_strategy."""

    DEFAULT = 0
    DP = 1
    DDP = 2
    ZERO1 = 3
    ZERO2 = 4
    ZERO3 = 5


class Durability(enum.IntEnum):
    """enum zinf_durability."""

    PROCESS = 0
    POWER = 1


class ScalerKind(enum.IntEnum):
    """enum zinf_scaler_kind."""

    NONE = 0
    STATIC = 1
    DEEPSPEED = 2
    TORCH = 3
    APEX = 4


class ReduceOp(enum.IntEnum):
    """enum zinf_reduce_op."""

    SUM = 1
    AVG = 2
    PROD = 3
    MIN = 4
    MAX = 5
    BAND = 6
    BOR = 7
    BXOR = 8


class Structure(c.Structure):
    """A structure of libzinf. `bytes`, where there is one, is set."""

    bytes: int

    def __init__(self, **values: Any) -> None:
        super().__init__()
        if self._fields_[0][0] == "bytes":
            self.bytes = c.sizeof(type(self))
        for name, value in values.items():
            if not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} has no field '{name}'")
            setattr(self, name, value)


class ScalerOptions(Structure):
    """struct zinf_scaler_options."""

    _fields_ = [
        ("bytes", u32),
        ("kind", i32),
        ("init", f64),
        ("growth", f64),
        ("backoff", f64),
        ("min", f64),
        ("max", f64),
        ("window", u32),
        ("hysteresis", u32),
        ("is_consecutive", flag),
    ]


class Scaler(Structure):
    """struct zinf_scaler."""

    _fields_ = [
        ("scale", f64),
        ("iteration", i64),
        ("last_overflow", i64),
        ("clean_count", u32),
        ("hysteresis", u32),
        ("skipped_count", u64),
    ]


class Options(Structure):
    """struct zinf_options, with the values of ZINF_OPTIONS_INIT."""

    _fields_ = [
        ("bytes", u32),
        ("socket_path", text),
        ("job", text),
        ("incarnation", text),
        ("rank", i32),
        ("world_size", i32),
        ("takeover", flag),
        ("wait_for_daemon", flag),
        ("timeout_ms", u32),
        ("param_dtype", i32),
        ("grad_dtype", i32),
        ("optimizer", i32),
        ("grad_reduction", i32),
        ("offload_optimizer", i32),
        ("offload_param", i32),
        ("durability", i32),
        ("resident_bytes", u64),
        ("staging_bytes", u64),
        ("param_budget_bytes", u64),
        ("commit_interval", u32),
        ("io_weight", u32),
        ("snapshot_interval", u32),
        ("snapshot_keep", u32),
        ("reserved", u32 * 2),
        ("strategy", i32),
        ("shard_size", u32),
        ("accumulation", u32),
        ("reduce_dtype", i32),
        ("grad_budget_bytes", u64),
        ("group_count", u32),
        ("is_forward_only", flag),
        ("finds_unused", flag),
        ("must_exist", flag),
        ("reserved_end", u8 * 1),
        ("scaler", c.POINTER(ScalerOptions)),
    ]

    def __init__(self, **values: Any) -> None:
        start = {
            "rank": -1,
            "world_size": -1,
            "param_dtype": Dtype.F32,
            "grad_dtype": Dtype.F32,
            "optimizer": Optimizer.ADAMW,
            "grad_reduction": GradReduction.PER_STEP,
        }
        super().__init__(**{**start, **values})


class StepGroup(Structure):
    """struct zinf_step_group."""

    _fields_ = [("lr", f64), ("weight_decay", f64)]


class StepBetas(Structure):
    """struct zinf_step_betas."""

    _fields_ = [("beta1", f64), ("beta2", f64), ("eps", f64)]


class StepOptions(Structure):
    """struct zinf_step_options, with the values of ZINF_STEP_OPTIONS_INIT.

    set_groups() fills `groups`, `group_count` and `group_betas`, and keeps the arrays alive.
    """

    _fields_ = [
        ("bytes", u32),
        ("lr", f64),
        ("beta1", f64),
        ("beta2", f64),
        ("eps", f64),
        ("weight_decay", f64),
        ("max_norm", f64),
        ("unscale", f64),
        ("micro_batches", u32),
        ("nesterov", flag),
        ("sum", flag),
        ("skip_nonfinite", flag),
        ("want_norm", flag),
        ("update_early", flag),
        ("is_deferred", flag),
        ("unused", u8 * 2),
        ("no_bias_correction", flag),
        ("reserved", u8 * 3),
        ("lr_decay", f64),
        ("groups", c.POINTER(StepGroup)),
        ("group_count", u32),
        ("reserved_end", u32),
        ("group_betas", c.POINTER(StepBetas)),
    ]

    def __init__(self, **values: Any) -> None:
        start = {
            "lr": 1e-3,
            "beta1": 0.9,
            "beta2": 0.999,
            "eps": 1e-8,
            "unscale": 1.0,
            "micro_batches": 1,
        }
        super().__init__(**{**start, **values})

    def set_groups(
        self,
        groups: list[tuple[float, float]],
        betas: list[tuple[float, float, float]] | None = None,
    ) -> None:
        """Give each parameter group (lr, weight_decay), and (beta1, beta2, eps) if `betas` is."""
        if betas is not None and len(betas) != len(groups):
            raise ValueError(f"{len(groups)} groups, but betas of {len(betas)}")
        self.groups = (StepGroup * len(groups))(
            *[StepGroup(lr=lr, weight_decay=decay) for lr, decay in groups]
        )
        self.group_count = len(groups)
        if betas is not None:
            self.group_betas = (StepBetas * len(betas))(
                *[StepBetas(beta1=b1, beta2=b2, eps=eps) for b1, b2, eps in betas]
            )

    def values(self) -> tuple[Any, ...]:
        """Return the hyperparameters, for a comparison."""
        names = ("lr", "beta1", "beta2", "eps", "weight_decay", "max_norm", "nesterov", "lr_decay")
        groups = [(g.lr, g.weight_decay) for g in self.groups[: self.group_count]]
        betas = []
        if self.group_betas:
            betas = [(b.beta1, b.beta2, b.eps) for b in self.group_betas[: self.group_count]]
        return (*(getattr(self, name) for name in names), groups, betas)


class StepStats(Structure):
    """struct zinf_step_stats. Times in nanoseconds."""

    _fields_ = [
        ("bytes", u32),
        ("is_skipped", u32),
        ("step", u64),
        ("norm", f64),
        ("clip", f64),
        ("read_bytes", u64),
        ("write_bytes", u64),
        ("step_ns", u64),
        ("grad_wait_ns", u64),
        ("norm_wait_ns", u64),
        ("io_read_ns", u64),
        ("io_write_ns", u64),
        ("cpu_ns", u64),
        ("commit_ns", u64),
        ("committed_step", i64),
        ("update_count", i64),
        ("loss_scale", f64),
        ("nonfinite_rank", i32),
        ("nonfinite_unit", i32),
        ("unused_count", u32),
        ("reserved_end", u32),
    ]


class SnapshotOptions(Structure):
    """struct zinf_snapshot_options."""

    _fields_ = [
        ("bytes", u32),
        ("keep_count", u32),
        ("name", text),
        ("reserved", u32 * 8),
    ]


class CollOptions(Structure):
    """struct zinf_coll_options."""

    _fields_ = [
        ("bytes", u32),
        ("group", u32),
        ("timeout_ms", u32),
        ("reserved0", u32),
        ("ret_ticket", c.POINTER(u64)),
        ("reserved", u64 * 4),
    ]


class GroupOptions(Structure):
    """struct zinf_group_options."""

    _fields_ = [("bytes", u32), ("timeout_ms", u32), ("reserved", u64 * 4)]


class CollP2p(Structure):
    """struct zinf_coll_p2p."""

    _fields_ = [
        ("is_send", u32),
        ("peer", u32),
        ("data", pointer),
        ("count", u64),
        ("dtype", i32),
        ("reserved", u32),
    ]


class LrOptions(Structure):
    """struct zinf_lr_options."""

    _fields_ = [
        ("bytes", u32),
        ("kind", i32),
        ("lr", f64),
        ("warmup_count", u64),
        ("total_count", u64),
        ("cycle_count", f64),
        ("lr_end", f64),
        ("power", f64),
        ("timescale", u64),
        ("min_ratio", f64),
        ("warmup_ratio", f64),
        ("stable_count", u64),
        ("decay_count", u64),
        ("warmup_shape", i32),
        ("decay_shape", i32),
        ("min_lr", f64),
        ("max_lr", f64),
        ("step_rate", f64),
        ("step_count", u64),
        ("is_staircase", flag),
        ("cycles_momentum", flag),
        ("first_count", u64),
        ("second_count", u64),
        ("first_stairs", u32),
        ("second_stairs", i32),
        ("decay_step_count", f64),
        ("decay_lr_rate", f64),
        ("decay_momentum_rate", f64),
        ("min_momentum", f64),
        ("max_momentum", f64),
    ]


class LrValue(Structure):
    """struct zinf_lr_value."""

    _fields_ = [("lr", f64), ("has_betas", flag), ("beta1", f64), ("beta2", f64)]


class PlateauOptions(Structure):
    """struct zinf_plateau_options."""

    _fields_ = [
        ("bytes", u32),
        ("patience", u32),
        ("cooldown", u32),
        ("is_max", flag),
        ("is_absolute", flag),
        ("factor", f64),
        ("threshold", f64),
        ("min_lr", f64),
        ("eps", f64),
    ]


class Plateau(Structure):
    """struct zinf_plateau."""

    _fields_ = [("lr", f64), ("best", f64), ("bad_count", u32), ("cooldown_count", u32)]


class DeepspeedFacts(Structure):
    """struct zinf_deepspeed_facts, with the values of ZINF_DEEPSPEED_FACTS_INIT."""

    _fields_ = [
        ("bytes", u32),
        ("world_size", u32),
        ("micro_batch", u32),
        ("accumulation_count", u32),
        ("warmup_count", u64),
        ("total_count", u64),
        ("lr", f64),
        ("beta1", f64),
        ("beta2", f64),
        ("eps", f64),
        ("weight_decay", f64),
        ("max_norm", f64),
        ("dtype", i32),
        ("hidden_elements", u64),
    ]

    def __init__(self, **values: Any) -> None:
        unknown = float("nan")
        start: dict[str, Any] = dict.fromkeys(
            ("lr", "beta1", "beta2", "eps", "weight_decay", "max_norm"), unknown
        )
        super().__init__(**{"world_size": 1, **start, **values})


class DeepspeedConfig(Structure):
    """struct zinf_deepspeed_config."""

    _fields_ = [
        ("bytes", u32),
        ("train_batch", u32),
        ("micro_batch", u32),
        ("accumulation_count", u32),
        ("param_dtype", i32),
        ("grad_dtype", i32),
        ("reduce_dtype", i32),
        ("zero_stage", u32),
        ("shard_ranks", u32),
        ("offload_optimizer", i32),
        ("offload_param", i32),
        ("optimizer_path", text),
        ("param_path", text),
        ("param_budget_bytes", u64),
        ("bucket_bytes", u64),
        ("persistent_elements", u64),
        ("ignores_unused", flag),
        ("has_optimizer", flag),
        ("has_lr", flag),
        ("has_no_bias_correction", flag),
        ("is_checkpointing", flag),
        ("checkpoints_to_cpu", flag),
        ("shows_times", flag),
        ("checkpoint_count", u32),
        ("print_interval", u32),
        ("optimizer", i32),
        ("lr_decay", f64),
        ("step", StepOptions),
        ("lr", LrOptions),
        ("scaler", ScalerOptions),
    ]


class DeepspeedNote(Structure):
    """struct zinf_deepspeed_note."""

    _fields_ = [("key", text), ("value", text), ("reason", text)]


class GpuOptions(Structure):
    """struct zinf_gpu_options."""

    _fields_ = [
        ("bytes", u32),
        ("reserved0", u32),
        ("device", text),
        ("param_budget_bytes", u64),
        ("grad_budget_bytes", u64),
        ("neighbour_count", u32),
        ("reserved1", u32),
        ("stream", pointer),
        ("driver", text),
        ("reserved", u64 * 4),
    ]


class GpuStats(Structure):
    """struct zinf_gpu_stats. Times in seconds."""

    _fields_ = [
        ("bytes", u32),
        ("chunk_count", u32),
        ("chunk_bytes", u64),
        ("param_budget_bytes", u64),
        ("grad_budget_bytes", u64),
        ("to_gpu_bytes", u64),
        ("from_gpu_bytes", u64),
        ("to_gpu_count", u64),
        ("from_gpu_count", u64),
        ("hit_count", u64),
        ("prefetch_count", u64),
        ("pinned_bytes", u64),
        ("unshard_wait_s", f64),
        ("grad_wait_s", f64),
        ("step_wait_s", f64),
        ("reserved", u64 * 4),
    ]


class LayoutField(Structure):
    """struct zinf_layout_field."""

    _fields_ = [
        ("structure", text),
        ("field", text),
        ("offset_bytes", u32),
        ("bytes", u32),
    ]


STRUCTURES: dict[str, type[Structure]] = {
    "zinf_coll_options": CollOptions,
    "zinf_coll_p2p": CollP2p,
    "zinf_deepspeed_config": DeepspeedConfig,
    "zinf_deepspeed_facts": DeepspeedFacts,
    "zinf_deepspeed_note": DeepspeedNote,
    "zinf_gpu_options": GpuOptions,
    "zinf_gpu_stats": GpuStats,
    "zinf_group_options": GroupOptions,
    "zinf_lr_options": LrOptions,
    "zinf_lr_value": LrValue,
    "zinf_options": Options,
    "zinf_plateau": Plateau,
    "zinf_plateau_options": PlateauOptions,
    "zinf_scaler": Scaler,
    "zinf_scaler_options": ScalerOptions,
    "zinf_snapshot_options": SnapshotOptions,
    "zinf_step_betas": StepBetas,
    "zinf_step_group": StepGroup,
    "zinf_step_options": StepOptions,
    "zinf_step_stats": StepStats,
}
