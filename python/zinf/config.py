# SPDX-License-Identifier: Apache-2.0
"""Settings of a session.

Config.load() takes them from four sources. An earlier source overrides a later one:

1. arguments (`strategy="zero3"`)
2. DeepSpeed's JSON, as a file, a dict or a text
3. variables of the environment: `ZINF_` and the name of the setting in capitals
   (`ZINF_STRATEGY`). Three have shorter names: `ZINF_SOCKET` (socket_path), `ZINF_PRIVATE`
   (private_dir) and `ZINF_DEEPSPEED_CONFIG`, the path of a DeepSpeed file for source 2
4. the defaults of the class Config
"""

from __future__ import annotations

import ctypes as c
import dataclasses
import difflib
import os
import re
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Union

from .errors import InvalidArgument
from .libzinf.structures import (
    SHARD_NODE,
    Dtype,
    Durability,
    GradReduction,
    Offload,
    Optimizer,
    Options,
    ScalerKind,
    ScalerOptions,
)

if TYPE_CHECKING:
    from .deepspeed import DeepSpeed
    from .libzinf import Library

__all__ = ["Config", "parse_bytes"]

Source = Union[None, "Config", str, "os.PathLike[str]", Mapping[str, Any]]

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_DTYPES = {
    "f32": Dtype.F32,
    "fp32": Dtype.F32,
    "float32": Dtype.F32,
    "float": Dtype.F32,
    "f16": Dtype.F16,
    "fp16": Dtype.F16,
    "float16": Dtype.F16,
    "half": Dtype.F16,
    "bf16": Dtype.BF16,
    "bfloat16": Dtype.BF16,
}
_REDUCTIONS = {
    "per_step": GradReduction.PER_STEP,
    "per_micro_batch": GradReduction.PER_MICRO_BATCH,
}
_SCALERS = {
    "deepspeed": ScalerKind.DEEPSPEED,
    "torch": ScalerKind.TORCH,
    "apex": ScalerKind.APEX,
}
_SCALER_FIELDS = ("init", "growth", "backoff", "window")  # of the rules of torch


def parse_bytes(value: int | str, name: str = "value") -> int:
    """Convert a count of bytes: 4096, "64K", "1.5G". Units are powers of 1024."""
    if isinstance(value, int) and not isinstance(value, bool):
        count = value
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", str(value), re.I)
        if match is None:
            raise InvalidArgument(f"{name} is {value!r}: give bytes, such as 4096, 64K or 1.5G")
        count = int(float(match[1]) * (1 << _UNITS[match[2].upper()]))
    if not 0 <= count < 1 << 63:
        raise InvalidArgument(f"{name} is {value!r}: a count of bytes is 0 to 2^63 - 1")
    return count


# ---- values of one setting; each takes (value, name) ----


def _whole(least: int, most: int) -> Callable[[Any, str], int]:
    def convert(value: Any, name: str) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = least - 1
        if isinstance(value, bool) or number != _number(value) or not least <= number <= most:
            raise InvalidArgument(f"{name} is {value!r}: a whole number, {least} to {most}")
        return number

    return convert


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _seconds(value: Any, name: str) -> float:
    seconds = _number(value)
    if not 0 <= seconds <= 4294967:
        raise InvalidArgument(f"{name} is {value!r}: seconds, 0 (the default) to 4294967")
    return seconds


def _flag(value: Any, name: str) -> bool:
    if isinstance(value, (bool, int)) and value in (0, 1):
        return bool(value)
    word = str(value).strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off", ""):
        return False
    raise InvalidArgument(f"{name} is {value!r}: true or false")


def _text(value: Any, name: str) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise InvalidArgument(f"{name} is {value!r}: a text")
    return os.fspath(value)


def _word(words: Mapping[str, Any]) -> Callable[[Any, str], str]:
    def convert(value: Any, name: str) -> str:
        word = str(value).strip().lower()
        if word not in words:
            raise InvalidArgument(f"{name} is {value!r}: one of {', '.join(words)}")
        return word

    return convert


def _dtype(value: Any, name: str) -> str:
    word = str(value).strip().lower()
    if word.startswith("torch."):
        word = word[len("torch.") :]
    if word not in _DTYPES:
        raise InvalidArgument(f"{name} is {value!r}: float32, bfloat16 or float16")
    return {Dtype.F32: "float32", Dtype.F16: "float16", Dtype.BF16: "bfloat16"}[_DTYPES[word]]


def _device(value: Any, name: str) -> str:
    word = str(value).strip().lower()
    if not re.fullmatch(r"cpu|cuda(:\d+)?", word):
        raise InvalidArgument(f"{name} is {value!r}: cpu, cuda or cuda:N")
    return word


