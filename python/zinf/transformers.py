# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer over zinf.

    import zinf.transformers
    trainer = zinf.transformers.Trainer(model=model, args=args, train_dataset=data)

The rest of the script stays. Settings come from `zinf=` (a Config, a dict, or DeepSpeed's JSON),
from TrainingArguments.deepspeed, or from ZINF_* variables. The job is scratch: its name comes from
output_dir, and train() begins it with the model's weights, or with the snapshot that a checkpoint
names. docs/PYTORCH.md has the tutorial, and the list of what is not supported.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import tempfile
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from transformers.utils import logging

from . import scratch, weights
from .accelerate import Settings, adopt
from .config import Config
from .errors import InvalidArgument, Unsupported, ZinfError
from .module.device import settle
from .module.engine import Engine, engine_of
from .module.init import is_pending
from .module.parameter import Guarded, plain
from .optim import Lion
from .prepare import prepare
from .reference import Reference, References, gone, keep
from .weights import CheckpointError, Reader, fill

__all__ = ["Trainer", "TrainingArguments"]

logger = logging.get_logger("transformers.zinf")

_STATE = "trainer_state.json"
_OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "lion_32bit")
_WEIGHT_FILE = re.compile(r"(pytorch_)?model\b.*\.(safetensors|bin)(\.index\.json)?$")


class TrainingArguments(transformers.TrainingArguments):
    """TrainingArguments whose `deepspeed=` does not need the package deepspeed."""

    def __post_init__(self) -> None:
        given, self.deepspeed = self.deepspeed, None
        super().__post_init__()  # type: ignore[no-untyped-call]
        self.deepspeed = given


