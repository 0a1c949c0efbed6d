# SPDX-License-Identifier: Apache-2.0
"""zinf.initialize(): DeepSpeed's entry.

A script changes `import deepspeed` to `import zinf as deepspeed`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import torch

from .. import comm, optim, scratch
from ..config import Config
from ..errors import InvalidArgument, Unsupported
from ..libzinf.structures import Optimizer
from ..module.device import has_cuda
from ..module.engine import engine_of
from ..prepare import prepare
from . import schedules
from .engine import DeepSpeedEngine
from .settings import DeepSpeed

__all__ = ["add_config_arguments", "initialize"]

# Keys that only the trainer uses: libzinf checks them, and does not return them.
_FLAGS = ("managed_gradient_accumulation", "dataloader_drop_last")

_numbers = itertools.count()  # of the engines that this process makes


def initialize(
    args: Any = None,
    model: torch.nn.Module | None = None,
    optimizer: Any = None,
    model_parameters: Any = None,
    training_data: Any = None,
    lr_scheduler: Any = None,
    distributed_port: int = comm.DEFAULT_PORT,
    mpu: Any = None,
    dist_init_required: bool | None = None,
    collate_fn: Any = None,
    config: Any = None,
    mesh_param: Any = None,
    config_params: Any = None,
    **settings: Any,
) -> tuple[DeepSpeedEngine, Any, Any, Any]:
    """Put a model into zinf, as deepspeed.initialize() does it. Collective.

    args: has `deepspeed_config`, the path of a file, unless `config` is given.
    model: stays the same object, with the same Parameter objects.
    optimizer: of torch.optim or zinf.optim, or a function that makes one of parameters; None: the
        file's. model_parameters: parameters or groups that the file's optimizer trains; None: all.
    training_data: a Dataset, for the loader. collate_fn: of the loader.
    lr_scheduler: a schedule, or a function that makes one of the optimizer; None: the file's.
    config: DeepSpeed's configuration as a dict, a path, or a text of JSON. config_params: the same.
    settings: of zinf.Config, such as private_dir. They override the file.
    Return: engine, optimizer, loader, schedule; None for what there is not.
    """
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(
            f"initialize(model=): a torch.nn.Module is needed, not {type(model).__name__}"
        )
    if mpu is not None or mesh_param is not None:
        raise Unsupported(
            "initialize(mpu=, mesh_param=): zinf's ranks are data-parallel, there is no model or "
            "sequence parallelism"
        )
    source = _source(args, config if config is not None else config_params)
    comm.init_distributed(distributed_port=distributed_port, dist_init_required=dist_init_required)
    raw = _raw(source)
    parameters = list(model.parameters() if model_parameters is None else model_parameters)
    made = _client_optimizer(optimizer, parameters)
    merged = Config.load(source, facts=_facts(model, made), **settings)
    file = merged.deepspeed
    if file is None:
        raise InvalidArgument(
            "initialize(config=): this is no configuration of DeepSpeed. It has at least "
            "train_batch_size or train_micro_batch_size_per_gpu"
        )
    _check_type(model, file)
    if merged.device is None and has_cuda():
        merged = merged.replace(device="cuda")
    if made is None and file.optimizer is not None:
        made = _from_file(parameters, file)
    if made is not None:
        made.param_groups[:] = [group for group in made.param_groups if group["params"]]
    merged = _job(merged, model, made is not None)
    _, chosen = prepare(model, made, merged)
    state = engine_of(model)
    assert state is not None
    scratch.own(state)
    schedule = _schedule(lr_scheduler, chosen, file)
    engine = DeepSpeedEngine(
        model,
        state,
        chosen,
        file,
        raw=raw,
        lr_scheduler=schedule,
        training_data=training_data,
        collate_fn=collate_fn,
    )
    return engine, chosen, engine.training_dataloader, schedule


# ---- the configuration ----


def _source(args: Any, config: Any) -> Any:
    """Return where the configuration comes from. One place is allowed."""
    named = getattr(args, "deepspeed_config", None)
    if named is not None and config is not None:
        raise InvalidArgument(
            "two configurations are given, --deepspeed_config and initialize(config=): give one"
        )
    source = named if config is None else config
    if source is None:
        raise InvalidArgument(
            "initialize() has no configuration: give config= a dict or the path of a JSON file, or "
            "the script --deepspeed_config"
        )
    if not isinstance(source, (str, os.PathLike, Mapping)):
        raise InvalidArgument(
            f"initialize(config=) is a {type(source).__name__}: a dict, a path, or a text of JSON"
        )
    return source


def _raw(source: Any) -> dict[str, Any]:
    """Return the configuration as a dict; of a file with comments only that it has no flags."""
    if isinstance(source, Mapping):
        return dict(source)
    text = os.fspath(source)
    if not text.lstrip().startswith("{"):
        try:
            with open(text, encoding="utf-8") as file:
                text = file.read()
        except OSError:
            return {}  # Config.load() reports it
    try:
        value = json.loads(text)
    except ValueError:
        for flag in _FLAGS:
            if flag in text:
                raise InvalidArgument(
                    f"the configuration has comments and the key {flag}: write plain JSON"
                ) from None
        return {}
    return value if isinstance(value, dict) else {}


def _facts(model: torch.nn.Module, optimizer: Any) -> dict[str, Any]:
    """Return what zinf knows for values "auto", and for a schedule without an optimizer."""
    facts: dict[str, Any] = {"world_size": comm.get_world_size()}
    if optimizer is not None and optimizer.param_groups:
        facts["lr"] = float(optimizer.param_groups[0]["lr"])
    config = getattr(model, "config", None)
    hidden = getattr(getattr(config, "text_config", None) or config, "hidden_size", None)
    if isinstance(hidden, int):
        facts["hidden_elements"] = hidden
    return facts


def _check_type(model: torch.nn.Module, file: DeepSpeed) -> None:
    """Refuse a model in 16 bits whose file trains in float32."""
    if file.param_dtype.name != "F32":
        return
    for name, parameter in model.named_parameters():
        if parameter.dtype in (torch.bfloat16, torch.float16):
            key = "bf16" if parameter.dtype == torch.bfloat16 else "fp16"
            raise InvalidArgument(
                f"parameter '{name}' is {parameter.dtype}, and the configuration trains in "
                f"float32: set {key}.enabled, or convert the model with model.float()"
            )


def _job(config: Config, model: torch.nn.Module, is_trained: bool) -> Config:
    """Make way for a new job of this script, and return settings that name it."""
    number = next(_numbers)
    given = config.job or os.environ.get("ZINF_JOB")
    if given and number:
        config = config.replace(job=f"{given}-{number}")
    path = os.path.join(os.getcwd(), os.path.basename(sys.argv[0] or "python"))
    name = scratch.name_for(path, "ds") + (f"-{number}" if number else "")
    distributed = torch.distributed.is_initialized()
    if distributed:
        config = config.replace(
            rank=torch.distributed.get_rank(), world_size=torch.distributed.get_world_size()
        )
    elif comm.get_world_size() > 1:
        raise InvalidArgument(
            f"{comm.get_world_size()} ranks without torch.distributed: leave dist_init_required "
            "out, or call torch.distributed.init_process_group() before initialize()"
        )
    config = config.replace(is_forward_only=not is_trained)
    rank = torch.distributed.get_rank() if distributed else 0
    barrier = torch.distributed.barrier if distributed else lambda: None
    return scratch.begin(config, name, rank == 0, barrier, model)


# ---- optimizer and schedule ----


def _client_optimizer(given: Any, parameters: list[Any]) -> torch.optim.Optimizer | None:
    """Return the optimizer that the script gives. None: the file may have one."""
    if given is None or isinstance(given, torch.optim.Optimizer):
        return given
    made = given(parameters) if callable(given) else given
    if not isinstance(made, torch.optim.Optimizer):
        raise InvalidArgument(
            f"initialize(optimizer=) is a {type(made).__name__}: an optimizer of torch.optim or "
            "zinf.optim, or a function that makes one"
        )
    return made


def _from_file(parameters: list[Any], file: DeepSpeed) -> torch.optim.Optimizer:
    """Return the optimizer that the file describes."""
    step = file.step
    rates: dict[str, Any] = {"lr": step.lr, "weight_decay": step.weight_decay}
    if file.optimizer == Optimizer.SGD:
        return optim.SGD(
            parameters,
            momentum=step.beta1,
            dampening=step.beta2,
            nesterov=bool(step.nesterov),
            **rates,
        )
    if file.optimizer == Optimizer.ADAGRAD:
        return optim.Adagrad(parameters, lr_decay=step.lr_decay, eps=step.eps, **rates)
    betas = (step.beta1, step.beta2)
    if file.optimizer == Optimizer.LION:
        return optim.Lion(parameters, betas=betas, **rates)
    kind = optim.AdamW if file.optimizer == Optimizer.ADAMW else optim.Adam
    return kind(parameters, betas=betas, eps=step.eps, **rates)


def _schedule(given: Any, optimizer: Any, file: DeepSpeed) -> Any:
    if given is not None:
        if callable(given) and not hasattr(given, "step"):
            return given(optimizer)
        return given
    if file.lr is None or optimizer is None:
        return None
    return schedules.from_options(optimizer, file.lr)


# ---- the command line ----


def add_config_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add --deepspeed and --deepspeed_config to a parser. Return it."""
    group = parser.add_argument_group("DeepSpeed", "the configuration of zinf.initialize()")
    group.add_argument(
        "--deepspeed", default=False, action="store_true", help="a flag for the script"
    )
    group.add_argument(
        "--deepspeed_config", default=None, type=str, help="path of DeepSpeed's JSON file"
    )
    return parser