def _shard_size(value: Any, name: str) -> int:
    if str(value).strip().lower() == "node":
        return SHARD_NODE
    return _whole(0, SHARD_NODE)(value, name)


def _loss_scale(value: Any, name: str) -> str | float | dict[str, float]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key not in _SCALER_FIELDS or not isinstance(item, (int, float)):
                raise InvalidArgument(
                    f"{name} has {key}={item!r}: numbers for {', '.join(_SCALER_FIELDS)}"
                )
        return dict(value)
    word = str(value).strip().lower()
    if word == "dynamic":
        return "torch"
    if word in _SCALERS:
        return word
    scale = _number(value)
    if not 0 < scale < float("inf"):
        raise InvalidArgument(
            f"{name} is {value!r}: a number above 0, or dynamic, {', '.join(_SCALERS)}"
        )
    return scale


def _sets(value: Any, name: str) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else list(value)
    for item in items:
        if "=" not in str(item):
            raise InvalidArgument(f"{name} has {item!r}: SECTION.KEY=VALUE is expected")
    return tuple(str(item).strip() for item in items)


def _names(kind: Any) -> dict[str, Any]:
    return {member.name.lower(): member for member in kind}


def _setting(convert: Callable[[Any, str], Any], default: Any = None) -> Any:
    return dataclasses.field(default=default, metadata={"convert": convert})


