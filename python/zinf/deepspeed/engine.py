# SPDX-License-Identifier: Apache-2.0
"""The engine of zinf.initialize(), in DeepSpeed's shape.

    loss = engine(batch)
    engine.backward(loss)
    engine.step()

engine.zinf is the engine of the model in zinf (zinf.engine_of()). Micro-batches that do not end a
step run in its no_sync(); step() is a step at the last one. The loss is divided by the number of
micro-batches, as DeepSpeed does. step() returns before the step is committed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ..errors import InvalidArgument, Unsupported
from ..libzinf.structures import ScalerKind
from ..module.engine import Engine
from ..session import StepOptions
from . import checkpoint
from .data import DeepSpeedDataLoader
from .settings import DeepSpeed

__all__ = ["DeepSpeedEngine"]

ROUTE_TRAIN, ROUTE_EVAL, ROUTE_PREDICT = "train", "eval", "predict"


class DeepSpeedEngine(nn.Module):
    """A model, its optimizer and its schedule. zinf.initialize() makes it.

    module: prepared by zinf.prepare(). settings: the file. flags: keys of the file that only the
    trainer uses.
    """

    module: Any

    def __init__(
        self,
        module: nn.Module,
        state: Engine,
        optimizer: Any,
        settings: DeepSpeed,
        *,
        raw: Mapping[str, Any],
        lr_scheduler: Any = None,
        training_data: Any = None,
        collate_fn: Any = None,
    ) -> None:
        super().__init__()
        self.module = module
        self.zinf = state
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.settings = settings
        self.config = dict(raw)
        self.collate_fn = collate_fn
        self.global_rank: int = state.session.rank
        self.world_size: int = state.session.world_size
        self.dp_world_size: int = self.world_size
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = state.device.place
        self.global_steps = 0
        self.global_samples = 0
        self.micro_steps = 0
        self.skipped_steps = 0
        self.inside_no_sync_ctxt = False
        self._accumulation = settings.accumulation_count
        self._micro_batch = settings.micro_batch
        self._is_managed = bool(raw.get("managed_gradient_accumulation", True))
        self._boundary: bool | None = None  # of set_gradient_accumulation_boundary()
        self._is_stepping = False
        self._is_coalescing = False
        self._was_applied = False
        self._backward_count = 0  # of this step
        self._times = dict.fromkeys(("forward", "backward", "step"), 0.0)
        self._saves = checkpoint.Saves()
        if optimizer is not None:
            self._adjust_steps()
        self.training_dataloader = (
            None if training_data is None else self.deepspeed_io(training_data)
        )
        self.training = module.training

    def _adjust_steps(self) -> None:
        """Let each step have what the file says beyond the parameter groups."""
        stock = self.zinf._step_options
        given = self.settings.step

        def options(groups: Any) -> StepOptions:
            made = stock(groups)
            made.max_norm = given.max_norm
            made.no_bias_correction = given.no_bias_correction
            made.sum, made.skip_nonfinite = given.sum, given.skip_nonfinite
            return made

        self.zinf._step_options = options
        self.zinf.begin_options = StepOptions(
            is_deferred=True, sum=given.sum, skip_nonfinite=given.skip_nonfinite
        )

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = self.__dict__.get("_modules", {}).get("module")
            if module is not None and hasattr(module, name):
                return getattr(module, name)
            raise

    # ---- a micro-batch ----

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the model."""
        began = time.perf_counter()
        try:
            return self.module(*inputs, **kwargs)
        finally:
            self._times["forward"] += time.perf_counter() - began

    def _need_optimizer(self, what: str) -> None:
        if self.optimizer is None:
            raise InvalidArgument(
                f"{what} needs an optimizer: give one to initialize(), or write 'optimizer' into "
                "the configuration"
            )

    def backward(
        self, loss: torch.Tensor, retain_graph: bool = False, scale_wrt_gas: bool = True
    ) -> torch.Tensor:
        """Run backward of a micro-batch. Return the loss, divided by the number of micro-batches.

        scale_wrt_gas: False does not divide.
        """
        self._need_optimizer("backward()")
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise InvalidArgument("backward() needs a loss with one element")
        began = time.perf_counter()
        if scale_wrt_gas and self._accumulation > 1:
            loss = loss / self._accumulation
        scaled = loss * self.loss_scale if self._has_scaler else loss
        is_last = self.is_gradient_accumulation_boundary() and not self._is_coalescing
        quiet = self.inside_no_sync_ctxt or not is_last
        with self.zinf.no_sync() if quiet else contextlib.nullcontext():
            scaled.backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]
        self._backward_count += 1
        self._times["backward"] += time.perf_counter() - began
        return loss

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return a loss for loss.backward(): multiplied by the loss scale."""
        self._need_optimizer("scale()")
        if self._accumulation > 1:
            raise Unsupported("scale() with several micro-batches: call engine.backward(loss)")
        return loss * self.loss_scale

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Only accumulate gradients inside, in every stage of ZeRO. step() is not allowed there."""
        if self.inside_no_sync_ctxt:
            raise InvalidArgument("no_sync() inside no_sync()")
        self.inside_no_sync_ctxt = True
        try:
            yield
        finally:
            self.inside_no_sync_ctxt = False

    @contextlib.contextmanager
    def coalesce_grad_reduction(self) -> Iterator[None]:
        """Allow several backward passes inside; their gradients are handed over by step()."""
        self._is_coalescing = True
        try:
            yield
        finally:
            self._is_coalescing = False

    def is_gradient_accumulation_boundary(self) -> bool:
        """Whether the present micro-batch ends a step."""
        if self._boundary is not None:
            return self._boundary
        if not self._is_managed:
            return self._is_stepping
        return (self.micro_steps + 1) % self._accumulation == 0

    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None:
        """Say whether the next backward ends a step, in place of counting micro-batches."""
        if not self._is_managed:
            raise InvalidArgument(
                "set_gradient_accumulation_boundary() with managed_gradient_accumulation false: "
                "each step() is a boundary"
            )
        self._boundary = bool(is_boundary)

    # ---- a step ----

    def step(self, lr_kwargs: Mapping[str, Any] | None = None) -> None:
        """End a micro-batch; at the last one of a step, make the step and move the schedule.

        lr_kwargs: for the schedule's step().
        """
        self._need_optimizer("step()")
        if self.inside_no_sync_ctxt:
            raise InvalidArgument("step() inside no_sync()")
        began = time.perf_counter()
        self._is_stepping = True
        self._was_applied = False
        try:
            is_last = self.is_gradient_accumulation_boundary()
            if is_last:
                self._make_step(lr_kwargs)
        finally:
            self._is_stepping = False
        self.micro_steps += 1
        self._times["step"] += time.perf_counter() - began
        if is_last:
            self._report()

    def _make_step(self, lr_kwargs: Mapping[str, Any] | None) -> None:
        state = self.zinf
        needs_factor = self._accumulation > 1 or self._has_scaler
        if state.has_begun and not self._backward_count and needs_factor:
            raise Unsupported(
                "loss.backward() with several micro-batches or a loss scale: call "
                "engine.backward(loss), which divides and scales the loss"
            )
        count, self._backward_count = self._backward_count, 0
        if not state.has_begun:
            return
        is_finite = True
        if self._can_skip:
            norm = torch.tensor(state.grad_norm())
            is_finite = bool(torch.isfinite(norm))
        self.optimizer.step()
        self.optimizer.zero_grad()
        if not is_finite:
            self.skipped_steps += 1
        else:
            self._was_applied = True
            if self.lr_scheduler is not None:
                try:
                    self.lr_scheduler.step(**(lr_kwargs or {}))
                except TypeError:  # a schedule that counts samples, as Megatron's
                    self.lr_scheduler.step(self.train_batch_size())
        self.global_steps += 1
        if self._is_managed:
            self.global_samples += self.train_batch_size()
        else:
            self.global_samples += self._micro_batch * self.dp_world_size * count

    @property
    def _has_scaler(self) -> bool:
        return bool(self.settings.scaler.kind != ScalerKind.NONE)

    @property
    def _can_skip(self) -> bool:
        return self._has_scaler or bool(self.settings.step.skip_nonfinite)

    def _report(self) -> None:
        """Print what steps_per_print and wall_clock_breakdown ask for."""
        times, self._times = self._times, dict.fromkeys(self._times, 0.0)
        if self.global_rank != 0:
            return
        if self.settings.shows_times:
            text = ", ".join(f"{name} {1000 * value:.1f}" for name, value in times.items())
            print(f"step={self.global_steps}, times in ms: {text}", flush=True)
        interval = self.settings.print_interval
        if interval and self.global_steps % interval == 0:
            print(
                f"step={self.global_steps}, skipped={self.skipped_steps}, lr={self.get_lr()}, "
                f"mom={self.get_mom()}",
                flush=True,
            )

    def was_step_applied(self) -> bool:
        """Whether the last step() changed the parameters."""
        return self._was_applied

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of a step that has begun. Collective if one has."""
        self._backward_count = 0
        self.zinf.discard()

    def get_global_grad_norm(self) -> float | None:
        """Return the norm of the last step's gradients before clipping, over all ranks.

        Waits for the commit of that step. None: no step was made.
        """
        stats = self.zinf.last_stats()
        return None if stats is None else float(stats.norm)

    # ---- what the file and the optimizer say ----

    @property
    def loss_scale(self) -> float:
        """The factor of the next loss; 1 without float16. Waits for the last step."""
        if not self._has_scaler:
            return 1.0
        self.zinf.last_stats()
        return self.zinf.session.loss_scale()

    @property
    def dynamic_loss_scale(self) -> bool:
        """Whether the loss scale moves."""
        return self.settings.scaler.kind not in (ScalerKind.NONE, ScalerKind.STATIC)

    def _of_groups(self, name: str) -> list[Any]:
        groups = [] if self.optimizer is None else self.optimizer.param_groups
        return [group.get(name, 0.0) for group in groups]

    def get_lr(self) -> list[Any]:
        """Return the learning rate of each parameter group."""
        return self._of_groups("lr")

    def get_mom(self) -> list[Any]:
        """Return the betas of each parameter group, or SGD's momentum."""
        is_sgd = getattr(self.optimizer, "kind", "") == "sgd"
        return self._of_groups("momentum" if is_sgd else "betas")

    def get_type(self) -> list[Any]:
        """Return the entry `type` of each parameter group."""
        return self._of_groups("type")

    def gradient_accumulation_steps(self) -> int:
        """Return the number of micro-batches of a step."""
        return self._accumulation

    def train_batch_size(self) -> int:
        """Return the number of samples of a step, over all ranks."""
        return self._micro_batch * self._accumulation * self.dp_world_size

    def train_micro_batch_size_per_gpu(self) -> int:
        """Return the number of samples of a rank's micro-batch."""
        return self._micro_batch

    def get_batch_info(self) -> tuple[int, int, int]:
        """Return samples of a step, samples of a micro-batch, and micro-batches of a step."""
        return self.train_batch_size(), self._micro_batch, self._accumulation

    def set_train_batch_size(self, train_batch_size: int) -> None:
        """Change the number of micro-batches of a step, between steps."""
        samples = self._micro_batch * self.dp_world_size
        if train_batch_size <= 0 or train_batch_size % samples:
            raise ValueError(
                f"train_batch_size is {train_batch_size}: it must be a multiple of {samples}, the "
                "samples of a micro-batch over all ranks"
            )
        self._between_steps("set_train_batch_size()")
        self._accumulation = train_batch_size // samples
        self.micro_steps = 0

    def set_train_micro_batch_size(self, micro_batch_size: int) -> None:
        """Change the number of samples of a micro-batch, between steps."""
        self._between_steps("set_train_micro_batch_size()")
        self._micro_batch = int(micro_batch_size)

    def _between_steps(self, what: str) -> None:
        if self.zinf.has_begun:
            raise InvalidArgument(f"{what} while a step is under way: call step() first")

    def gradient_clipping(self) -> float:
        """Return the norm to which gradients are clipped; 0: none."""
        return float(self.settings.step.max_norm)

    def zero_optimization(self) -> bool:
        """Whether the file asks for ZeRO."""
        return self.settings.zero_stage > 0

    def zero_optimization_stage(self) -> int:
        """Return the stage of ZeRO."""
        return self.settings.zero_stage

    def zero_optimization_partition_gradients(self) -> bool:
        """Whether gradients are divided over ranks."""
        return self.settings.zero_stage >= 2

    def zero_optimization_partition_weights(self) -> bool:
        """Whether parameters are divided over ranks."""
        return self.settings.zero_stage >= 3

    def fp16_enabled(self) -> bool:
        """Whether parameters are float16."""
        return self.zinf.dtype == torch.float16

    def bfloat16_enabled(self) -> bool:
        """Whether parameters are bfloat16."""
        return self.zinf.dtype == torch.bfloat16

    def steps_per_print(self) -> int | None:
        """Return after how many steps a line is printed. None: never."""
        return self.settings.print_interval or None

    def wall_clock_breakdown(self) -> bool:
        """Whether the times of each step are printed."""
        return self.settings.shows_times

    def dataloader_drop_last(self) -> bool:
        """Whether the loader leaves out a last micro-batch that is not full."""
        return bool(self.config.get("dataloader_drop_last", False))

    # ---- data ----

    def deepspeed_io(
        self,
        dataset: Any,
        batch_size: int | None = None,
        route: str = ROUTE_TRAIN,
        pin_memory: bool = False,
        data_sampler: Any = None,
        collate_fn: Any = None,
        num_local_io_workers: int | None = None,
    ) -> DeepSpeedDataLoader:
        """Return a loader of this rank's part of a dataset."""
        is_map = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        if not is_map and not isinstance(dataset, torch.utils.data.IterableDataset):
            raise InvalidArgument(
                f"training_data is a {type(dataset).__name__}: a torch.utils.data.Dataset is "
                "needed, no DataLoader"
            )
        return DeepSpeedDataLoader(
            dataset,
            self._micro_batch if batch_size is None else batch_size,
            rank=self.global_rank,
            world_size=self.dp_world_size,
            collate_fn=self.collate_fn if collate_fn is None else collate_fn,
            data_sampler=data_sampler,
            drop_last=self.dataloader_drop_last(),
            worker_count=num_local_io_workers or 0,
            is_shuffled=route == ROUTE_TRAIN,
        )

    # ---- values ----

    def state_dict(self, *args: Any, prefix: str = "", **kwargs: Any) -> Any:
        """Return a copy of the model's values, with "module." before each name."""
        found = self.module.state_dict(*args, **kwargs)
        for name in list(found):
            found[f"{prefix}module.{name}"] = found.pop(name)
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load what state_dict() returned. Collective."""
        start = "module."
        plain = {
            (name[len(start) :] if name.startswith(start) else name): value
            for name, value in state_dict.items()
        }
        return self.module.load_state_dict(plain, *args, **kwargs)

    def module_state_dict(
        self,
        destination: Any = None,
        prefix: str = "",
        keep_vars: bool = False,
        exclude_frozen_parameters: bool = False,
    ) -> Any:
        """Return a copy of the model's values, for which there must be memory."""
        found = self.module.state_dict(prefix=prefix, keep_vars=keep_vars)
        if exclude_frozen_parameters:
            for name in checkpoint.frozen_names(self.zinf):
                found.pop(prefix + name, None)
        return found

    def load_module_state_dict(
        self,
        state_dict: Mapping[str, Any] | None = None,
        strict: bool = True,
        custom_load_fn: Any = None,
        checkpoint: Mapping[str, Any] | None = None,
    ) -> None:
        """Load the model's values. Collective."""
        values = checkpoint["module"] if checkpoint is not None else state_dict
        if custom_load_fn is not None:
            custom_load_fn(src=values, dst=self.module)
        else:
            self.module.load_state_dict(values, strict=strict)

    # ---- checkpoints ----

    def save_checkpoint(
        self,
        save_dir: str,
        tag: str | None = None,
        client_state: Mapping[str, Any] | None = None,
        save_latest: bool = True,
        exclude_frozen_parameters: bool = False,
    ) -> bool:
        """Save weights as safetensors, and keep the state as a snapshot. Collective.

        tag: name of the directory below save_dir, equal in all ranks; None: "global_stepN".
        client_state: what load_checkpoint() returns to this rank. save_latest: write the tag into
            the file `latest`.
        """
        return checkpoint.save(
            self, save_dir, tag, client_state or {}, save_latest, exclude_frozen_parameters
        )

    def load_checkpoint(
        self,
        load_dir: str,
        tag: str | None = None,
        load_module_strict: bool = True,
        load_optimizer_states: bool = True,
        load_lr_scheduler_states: bool = True,
        load_module_only: bool = False,
        custom_load_fn: Any = None,
    ) -> tuple[str | None, Any]:
        """Load what save_checkpoint() saved, or a checkpoint of DeepSpeed. Collective.

        Return the directory and this rank's client_state; None, None without the file `latest`.
        """
        if custom_load_fn is not None:
            raise Unsupported("custom_load_fn: load the weights with engine.module.load_state_dict")
        return checkpoint.load(
            self,
            load_dir,
            tag,
            is_strict=load_module_strict,
            has_optimizer=load_optimizer_states and not load_module_only,
            has_schedule=load_lr_scheduler_states and not load_module_only,
            is_module_only=load_module_only,
        )

    def save_16bit_model(
        self,
        save_dir: str,
        save_filename: str = "pytorch_model.bin",
        exclude_frozen_parameters: bool = False,
    ) -> bool:
        """Save the model's weights in their type, in one file. Collective.

        A name that ends in ".safetensors" is written unit by unit. Any other name is written by
        torch.save(), which needs memory for a copy of the model.
        """
        return checkpoint.save_weights(
            self, os.path.join(save_dir, save_filename), exclude_frozen_parameters
        )

    save_fp16_model = save_16bit_model

    # ---- the end ----

    def destroy(self) -> None:
        """Leave the job. The model cannot be used then; its job ends with the script."""
        self.zinf.close()

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Refuse."""
        raise Unsupported("engine.compile(): zinf does not support torch.compile")

    def offload_states(self, *args: Any, **kwargs: Any) -> None:
        """Refuse."""
        raise Unsupported(
            "engine.offload_states(): state lies where the file says (offload_optimizer, "
            "offload_param), and no accelerator has it"
        )

    def reload_states(self, *args: Any, **kwargs: Any) -> None:
        """Refuse."""
        raise Unsupported("engine.reload_states(): there is no engine.offload_states()")
