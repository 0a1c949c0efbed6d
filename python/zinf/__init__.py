# SPDX-License-Identifier: Apache-2.0
"""zinf: train models larger than memory, through the zinf daemon of the node.

`import zinf` loads neither torch nor libzinf. Names of the torch part are imported on first use.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

from .config import Config
from .errors import (
    Busy,
    Canceled,
    DaemonNotFound,
    Denied,
    Exists,
    ForkedChild,
    GpuFailed,
    Interrupted,
    InvalidArgument,
    LibraryNotFound,
    MissingGradient,
    NoSpace,
    NotFinite,
    NotFound,
    PeerLost,
    ReadOnlyParameter,
    SessionClosed,
    StaleSession,
    StoreFailed,
    Timeout,
    Unsupported,
    ZinfError,
)
from .session import Session, StateKind, StepOptions, StepStats

__version__ = "0.1.0"

__all__ = [
    "Busy",
    "Canceled",
    "Config",
    "DaemonNotFound",
    "Denied",
    "Exists",
    "ForkedChild",
    "GpuFailed",
    "Interrupted",
    "InvalidArgument",
    "LibraryNotFound",
    "MissingGradient",
    "NoSpace",
    "NotFinite",
    "NotFound",
    "PeerLost",
    "ReadOnlyParameter",
    "Session",
    "SessionClosed",
    "StaleSession",
    "StateKind",
    "StepOptions",
    "StepStats",
    "StoreFailed",
    "Timeout",
    "Unsupported",
    "ZinfError",
]

# Name: module that has it. Imported when the name is first used, as the module needs torch.
_LATER: dict[str, str] = {
    "prepare": "zinf.prepare",
    "Engine": "zinf.module.engine",
    "engine_of": "zinf.module.engine",
    "init": "zinf.module.init",
    "clip_grad_norm_": "zinf.clip",
    "initialize": "zinf.deepspeed.entry",
    "add_config_arguments": "zinf.deepspeed.entry",
    "init_distributed": "zinf.comm",
    "get_accelerator": "zinf.accelerator",
    "DeepSpeedEngine": "zinf.deepspeed.engine",
    "stats": "zinf.statistics",
    "fully_shard": "zinf.fsdp",
    "CPUOffloadPolicy": "zinf.fsdp",
    "MixedPrecisionPolicy": "zinf.fsdp",
    "NVMeOffloadPolicy": "zinf.fsdp",
    "OffloadPolicy": "zinf.fsdp",
}
_MODULES = frozenset(
    str.split(
        """
    accelerate accelerator admin checkpoint comm deepspeed doctor fsdp module offload optim private
    transformers weights zero
    """
    )
)
# Names of DeepSpeed that a script may ask for, and why they are not here.
_ABSENT = {
    "init_inference": "zinf trains; for inference use the model itself",
    "InferenceEngine": "zinf trains; for inference use the model itself",
    "DeepSpeedHybridEngine": "zinf has no engine of inference",
    "PipelineModule": "zinf's ranks are data-parallel",
    "PipelineEngine": "zinf's ranks are data-parallel",
    "tp_model_init": "zinf's ranks are data-parallel",
    "OnDevice": "build the model inside zinf.init()",
    "checkpointing": "use torch.utils.checkpoint",
    "ops": "optimizers are those of torch.optim and zinf.optim",
    "moe": "zinf does not divide experts over ranks",
    "utils": "zinf has none of DeepSpeed's helpers",
    "runtime": "schedules are in zinf.deepspeed.schedules",
}


class _Package(types.ModuleType):
    """Keeps `zinf.prepare` a function: the import of a submodule sets it as an attribute here."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _LATER and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _LATER:
        value = getattr(importlib.import_module(_LATER[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"zinf.{name}")
    if name in _ABSENT:
        raise AttributeError(f"zinf has no '{name}' of DeepSpeed: {_ABSENT[name]}")
    raise AttributeError(f"module 'zinf' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *_MODULES})