@dataclasses.dataclass
class Config:
    """Settings of a session. None: the default, which the comment of the field names.

    Config(...) takes only arguments; Config.load() also reads the other sources.
    """

    # ---- the job ----
    socket_path: str | None = _setting(_text)  # libzinf's: $XDG_RUNTIME_DIR/zinf, /run/zinf
    job: str | None = _setting(_text)  # $ZINF_JOB, else "default"
    incarnation: str | None = _setting(_text)  # the launcher's
    rank: int | None = _setting(_whole(0, 63))  # the launcher's, else 0
    world_size: int | None = _setting(_whole(1, 64))  # the launcher's, else 1
    takeover: bool = _setting(_flag, False)  # replace living sessions of the job
    wait_for_daemon: bool = _setting(_flag, False)  # wait until a daemon listens, up to timeout
    timeout: float = _setting(_seconds, 0.0)  # seconds, of each waiting call; 0: 600
    # ---- what lies where ----
    strategy: str = _setting(_text, "ddp")  # ddp zero1 zero2 zero3, or FSDP's names
    shard_size: int | None = _setting(_shard_size)  # ranks that divide a copy; "node"; 0: all
    offload_optimizer: str | None = _setting(_word(_names(Offload)))  # nvme if private, else none
    offload_param: str | None = _setting(_word(_names(Offload)))  # nvme if private, else none
    param_budget_bytes: int = _setting(parse_bytes, 0)  # memory of parameters on NVMe; 0: auto
    grad_budget_bytes: int = _setting(parse_bytes, 0)  # zero2, zero3; 0: two largest units
    staging_bytes: int = _setting(parse_bytes, 0)  # buffers of a step; 0: the daemon's default
    resident_bytes: int = _setting(parse_bytes, 0)  # state on NVMe that stays in memory
    # ---- what computes a PyTorch model ----
    device: str | None = _setting(_device)  # cpu cuda cuda:N; where the model is
    gpu_param_budget_bytes: int = _setting(parse_bytes, 0)  # GPU memory of parameters; 0: auto
    gpu_grad_budget_bytes: int = _setting(parse_bytes, 0)  # the same of gradients
    # ---- arithmetic ----
    param_dtype: str | None = _setting(_dtype)  # the model's, else float32
    grad_dtype: str | None = _setting(_dtype)  # param_dtype
    reduce_dtype: str | None = _setting(_dtype)  # grad_dtype
    optimizer: str = _setting(_word(_names(Optimizer)), "adamw")
    grad_reduction: str = _setting(_word(_REDUCTIONS), "per_step")
    gradient_accumulation_steps: int = _setting(_whole(1, 1 << 20), 1)  # micro-batches of a step
    group_count: int = _setting(_whole(1, 64), 1)  # parameter groups of the optimizer
    # By the daemon, for float16.
    loss_scale: str | float | Mapping[str, float] | None = _setting(_loss_scale)
    find_unused_parameters: bool = _setting(_flag, False)
    is_forward_only: bool = _setting(_flag, False)  # no gradients, no optimizer state
    update_early: bool = _setting(_flag, False)  # update during backward: no norm, no clipping
    # ---- commits ----
    commit_interval: int = _setting(_whole(0, 1 << 31), 0)  # steps between commits; 0: 1
    durability: str = _setting(_word(_names(Durability)), "process")
    snapshot_interval: int = _setting(_whole(0, 1 << 31), 0)  # steps; 0: none
    snapshot_keep: int = _setting(_whole(0, 1 << 31), 0)  # automatic snapshots that stay; 0: all
    io_weight: int = _setting(_whole(0, 1000), 0)  # share of stores; 0: 100
    # ---- a private daemon (zinf.private) ----
    private_dir: str | None = _setting(_text)  # None: use the daemon of the node
    private_size: int | None = _setting(parse_bytes)  # bytes of the store; None: by free space
    private_set: tuple[str, ...] = _setting(_sets, ())  # SECTION.KEY=VALUE of zinfd's configuration
    # ---- what a DeepSpeed file says beyond these ----
    deepspeed: DeepSpeed | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            convert = field.metadata.get("convert")
            value = getattr(self, field.name)
            if convert is not None and value is not None:
                setattr(self, field.name, convert(value, field.name))

    # ---- sources ----

    @classmethod
    def load(
        cls,
        source: Source = None,
        *,
        facts: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Config:
        """Make a Config from the sources that the head of this module lists.

        source: a Config, to which only `settings` are applied; a dict of settings; or DeepSpeed's
            configuration as a dict, a path or a text of JSON. settings: by name; None means not
            given. facts: values for DeepSpeed's "auto" (zinf.deepspeed.read()).
        Raises InvalidArgument for an unknown name, with the nearest one.
        """
        given = {name: value for name, value in settings.items() if value is not None}
        check_names(given)
        if isinstance(source, Config):
            return dataclasses.replace(source, **given)
        values = _from_environment(os.environ if environ is None else environ)
        path = values.pop("deepspeed_config", None)
        if source is None and path:
            source = str(path)
        if isinstance(source, Mapping) and not is_deepspeed(source):
            check_names(source)
            given = {**{k: v for k, v in source.items() if v is not None}, **given}
        elif source is not None:
            from . import deepspeed  # noqa: PLC0415 - it loads libzinf

            read = deepspeed.read(source, facts)
            values.update(read.settings())
            values["deepspeed"] = read
        values.update(given)
        return cls(**values)

    def replace(self, **settings: Any) -> Config:
        """Return a copy with other settings. Unknown names are refused."""
        check_names(settings)
        return dataclasses.replace(self, **settings)

    # ---- for zinf_attach() ----

    def job_name(self) -> str:
        """Return the name of the job, as libzinf chooses it."""
        return self.job or os.environ.get("ZINF_JOB") or "default"

    def offload(self, name: str) -> Offload:
        """Return offload_optimizer or offload_param with its default."""
        word = getattr(self, name)
        if word is None:
            word = "nvme" if self.private_dir else "none"
        return Offload[word.upper()]

    def dtypes(self) -> tuple[Dtype, Dtype, Dtype]:
        """Return the types of parameters, gradients and reductions."""
        param = _DTYPES[self.param_dtype or "float32"]
        grad = _DTYPES[self.grad_dtype] if self.grad_dtype else param
        return param, grad, _DTYPES[self.reduce_dtype] if self.reduce_dtype else grad

    def options(self, library: Library) -> Options:
        """Return struct zinf_options. Raises InvalidArgument for an unknown strategy."""
        param, grad, reduce = self.dtypes()
        options = Options(
            socket_path=_encode(self.socket_path),
            job=_encode(self.job),
            incarnation=_encode(self.incarnation),
            rank=-1 if self.rank is None else self.rank,
            world_size=-1 if self.world_size is None else self.world_size,
            takeover=self.takeover,
            timeout_ms=max(1, round(self.timeout * 1000)) if self.timeout else 0,
            param_dtype=param,
            grad_dtype=grad,
            optimizer=Optimizer[self.optimizer.upper()],
            grad_reduction=_REDUCTIONS[self.grad_reduction],
            offload_optimizer=self.offload("offload_optimizer"),
            offload_param=self.offload("offload_param"),
            durability=Durability[self.durability.upper()],
            resident_bytes=self.resident_bytes,
            staging_bytes=self.staging_bytes,
            param_budget_bytes=self.param_budget_bytes,
            commit_interval=self.commit_interval,
            io_weight=self.io_weight,
            snapshot_interval=self.snapshot_interval,
            snapshot_keep=self.snapshot_keep,
            reduce_dtype=reduce if reduce != grad else 0,
            grad_budget_bytes=self.grad_budget_bytes,
            group_count=self.group_count,
            is_forward_only=self.is_forward_only,
            finds_unused=self.find_unused_parameters,
        )
        if self.grad_reduction == "per_step":
            options.accumulation = self.gradient_accumulation_steps
        if library.zinf_strategy_by_name(self.strategy.encode(), options):
            raise InvalidArgument(library.zinf_attach_error().decode())
        if self.shard_size is not None:
            options.shard_size = self.shard_size
        scaler = self._scaler(library)
        if scaler is not None:
            options.scaler = c.pointer(scaler)
        return options

    @property
    def has_loss_scale(self) -> bool:
        """Whether the daemon keeps a loss scale."""
        file = self.deepspeed
        return self.loss_scale is not None or (
            file is not None and bool(file.scaler.kind != ScalerKind.NONE)
        )

    def _scaler(self, library: Library) -> ScalerOptions | None:
        if self.loss_scale is None:
            if self.deepspeed is not None and self.deepspeed.scaler.kind != ScalerKind.NONE:
                return self.deepspeed.scaler
            return None
        scaler = ScalerOptions()
        given = self.loss_scale
        kind = ScalerKind.STATIC
        if isinstance(given, Mapping):
            kind = ScalerKind.TORCH
        elif isinstance(given, str):
            kind = _SCALERS[given]
        if library.zinf_scaler_defaults(kind, scaler):
            raise InvalidArgument(
                f"loss_scale is {self.loss_scale!r}: the library has no such kind"
            )
        if isinstance(given, Mapping):
            for name, value in given.items():
                setattr(scaler, name, int(value) if name == "window" else float(value))
        elif not isinstance(given, str):
            scaler.init = float(given)
        return scaler


SETTINGS = tuple(field.name for field in dataclasses.fields(Config) if field.name != "deepspeed")
_VARIABLES = {"socket_path": "ZINF_SOCKET", "private_dir": "ZINF_PRIVATE"}
# libzinf reads these itself, in each rank.
_LIBRARY_VARIABLES = ("job", "incarnation", "socket_path")
# Variables of other parts of zinf.
_OTHER_VARIABLES = ("ZINF_LIBRARY", "ZINF_PREFIX", "ZINF_PORT", "ZINF_COLL_CMA_BYTES", "ZINF_BUILD")


def variable(name: str) -> str:
    """Return the variable of a setting: ZINF_STRATEGY of strategy."""
    return _VARIABLES.get(name, "ZINF_" + name.upper())


def check_names(names: Any) -> None:
    """Refuse names that are no settings. Raises InvalidArgument with the nearest name."""
    for name in names:
        if name in SETTINGS:
            continue
        near = difflib.get_close_matches(str(name), SETTINGS, 1, 0.5)
        hint = f"; the nearest is '{near[0]}'" if near else ""
        raise InvalidArgument(f"there is no setting '{name}'{hint}")


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    known = {variable(name): name for name in SETTINGS}
    known["ZINF_DEEPSPEED_CONFIG"] = "deepspeed_config"
    for key, text in environ.items():
        if not key.startswith("ZINF_") or not text:
            continue
        name = known.get(key)
        if name is None:
            _warn_of(key, list(known))
        elif name in _LIBRARY_VARIABLES and environ is os.environ:
            continue
        elif name == "deepspeed_config":
            values[name] = text
        else:
            convert = Config.__dataclass_fields__[name].metadata["convert"]
            values[name] = convert(text, key)
    return values


def _warn_of(key: str, known: list[str]) -> None:
    near = difflib.get_close_matches(key, known, 1, 0.85)
    if near and key not in _OTHER_VARIABLES and not key.startswith("ZINF_TEST_"):
        warnings.warn(
            f"zinf does not know the variable {key}; the nearest is {near[0]}", stacklevel=4
        )


# Keys that only DeepSpeed has. A dict with one of them is DeepSpeed's.
_DEEPSPEED_KEYS = frozenset(
    [
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "zero_optimization",
        "fp16",
        "bf16",
        "amp",
        "scheduler",
        "gradient_clipping",
        "gradient_predivide_factor",
        "prescale_gradients",
        "steps_per_print",
        "wall_clock_breakdown",
        "communication_data_type",
        "data_types",
        "activation_checkpointing",
        "aio",
        "zero_allow_untested_optimizer",
        "zero_force_ds_cpu_optimizer",
    ]
)


def is_deepspeed(source: Mapping[str, Any]) -> bool:
    """Whether a dict is DeepSpeed's configuration, and not one of settings."""
    return any(
        key in _DEEPSPEED_KEYS or isinstance(value, Mapping) for key, value in source.items()
    )


def _encode(value: str | None) -> bytes | None:
    return None if value is None else os.fsencode(value)
