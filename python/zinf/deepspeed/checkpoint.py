# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of the engine of zinf.initialize().

DIR/latest                    the tag of the newest checkpoint
DIR/TAG/model.safetensors     the weights, in shards where they are large
DIR/TAG/zinf.json             the snapshot with weights and optimizer state (zinf.reference)
DIR/TAG/engine_states.pt      counts, schedule, parameter groups
DIR/TAG/client_state_RANK.pt  the script's own state, of each rank

The engine also reads DeepSpeed's checkpoints: their weights in float32, optimizer state, counts and
schedule.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from .. import scratch
from .. import weights as files
from ..errors import InvalidArgument, Unsupported, ZinfError
from ..module import moments
from ..module.engine import Engine
from ..module.units import Slot
from ..reference import Reference, References, gone, keep
from ..weights import CheckpointError, Reader
from . import zero_checkpoint

if TYPE_CHECKING:
    from .engine import DeepSpeedEngine

__all__ = ["Saves", "frozen_names", "load", "save", "save_weights"]

_STATES = "engine_states.pt"
_HYPERPARAMETERS = ("lr", "betas", "eps", "weight_decay", "momentum")
_logger = logging.getLogger("zinf")


class Saves:
    """The checkpoints of each directory, so that the snapshot of a removed one is removed."""

    def __init__(self) -> None:
        self._known: dict[str, References] = {}

    def of(self, directory: str) -> References:
        """Return the references of a directory."""
        path = os.path.abspath(directory)
        found = self._known.get(path)
        if found is None:
            found = self._known[path] = References(path)
            found.note()
        return found


def frozen_names(engine: Engine) -> list[str]:
    """Return all names of parameters that are not trained."""
    return [
        name
        for unit in engine.units
        for slot in unit.slots
        if not slot.is_trained
        for name in slot.names
    ]


def _barrier(engine: Engine) -> None:
    if engine.session.world_size > 1:
        engine.session.barrier()


def _client_file(rank: int) -> str:
    return f"client_state_{rank}.pt"