class Trainer(transformers.Trainer):
    """transformers.Trainer whose parameters, gradients and optimizer state are zinf's.

    zinf: settings: a Config, a dict of its fields, or DeepSpeed's JSON as a dict or a path.
        None: `args.deepspeed` if it is set, and the variables ZINF_*.
    """

    # The stock class leaves most of these untyped.
    accelerator: Any
    args: Any
    model: Any
    optimizer: Any
    state: Any

    max_shard_size: int | str = "5GB"
    """Largest file of saved weights. A larger model is saved as shards with an index."""

    def __init__(self, *positional: Any, zinf: Settings = None, **named: Any) -> None:
        stock = transformers.Trainer.__init__
        bound = inspect.signature(stock).bind_partial(self, *positional, **named)
        args = bound.arguments.get("args")
        if args is None:
            args = transformers.TrainingArguments(output_dir="tmp_trainer")
            bound.arguments["args"] = args
        self._zinf_settings = _take_deepspeed(args) if zinf is None else zinf
        self._zinf_resume: Reference | None = None
        self._zinf_resume_path = ""
        self._zinf_is_stock = False  # optimizer.pt has the state, as the stock Trainer saves it
        self._zinf_references = References(str(args.output_dir))
        _refuse(args)
        if args.n_gpu > 1:
            args._n_gpu = 1  # A rank computes on one GPU; nn.DataParallel is not used.
        super().__init__(*bound.args[1:], **bound.kwargs)

    @property
    def engine(self) -> Engine | None:
        """The engine of the model. None before train()."""
        return engine_of(self.model)

    def _zinf_engine(self) -> Engine:
        engine = self.engine
        assert engine is not None
        return engine

    # ---- model and optimizer ----

    def _zinf_config(self) -> Config:
        args = self.args
        facts = {
            "world_size": args.world_size,
            "micro_batch": args.per_device_train_batch_size,
            "accumulation_count": args.gradient_accumulation_steps,
            "lr": args.learning_rate,
            "beta1": args.adam_beta1,
            "beta2": args.adam_beta2,
            "eps": args.adam_epsilon,
            "weight_decay": args.weight_decay,
            "max_norm": args.max_grad_norm,
        }
        config = Config.load(self._zinf_settings, facts=facts)
        _compare_deepspeed(config, args)
        config = settle(config, args.device, "TrainingArguments (use_cpu)")
        finds_unused = bool(args.ddp_find_unused_parameters) or config.find_unused_parameters
        return config.replace(
            gradient_accumulation_steps=args.gradient_accumulation_steps,
            find_unused_parameters=finds_unused,
        )

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: Any, model: Any = None) -> tuple[Any, dict[str, Any]]:
        """Return the optimizer of `args.optim`. ValueError: zinf does not have it."""
        name = str(getattr(args.optim, "value", args.optim))
        if name not in _OPTIMIZERS:
            raise ValueError(f"optim='{name}' is not supported: zinf has {', '.join(_OPTIMIZERS)}")
        if name == "lion_32bit":  # The stock Trainer takes it from bitsandbytes.
            return Lion, {"lr": args.learning_rate, "betas": (args.adam_beta1, args.adam_beta2)}
        kind, settings = transformers.Trainer.get_optimizer_cls_and_kwargs(args, model)
        settings.pop("fused", None)
        return kind, settings

    def create_optimizer(self, *unused: Any, **also_unused: Any) -> Any:
        """Make the optimizer as the stock Trainer does, and hand model and optimizer to zinf."""
        engine = self.engine
        if engine is not None:
            reference, self._zinf_resume = self._zinf_resume, None
            if reference is not None:
                scratch.restore(engine, reference.source)
            return self.optimizer
        self._zinf_begin(super().create_optimizer())
        return self.optimizer

    def _zinf_begin(self, optimizer: Any) -> None:
        """Begin the job of this run. Accelerate then takes model and optimizer as prepared."""
        reference = self._zinf_resume
        source = None if reference is None else reference.source
        config = scratch.begin(
            self._zinf_config(),
            scratch.name_for(self.args.output_dir),
            self.is_world_process_zero(),
            self.accelerator.wait_for_everyone,
            self.model,
        )
        try:
            _, optimizer = prepare(self.model, optimizer, config, snapshot=source)
        except ZinfError as error:
            if reference is None:
                raise
            raise gone(self._zinf_resume_path, reference, error) from error
        engine = self._zinf_engine()
        scratch.own(engine)
        self.optimizer = adopt(self.accelerator, self.model, optimizer)
        self._zinf_resume = None
        if reference is not None and engine.session.committed_step != reference.step:
            raise CheckpointError(
                f"{self._zinf_resume_path} is of step {reference.step}, but its snapshot "
                f"{source} holds step {engine.session.committed_step}"
            )

    def _move_model_to_device(self, model: Any, device: torch.device) -> None:
        # A model may be larger than a GPU: prepare() moves it. Accelerate moves a model that is
        # evaluated before.
        is_free = engine_of(model) is None and not any(map(is_pending, model.parameters()))
        if is_free and device.type != "cuda":
            super()._move_model_to_device(model, device)

    # ---- training ----

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        *positional: Any,
        **named: Any,
    ) -> Any:
        """Train as the stock Trainer does.

        resume_from_checkpoint: a checkpoint, which continues with the snapshot that it names. One
            of the stock Trainer continues with the state in its optimizer.pt.
            True: the newest checkpoint of output_dir that was written to its end.
        """
        directory: str | None = None
        if resume_from_checkpoint is True:
            directory = _last_checkpoint(self.args.output_dir)
            if directory is None:
                raise ValueError(
                    f"No valid checkpoint found in output directory ({self.args.output_dir})"
                )
        elif resume_from_checkpoint:
            directory = os.fspath(resume_from_checkpoint)
        self._zinf_resume = None if directory is None else self._zinf_reference(directory)
        self._zinf_resume_path = directory or ""
        self._zinf_references = References(self.args.output_dir)
        self._zinf_references.note()
        result = super().train(directory, *positional, **named)
        self._zinf_remove_vanished()
        return result

    def _zinf_remove_vanished(self) -> None:
        """Remove the snapshots of checkpoints that the stock code has removed."""
        engine = self.engine
        if engine is not None and self.is_world_process_zero():
            self._zinf_references.remove_vanished(engine.session.config.socket_path)

    def _zinf_reference(self, directory: str) -> Reference | None:
        """Return the snapshot of a checkpoint. None: the stock Trainer, or save_only_model."""
        self._zinf_is_stock = False
        if not _is_complete(directory):
            raise CheckpointError(
                f"{directory} is no complete checkpoint: {_STATE} is missing or damaged"
            )
        reference = Reference.read(directory)
        if reference is None:
            self._zinf_is_stock = os.path.exists(os.path.join(directory, "optimizer.pt"))
            if not self._zinf_is_stock:
                logger.warning(
                    f"{directory} has only weights: the optimizer's state starts at zero"
                )
        elif reference.world_size != self.args.world_size:
            logger.warning(
                f"{directory} was written by {reference.world_size} ranks, and this run has "
                f"{self.args.world_size}: parameters and optimizer continue, but random states and "
                "the order of the data are new"
            )
        return reference

    def training_step(self, *positional: Any, **named: Any) -> Any:
        """Run a micro-batch. Only the last one of a step hands gradients over."""
        engine = self.engine
        if engine is None or self.accelerator.sync_gradients:
            return super().training_step(*positional, **named)
        with engine.no_sync():
            return super().training_step(*positional, **named)

    # ---- checkpoints ----

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if self._zinf_resume is not None:
            return  # The snapshot has the weights.
        if not isinstance(self.model, transformers.PreTrainedModel):
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        else:
            with Reader(resume_from_checkpoint) as reader:
                fill(self.model, reader)

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        """Load the schedule, and of a checkpoint of the stock Trainer the optimizer's state."""
        super()._load_optimizer_and_scheduler(checkpoint)
        engine = self.engine
        if not self._zinf_is_stock or engine is None:
            return
        self._zinf_is_stock = False
        groups = self.optimizer.param_groups
        has_state = engine.session.config.optimizer != "sgd" or any(g["momentum"] for g in groups)
        if has_state and engine.session.update_count == 0:
            raise CheckpointError(
                f"{checkpoint}: optimizer.pt has no state, and there is no zinf.json that names a "
                "snapshot: load the weights with from_pretrained() and train without "
                "resume_from_checkpoint"
            )

    def _load_best_model(self) -> None:
        if not isinstance(self.model, transformers.PreTrainedModel):
            super()._load_best_model()
            return
        directory = self.state.best_model_checkpoint
        logger.info(f"Loading best model from {directory} (score: {self.state.best_metric}).")
        with Reader(directory) as reader:
            fill(self.model, reader)

    def _save_checkpoint(self, *positional: Any, **named: Any) -> None:
        if self.is_world_process_zero():
            # An earlier run may have left a checkpoint of this step. From here on it is incomplete.
            name = f"checkpoint-{self.state.global_step}"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.args.output_dir, name, _STATE))
        super()._save_checkpoint(*positional, **named)
        self._zinf_remove_vanished()

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Keep a snapshot. optimizer.pt has only the parameter groups."""
        reference = keep(self._zinf_engine(), output_dir)
        self._zinf_references.add(output_dir, reference)
        logger.info(f"Optimizer state is kept as snapshot {reference.source}")
        super()._save_optimizer_and_scheduler(output_dir)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        # The first rank writes trainer_state.json next. Then the files of all ranks are there.
        self.accelerator.wait_for_everyone()

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        engine = self.engine
        if engine is None or state_dict is not None:
            super()._save(output_dir, state_dict)
            return
        if not isinstance(self.model, transformers.PreTrainedModel):  # peft's, which saves adapters
            super()._save(output_dir, _adapter_state(self.model))
            return
        if not self.args.should_save:
            return
        directory = self.args.output_dir if output_dir is None else output_dir
        os.makedirs(directory, exist_ok=True)
        # The stock code writes all other files. Its empty state_dict makes an empty weight file.
        with tempfile.TemporaryDirectory(prefix=".zinf-", dir=directory) as temporary:
            super()._save(temporary, state_dict={})
            for name in os.listdir(temporary):
                if not _WEIGHT_FILE.match(name):
                    os.replace(os.path.join(temporary, name), os.path.join(directory, name))
        tensors = engine.named_tensors()
        weights.save_model(self.model, directory, tensors, max_shard_size=self.max_shard_size)


def _adapter_state(model: Any) -> dict[str, torch.Tensor] | None:
    """Return a state_dict of a model of peft with copies of what its adapters save.

    The other weights are views of zinf's memory, which save_pretrained() does not read. None: the
    model is not peft's, and the stock code copies all weights.
    """
    if not hasattr(model, "peft_config"):
        return None
    from peft import get_peft_model_state_dict  # noqa: PLC0415 - loaded already

    views: dict[str, torch.Tensor] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        tables = (module._parameters.items(), module._buffers.items())
        for name, item in [pair for table in tables for pair in table]:
            if item is not None and name not in module._non_persistent_buffers_set:
                views[f"{prefix}.{name}" if prefix else name] = item.detach()
    wanted: set[int] = set()
    for name in model.peft_config:
        chosen = get_peft_model_state_dict(model, state_dict=views, adapter_name=name)
        wanted.update(id(value) for value in chosen.values())
    return {
        name: plain(view) if id(view) in wanted and isinstance(view, Guarded) else view
        for name, view in views.items()
    }


# ---- arguments ----


def _take_deepspeed(args: Any) -> Settings:
    """Return DeepSpeed's configuration of the arguments, on which only zinf acts from here on."""
    given: Settings = args.deepspeed
    if given is not None and getattr(args, "hf_deepspeed_config", None) is not None:
        from transformers.integrations import deepspeed  # noqa: PLC0415 - loaded already

        args.hf_deepspeed_config = None
        args.deepspeed_plugin = None
        deepspeed.unset_hf_deepspeed_config()  # type: ignore[no-untyped-call]
    return given


