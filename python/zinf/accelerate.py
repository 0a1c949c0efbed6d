# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Accelerate over zinf.

    from zinf.accelerate import Accelerator  # was: from accelerate import Accelerator
    accelerator = Accelerator(gradient_accumulation_steps=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

The loop stays: accumulate, backward, clip_grad_norm_, save_state, load_state. zinf reduces
gradients, so the model is not wrapped for data parallelism. A saved state has the weights as files,
and names the snapshot that has the optimizer's state.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, Union

import accelerate  # type: ignore[import-untyped]
import torch

from . import scratch
from .config import Config
from .errors import InvalidArgument, ZinfError
from .module.device import settle
from .module.engine import Engine, engine_of
from .prepare import prepare
from .reference import Reference, References, gone, keep
from .scaler import LossScaler
from .weights import CheckpointError, save_model

__all__ = ["Accelerator", "Settings", "adopt"]

Settings = Union[Config, Mapping[str, Any], str, "os.PathLike[str]", None]


def adopt(accelerator: accelerate.Accelerator, model: torch.nn.Module, optimizer: Any) -> Any:
    """Let Accelerate take a model and an optimizer of zinf as prepared. Return its optimizer.

    The model gets autocast, but no DistributedDataParallel. The optimizer is not moved to a
    device, which would replace its parameter groups.
    """
    if "_original_forward" not in vars(model):  # set where autocast is in place
        model._is_accelerate_prepared = False  # type: ignore[assignment]
    accelerate.Accelerator.prepare_model(
        accelerator, model, device_placement=False, evaluation_mode=True
    )
    model._is_accelerate_prepared = True  # type: ignore[assignment]
    if getattr(optimizer, "_is_accelerate_prepared", False):
        return optimizer
    wrapped = accelerate.Accelerator.prepare_optimizer(
        accelerator, optimizer, device_placement=False
    )
    wrapped._is_accelerate_prepared = True
    return wrapped


class Accelerator(accelerate.Accelerator):  # type: ignore[misc]
    """accelerate.Accelerator whose prepare() hands one model and its optimizer to zinf.

    zinf: settings: a Config, a dict of its fields, or DeepSpeed's JSON as a dict or a path.
        None: the variables ZINF_*.
    """

    def __init__(self, *positional: Any, zinf: Settings = None, **named: Any) -> None:
        super().__init__(*positional, **named)
        if self.mixed_precision not in ("no", "bf16", "fp16"):
            raise InvalidArgument(
                f"mixed_precision='{self.mixed_precision}' is not supported: use 'bf16' or 'fp16'"
            )
        self._zinf_scale: dict[str, float] | None = None
        if self.mixed_precision == "fp16":
            self._zinf_scale_losses()
        self._zinf_settings = zinf
        self._zinf_model: torch.nn.Module | None = None
        self.register_save_state_pre_hook(self._zinf_save)
        self.register_load_state_pre_hook(self._zinf_load)

    def _zinf_scale_losses(self) -> None:
        """Compute in float16 by autocast, with the daemon's loss scale in GradScaler's place."""
        self.native_amp = True  # the stock class has float16 on devices only
        handler = self.scaler_handler or accelerate.utils.GradScalerKwargs()
        if handler.enabled:
            self._zinf_scale = {
                "init": handler.init_scale,
                "growth": handler.growth_factor,
                "backoff": handler.backoff_factor,
                "window": handler.growth_interval,
            }
        # On a GPU the stock class makes one that is not enabled.
        self.scaler = LossScaler(self._zinf_engine) if handler.enabled else None

    def _zinf_engine(self) -> Engine:
        engine = self.engine
        if engine is None:
            raise InvalidArgument("mixed_precision='fp16' needs a model: call prepare() first")
        return engine

    @property
    def engine(self) -> Engine | None:
        """The engine of the prepared model. None before prepare()."""
        return None if self._zinf_model is None else engine_of(self._zinf_model)

    def prepare(self, *objects: Any, device_placement: Any = None) -> Any:
        """Prepare objects. The first model and optimizer become zinf's, unless they are already."""
        model = next((o for o in objects if isinstance(o, torch.nn.Module)), None)
        optimizer = next((o for o in objects if isinstance(o, torch.optim.Optimizer)), None)
        if model is None or self._zinf_model is not None:
            return super().prepare(*objects, device_placement=device_placement)
        made = optimizer
        if engine_of(model) is None:
            if optimizer is None:
                raise InvalidArgument(
                    "prepare() has a model but no optimizer: pass both in one call"
                )
            config = Config.load(
                self._zinf_settings, facts={"accumulation_count": self.gradient_accumulation_steps}
            )
            config = config.replace(gradient_accumulation_steps=self.gradient_accumulation_steps)
            config = settle(config, self.device, "the Accelerator")
            if self._zinf_scale is not None and not config.has_loss_scale:
                config = config.replace(loss_scale=self._zinf_scale)
            config = scratch.begin(
                config, scratch.script_name(), self.is_main_process, self.wait_for_everyone, model
            )
            model, made = prepare(model, optimizer, config)
            engine = engine_of(model)
            assert engine is not None
            scratch.own(engine)
            # Schedulers of the former optimizer act on the shared groups, and look for its steps.
            optimizer._opt_called = True  # type: ignore[attr-defined]
        self._zinf_check_scale(model)
        self._zinf_model = model
        wrapped = None if made is None else adopt(self, model, made)
        objects = tuple(wrapped if o is optimizer and o is not None else o for o in objects)
        return super().prepare(*objects, device_placement=device_placement)

    def _zinf_check_scale(self, model: torch.nn.Module) -> None:
        """Refuse a model that was prepared before without what this object needs of it."""
        engine = engine_of(model)
        assert engine is not None
        has_scale = engine.session.config.has_loss_scale
        if has_scale != (self.scaler is not None):
            raise InvalidArgument(
                "the model was prepared without a loss scale: give loss_scale='torch' to "
                "zinf.prepare() for mixed_precision='fp16'"
                if not has_scale
                else "the model has a loss scale: give mixed_precision='fp16' to Accelerator()"
            )

    @contextlib.contextmanager
    def no_sync(self, model: torch.nn.Module) -> Iterator[None]:
        """Accumulate gradients inside the block, with one rank as well."""
        engine = engine_of(model)
        with contextlib.nullcontext() if engine is None else engine.no_sync():
            if engine is None:
                with super().no_sync(model):
                    yield
            else:
                yield

    def get_state_dict(self, model: torch.nn.Module, unwrap: bool = True) -> Any:
        """Return a copy of the weights, for which there must be memory."""
        if self._zinf_is_saving and engine_of(model) is not None:
            return {}
        return super().get_state_dict(model, unwrap)

    def save_model(
        self,
        model: torch.nn.Module,
        save_directory: str | os.PathLike[str],
        max_shard_size: int | str = "10GB",
        safe_serialization: bool = True,
    ) -> None:
        """Save the weights as safetensors files, of a model in zinf unit by unit."""
        engine = engine_of(model)
        if engine is None or not safe_serialization:
            super().save_model(model, save_directory, max_shard_size, safe_serialization)
        elif self.is_main_process:
            tensors = engine.named_tensors()
            save_model(model, save_directory, tensors, max_shard_size=max_shard_size)

    _zinf_is_saving = False

    def save_state(self, output_dir: str | None = None, *positional: Any, **named: Any) -> Any:
        """Save all states. The optimizer's becomes a snapshot that goes with the directory."""
        if self.project_configuration.automatic_checkpoint_naming:
            parent = os.path.join(self.project_dir, "checkpoints")
        else:
            parent = os.path.dirname(os.path.abspath(output_dir or "."))
        references = References(parent)
        references.note()
        self._zinf_is_saving = True
        try:
            result = super().save_state(output_dir, *positional, **named)
        finally:
            self._zinf_is_saving = False
        engine = self.engine
        if engine is not None and self.is_main_process:
            references.remove_vanished(engine.session.config.socket_path)
        return result

    def _zinf_save(self, models: list[Any], weights: list[Any], output_dir: str) -> None:
        engine = self.engine
        if engine is None or self._zinf_model is None:
            return
        for index in reversed(range(len(models))):
            if models[index] is self._zinf_model:
                del weights[index]
        if self.is_main_process:
            save_model(self._zinf_model, output_dir, engine.named_tensors())
        keep(engine, output_dir)

    def _zinf_load(self, models: list[Any], input_dir: str) -> None:
        engine = self.engine
        if engine is None or self._zinf_model is None:
            return
        reference = Reference.read(input_dir)
        if reference is None:
            raise CheckpointError(
                f"{input_dir} has no zinf.json: zinf's save_state() did not write it"
            )
        try:
            scratch.restore(engine, reference.source)
        except ZinfError as error:
            raise gone(input_dir, reference, error) from error
        models[:] = [model for model in models if model is not self._zinf_model]