def _write_whole(path: str, write: Any) -> None:
    """Write a file that appears whole or not at all. write: gets the temporary path."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        write(temporary)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _check_tag(tag: str) -> str:
    if not tag or tag in (".", "..") or os.sep in tag:
        raise InvalidArgument(f"the tag '{tag}' is no name of a directory")
    return tag


# ---- saving ----


def save(
    engine: DeepSpeedEngine,
    save_dir: str,
    tag: str | None,
    client_state: Mapping[str, Any],
    has_latest: bool,
    excludes_frozen: bool,
) -> bool:
    """Save a checkpoint. Collective. `latest` is written last."""
    if not save_dir:
        raise InvalidArgument(f"save_dir is {save_dir!r}: the name of a directory")
    if engine.zinf.has_begun:
        raise InvalidArgument(
            "save_checkpoint() while a step is under way: save after engine.step() at the end of a "
            "step"
        )
    tag = _check_tag(str(tag) if tag is not None else f"global_step{engine.global_steps}")
    directory = os.path.join(save_dir, tag)
    is_first = engine.global_rank == 0
    references = engine._saves.of(save_dir)
    os.makedirs(directory, exist_ok=True)
    if is_first:
        # A checkpoint of this name is incomplete from here on.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, _STATES))
    _barrier(engine.zinf)
    own = os.path.join(directory, _client_file(engine.global_rank))
    _write_whole(own, lambda path: torch.save(dict(client_state), path))
    if is_first:
        left = set(frozen_names(engine.zinf)) if excludes_frozen else set()
        _write_model(engine, directory, left)
    reference = keep(engine.zinf, directory)
    references.add(os.path.abspath(directory), reference)
    _barrier(engine.zinf)
    if is_first:
        _remove_other_ranks(directory, engine.world_size)
        states = _states(engine)
        _write_whole(os.path.join(directory, _STATES), lambda path: torch.save(states, path))
        if has_latest:
            _write_latest(save_dir, tag)
        references.remove_vanished(engine.zinf.session.config.socket_path)
    _barrier(engine.zinf)
    return True


def _states(engine: DeepSpeedEngine) -> dict[str, Any]:
    schedule, optimizer = engine.lr_scheduler, engine.optimizer
    return {
        "global_steps": engine.global_steps,
        "global_samples": engine.global_samples,
        "skipped_steps": engine.skipped_steps,
        "micro_steps": engine.micro_steps,
        "dp_world_size": engine.dp_world_size,
        "lr_scheduler": None if schedule is None else schedule.state_dict(),
        "optimizer": None if optimizer is None else optimizer.state_dict(),
        "config": engine.config,
    }


def _write_latest(save_dir: str, tag: str) -> None:
    def write(path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(tag)
            file.flush()
            os.fsync(file.fileno())

    _write_whole(os.path.join(save_dir, "latest"), write)


def _remove_other_ranks(directory: str, world_size: int) -> None:
    """Remove files of ranks that a former save with more ranks left."""
    rank = world_size
    while True:
        try:
            os.unlink(os.path.join(directory, _client_file(rank)))
        except FileNotFoundError:
            return
        rank += 1


def _named(engine: DeepSpeedEngine, left: set[str]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in engine.zinf.named_tensors():
        if name not in left:
            yield name, tensor


def _write_model(
    engine: DeepSpeedEngine,
    directory: str,
    left: set[str],
    stem: str = "model",
    **options: Any,
) -> None:
    module = engine.module
    if not left:
        files.save_model(module, directory, engine.zinf.named_tensors(), stem=stem, **options)
        return
    stored = files.tied_names(module)
    entries = [entry for entry in files.model_entries(module) if entry.name not in left]
    wanted = {entry.name for entry in entries}
    with files.Writer(directory, entries, stem=stem, **options) as writer:
        for name, tensor in _named(engine, left):
            if stored.get(name, name) in wanted:
                writer.write(stored.get(name, name), tensor)
        for name, tensor in files.named_tensors(module):
            if name in wanted and not isinstance(tensor, torch.nn.Parameter):
                writer.write(name, tensor)


def save_weights(engine: DeepSpeedEngine, path: str, excludes_frozen: bool) -> bool:
    """Save the weights in one file. Collective: the first rank writes."""
    suffix = ".safetensors"
    if engine.global_rank == 0:
        directory, name = os.path.split(path)
        os.makedirs(directory or ".", exist_ok=True)
        left = set(frozen_names(engine.zinf)) if excludes_frozen else set()
        if name.endswith(suffix):
            stem = name[: -len(suffix)]
            _write_model(engine, directory or ".", left, stem, max_shard_size=1 << 62)
        else:
            values = engine.module_state_dict(exclude_frozen_parameters=excludes_frozen)
            _write_whole(path, lambda temporary: torch.save(values, temporary))
    _barrier(engine.zinf)
    return True


# ---- loading ----


def load(
    engine: DeepSpeedEngine,
    load_dir: str,
    tag: str | None,
    *,
    is_strict: bool,
    has_optimizer: bool,
    has_schedule: bool,
    is_module_only: bool,
) -> tuple[str | None, Any]:
    """Load a checkpoint of zinf or of DeepSpeed. Collective."""
    if tag is None:
        tag = _latest(load_dir)
        if tag is None:
            return None, None
    directory = os.path.join(load_dir, _check_tag(str(tag)))
    if not os.path.isdir(directory):
        raise CheckpointError(f"{directory}: no such directory")
    has_optimizer = has_optimizer and engine.optimizer is not None
    if zero_checkpoint.is_one(directory):
        client, states = _load_zero(engine, directory, is_strict, has_optimizer)
    else:
        client, states = _load_own(engine, directory, is_strict, has_optimizer)
    if not is_module_only:
        _take_counts(engine, states)
        if has_optimizer and states.get("optimizer"):
            engine.optimizer.load_state_dict(states["optimizer"])
        schedule = states.get("lr_scheduler")
        if has_schedule and engine.lr_scheduler is not None and schedule is not None:
            engine.lr_scheduler.load_state_dict(schedule)
    return directory, client


def _latest(load_dir: str) -> str | None:
    path = os.path.join(load_dir, "latest")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        _logger.warning(
            "zinf: %s is not there: nothing is loaded. Give load_checkpoint() a tag, or begin "
            "without a checkpoint",
            path,
        )
        return None


def _take_counts(engine: DeepSpeedEngine, states: Mapping[str, Any]) -> None:
    engine.global_steps = int(states["global_steps"])
    default = engine.global_steps * engine.train_batch_size()
    engine.global_samples = int(states.get("global_samples", default))
    engine.skipped_steps = int(states.get("skipped_steps", 0))
    micro_steps = engine.global_steps * engine.gradient_accumulation_steps()
    engine.micro_steps = int(states.get("micro_steps", micro_steps))


def _load_file(path: str) -> Any:
    options: dict[str, Any] = {"map_location": "cpu"}
    if hasattr(torch.serialization, "add_safe_globals"):  # a script's state may have any objects
        options["weights_only"] = False
    try:
        return torch.load(path, **options)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file") from error
    except Exception as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from error


def _load_own(
    engine: DeepSpeedEngine, directory: str, is_strict: bool, has_optimizer: bool
) -> tuple[Any, dict[str, Any]]:
    """Load a checkpoint of zinf. Return this rank's client_state, and the states."""
    path = os.path.join(directory, _STATES)
    reference = Reference.read(directory)
    if reference is None or not os.path.exists(path):
        names = sorted(os.listdir(directory))
        shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        raise CheckpointError(
            f"{directory} is no complete checkpoint of zinf's engine or of DeepSpeed: it has "
            f"{shown or 'no files'}"
        )
    states = _load_file(path)
    if has_optimizer:
        try:
            scratch.restore(engine.zinf, reference.source)
        except ZinfError as error:
            raise gone(directory, reference, error) from error
        with Reader(directory) as reader:
            for name, tensor in files.named_tensors(engine.module):
                if not isinstance(tensor, torch.nn.Parameter) and name in reader:
                    reader.read_into(name, tensor)
    else:
        with Reader(directory) as reader:
            wanted = {entry.name for entry in files.model_entries(engine.module)}
            if is_strict or wanted.issubset(set(reader)):
                files.fill(engine.module, reader)
            else:
                raise Unsupported(
                    f"{directory} lacks tensors of the model: load_module_strict=False is not "
                    "supported for zinf's own checkpoints"
                )
    own = os.path.join(directory, _client_file(engine.global_rank))
    if not os.path.exists(own):  # fewer ranks saved it
        own = os.path.join(directory, _client_file(0))
    return _load_file(own), states