def _compare_deepspeed(config: Config, args: Any) -> None:
    """Refuse a DeepSpeed file that asks for another training than the arguments."""
    file = config.deepspeed
    if file is None:
        return
    pairs: list[tuple[str, Any, str, Any]] = [
        ("train_micro_batch_size_per_gpu", file.micro_batch, "per_device_train_batch_size",
         args.per_device_train_batch_size),
        ("gradient_accumulation_steps", file.accumulation_count, "gradient_accumulation_steps",
         args.gradient_accumulation_steps),
        ("gradient_clipping", file.step.max_norm, "max_grad_norm", args.max_grad_norm),
    ]  # fmt: skip
    if file.optimizer is not None:
        pairs += [
            ("optimizer.params.lr", file.step.lr, "learning_rate", args.learning_rate),
            ("optimizer.params.weight_decay", file.step.weight_decay, "weight_decay",
             args.weight_decay),
        ]  # fmt: skip
    for key, value, name, wanted in pairs:
        if abs(value - wanted) > 1e-6 * abs(wanted):
            raise InvalidArgument(
                f"DeepSpeed's {key} is {value}, but TrainingArguments.{name} is {wanted}: "
                'write "auto" in the file, or make them equal'
            )
    if file.lr is not None:
        raise Unsupported(
            "DeepSpeed's 'scheduler' is not supported with Trainer: remove it from the file, and "
            "set lr_scheduler_type and warmup_steps in TrainingArguments"
        )