def _load_zero(
    engine: DeepSpeedEngine, directory: str, is_strict: bool, has_optimizer: bool
) -> tuple[Any, dict[str, Any]]:
    """Load DeepSpeed's checkpoint. Return its client state, and the states."""
    source = zero_checkpoint.ZeroCheckpoint(directory)
    moments_of = _plan_moments(engine, source) if has_optimizer else None
    zinf = engine.zinf
    shapes = {name: tuple(tensor.shape) for name, tensor in files.named_tensors(engine.module)}
    _compare(source, shapes, files.tied_names(engine.module), is_strict)
    for name, tensor in files.named_tensors(engine.module):
        if not isinstance(tensor, torch.nn.Parameter) and name in source.buffers:
            tensor.copy_(source.buffers[name])
    zinf.begin_writing()
    is_root = zinf.session.rank == 0
    for unit in zinf.units:
        found = [(slot, name) for slot in unit.slots for name in slot.names if name in source]
        if not found:
            continue
        if is_root:
            zinf.open_unit(unit)
        try:
            for slot, name in found if is_root else ():
                target = zinf.host_values(slot)
                if moments_of is not None and slot.is_trained:
                    moments.fill_from_master(target, source.tensor(name))
                else:
                    target.copy_(source.tensor(name))
        finally:
            zinf.close_unit(unit)
    zinf.commit()
    if moments_of is not None:
        _load_moments(engine, source, moments_of)
    return source.client_state, source.states


def _plan_moments(
    engine: DeepSpeedEngine, source: zero_checkpoint.ZeroCheckpoint
) -> dict[Slot, str]:
    """Return each trained parameter with its name in the checkpoint. Refuse what is missing."""
    optimizer: Any = engine.optimizer
    trained = [slot for unit in engine.zinf.units for slot in unit.slots if slot.is_trained]
    if source.stage == 0:
        state = source.stage0
        if not isinstance(state, Mapping) or "state" not in state or "param_groups" not in state:
            raise CheckpointError(
                f"{source.directory}: the optimizer's state of stage 0 in 16 bits is not read: "
                "load with load_optimizer_states=False, and the optimizer begins with zeros"
            )
        return dict.fromkeys(trained, "")
    source.check_moments(moments.names_of(optimizer.kind, optimizer.param_groups))
    found = {}
    for slot in trained:
        names = [name for name in slot.names if source.has_moments(name)]
        if not names:
            raise CheckpointError(
                f"{source.directory} has no optimizer state of parameter '{slot.name}'"
            )
        found[slot] = names[0]
    return found


def _load_moments(
    engine: DeepSpeedEngine, source: zero_checkpoint.ZeroCheckpoint, names: Mapping[Slot, str]
) -> None:
    """Write the optimizer state of DeepSpeed's checkpoint tensor by tensor. Collective."""
    optimizer: Any = engine.optimizer
    if source.stage == 0:
        optimizer.load_state_dict(source.stage0)
        return
    groups = source.param_groups

    def values(slot: Slot, kind: str) -> torch.Tensor:
        name = names[slot]
        return source.tensor(name) if kind == "master" else source.moment(name, kind)

    if moments.names_of(optimizer.kind, optimizer.param_groups):
        moments.write(
            engine.zinf,
            optimizer.kind,
            list(names),
            values,
            count=next(iter(source.counts), max(1, engine.zinf.session.update_count)),
            betas=moments.betas_of(optimizer.kind, groups[0]),
            has_masters=True,
        )
    for saved, group in zip(groups, optimizer.param_groups):
        group.update({n: v for n, v in saved.items() if n in _HYPERPARAMETERS and n in group})


def _compare(
    source: zero_checkpoint.ZeroCheckpoint,
    shapes: Mapping[str, tuple[int, ...]],
    stored: Mapping[str, str],
    is_strict: bool,
) -> None:
    """Refuse a checkpoint that does not fit the model."""
    for name, shape in shapes.items():
        if name in source and source.shape(name) != shape:
            raise CheckpointError(
                f"{source.directory}: '{name}' has the shape {source.shape(name)}, and the model "
                f"{shape}"
            )
    present = {stored[name] for name in shapes if name in source or name in source.buffers}
    missing = sorted({stored[name] for name in shapes} - present)
    if missing and is_strict:
        raise CheckpointError(
            f"{source.directory} lacks {len(missing)} tensors of the model, such as "
            f"'{missing[0]}': give load_module_strict=False to keep the model's values"
        )