def _refuse(args: Any) -> None:
    """Refuse arguments that zinf does not support. Raises Unsupported with what to do."""
    reasons = {
        "fp16": "use bf16=True",
        "fsdp": "remove it: zinf divides the model itself (strategy='zero3')",
        "torch_compile": "remove it",
        "auto_find_batch_size": "set per_device_train_batch_size",
        "fp16_full_eval": "the model is evaluated in the type in which it is trained",
        "bf16_full_eval": "the model is evaluated in the type in which it is trained",
    }
    for name, reason in reasons.items():
        if getattr(args, name, None):
            raise Unsupported(f"TrainingArguments.{name} is not supported by zinf: {reason}")


# ---- checkpoint directories ----


def _is_complete(directory: str) -> bool:
    """Whether a checkpoint was written to its end: its last file can be read."""
    try:
        with open(os.path.join(directory, _STATE), encoding="utf-8") as file:
            return isinstance(json.load(file), Mapping)
    except (OSError, ValueError):
        return False


def _last_checkpoint(output_dir: str) -> str | None:
    """Return the newest complete checkpoint of a directory."""
    found: dict[int, str] = {}
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(output_dir):
            match = re.fullmatch(r"checkpoint-(\d+)", entry.name)
            if match and entry.is_dir():
                found[int(match[1])] = entry.path
    for step in sorted(found, reverse=True):
        if _is_complete(found[step]):
            return found[step]
        logger.warning(f"{found[step]} was not written to its end and is skipped")
    return None
