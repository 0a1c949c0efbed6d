# SPDX-License-Identifier: Apache-2.0
"""Storage of torch.distributed.checkpoint (DCP) for models in zinf.

The files are those of torch's FileSystemWriter and FileSystemReader, from which the classes derive.
state_dict() has entries without memory: views of parameters that are away, and StateTensor for the
optimizer state. The writer brings the tensors of one unit at a time, and torch's planner divides
them over the ranks. The reader writes into zinf in place: rank 0 reads, all ranks take part.

Masters. FSDP2 with mixed precision keeps float32 parameters, computes in 16 bits, and saves the
float32 values under the names of the parameters. So does a state dict with an optimizer: of a
16-bit parameter it has the float32 master. The reader rounds it to the parameter, and then writes
it as the master. A file with 16-bit values gives the master that value.

dcp.async_save() saves a snapshot of the daemon (staging.py).
"""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import torch

from .errors import InvalidArgument, Unsupported
from .module import moments, parameter
from .module.engine import Engine, engine_of
from .module.parameter import Guarded, NoDispatch
from .module.units import Slot, Unit
from .optim import ZinfOptimizer, check_group
from .reference import keep
from .session import StateKind
from .staging import LazyTensor, StagedTensor, Staging
from .weights import CheckpointError, named_tensors

try:
    from torch.distributed._shard._utils import narrow_tensor_by_index
    from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
except (ImportError, ValueError) as error:  # torch 1.13 on Python 3.11 raises the second
    raise Unsupported(
        f"torch {torch.__version__} has no torch.distributed.checkpoint: zinf.checkpoint.Writer "
        "and Reader need it. save_model() and load_model() work with this version"
    ) from error

__all__ = ["Reader", "StateTensor", "Writer", "state_dict"]

_MASTER = "master"  # the name of masters among kinds of state


# ---- the entries of a state dict ----


class _OptimizerState:
    """The optimizer's part of a state dict, and what a load left in it."""

    def __init__(self, engine: Engine, optimizer: ZinfOptimizer, names: dict[int, str]) -> None:
        self.engine, self.optimizer = engine, optimizer
        self.steps: dict[int, torch.Tensor] = {}  # by index of the slot
        self.slots: list[Slot] = []
        self.state: dict[str, dict[str, torch.Tensor]] = {}
        self.groups = [
            {
                **_defaults(optimizer.kind),
                **{name: _plain(value) for name, value in group.items() if name != "params"},
                "params": [names[id(item)] for item in group["params"]],
            }
            for group in optimizer.param_groups
        ]
        kinds = moments.names_of(optimizer.kind, optimizer.param_groups)
        for group in optimizer.param_groups:
            for item in group["params"]:
                slot = moments.slot_of(item)
                if slot is not None and (kinds or moments.is_counted(optimizer.kind)):
                    self.slots.append(slot)
                    self.state[names[id(item)]] = self._entry(slot, kinds)

    def _entry(self, slot: Slot, kinds: Iterable[str]) -> dict[str, torch.Tensor]:
        entry: dict[str, torch.Tensor] = {}
        if moments.is_counted(self.optimizer.kind):
            count = max(0, self.engine.session.update_count)
            entry["step"] = self.steps[slot.index] = torch.tensor(float(count))
        for name in kinds:
            kind = moments.kind_of(self.optimizer.kind, name)
            entry[name] = StateTensor.of(slot, kind, name, self)
        return entry

    def count(self) -> int | None:
        """Return the number of steps that a load left. None: the optimizer counts none."""
        if not self.steps:
            return None
        counts = {int(self.steps[slot.index]): slot.name for slot in self.slots}
        return moments.one_count(counts)


class StateTensor(LazyTensor):
    """One kind of a parameter's optimizer state in zinf: float32."""

    _zinf_slot: Slot
    _zinf_kind: StateKind
    _zinf_name: str
    _zinf_state: _OptimizerState | None

    @classmethod
    def of(
        cls, slot: Slot, kind: StateKind, name: str, state: _OptimizerState | None = None
    ) -> StateTensor:
        """Return the entry of a parameter.

        name: torch's, such as "exp_avg". state: what has the entry; None: it is a master.
        """
        made: StateTensor = cls.of_shape(slot.shape, torch.float32)
        made._zinf_slot, made._zinf_kind = slot, kind
        made._zinf_name, made._zinf_state = name, state
        return made

    def read(self) -> torch.Tensor:
        """Return a copy of the values. Not collective."""
        slot = self._zinf_slot
        return moments.read_kind(slot.unit.engine, slot, self._zinf_kind)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


def _defaults(kind: str) -> dict[str, Any]:
    """Return the names and defaults of param_groups of torch's optimizer, which torch loads."""
    kinds: dict[str, Any] = {
        "adamw": torch.optim.AdamW,
        "adam": torch.optim.Adam,
        "sgd": torch.optim.SGD,
        "adagrad": torch.optim.Adagrad,
    }
    found = kinds.get(kind)
    return {} if found is None else dict(found([torch.zeros(1)], lr=0.1).defaults)


def _unwrapped(optimizer: Any) -> ZinfOptimizer:
    """Return zinf's optimizer, also of one inside Accelerate's."""
    inner = optimizer
    while not isinstance(inner, ZinfOptimizer) and hasattr(inner, "optimizer"):
        inner = inner.optimizer
    if not isinstance(inner, ZinfOptimizer) or inner.engine is None:
        raise InvalidArgument(
            f"{type(optimizer).__name__} is not prepared: give the optimizer that zinf.prepare() "
            "returned"
        )
    return inner


def state_dict(model: torch.nn.Module, optimizer: Any = None) -> dict[str, Any]:
    """Return the state of a model in zinf for dcp.save() and dcp.load(), without its values.

    "model": each parameter and persistent buffer, by the names of model.state_dict(). Parameters
    are views of zinf's memory, valid until the engine ends. With an optimizer, trained parameters
    in 16 bits are their float32 masters.
    "optim": of an optimizer that zinf.prepare() returned; in the layout of torch's
    get_optimizer_state_dict(): "state" by name of the parameter (float32, and "step"), and
    "param_groups".

    The entries refer to what zinf has when they are saved. Not collective. Raises InvalidArgument
    for a model or an optimizer that is not prepared.
    """
    engine = engine_of(model)
    if engine is None:
        raise InvalidArgument(
            "the model is not prepared: give the one that zinf.prepare() returned"
        )
    has_masters = optimizer is not None and engine.dtype != torch.float32
    values = {name: _entry_of(tensor, has_masters) for name, tensor in named_tensors(model)}
    result: dict[str, Any] = {"model": values}
    if optimizer is not None:
        inner = _unwrapped(optimizer)
        if inner.engine is not engine:
            raise InvalidArgument("the optimizer belongs to another model")
        engine.last_stats()  # waits for the commit of the last step
        names = {id(item): name for name, item in model.named_parameters()}
        made = _OptimizerState(engine, inner, names)
        result["optim"] = {"state": made.state, "param_groups": made.groups}
    return result


def _entry_of(tensor: Any, has_masters: bool) -> Any:
    """Return the entry of a parameter or buffer."""
    slot: Slot | None = tensor._zinf if isinstance(tensor, Guarded) else None
    if slot is None:
        return tensor
    if has_masters and slot.is_trained:
        return StateTensor.of(slot, StateKind.MASTER, _MASTER)
    return tensor.detach()


def _slot_of(value: Any) -> Slot | None:
    """Return the parameter to which an entry belongs. None: it is an ordinary value."""
    if isinstance(value, StateTensor):
        return value._zinf_slot
    if isinstance(value, Guarded):
        return value._zinf
    return None


def _slots_in(state_dict: Any) -> Iterator[Slot]:
    """Yield the parameters to which entries of a state dict belong."""
    for value in _leaves(state_dict):
        slot = _slot_of(value)
        if slot is not None:
            yield slot


def _lookup(planner: Any, name: str) -> Callable[[Any], Any]:
    found: Callable[[Any], Any] | None = getattr(planner, name, None)
    if found is None:
        raise Unsupported(
            f"{type(planner).__name__} has no {name}(): give a planner that derives from "
            "DefaultSavePlanner or DefaultLoadPlanner"
        )
    return found


class _Planner:
    """A planner whose tensors come from a function; all else is the given planner's."""

    def __init__(self, planner: Any, **replaced: Callable[..., Any]) -> None:
        self._planner = planner
        vars(self).update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._planner, name)


def _done(value: Any) -> Any:
    future: Any = torch.futures.Future()
    future.set_result(value)
    return future


def _idle(engine: Engine, what: str) -> None:
    if engine.has_begun:
        raise InvalidArgument(
            f"{what} while a step is under way: call optimizer.step() or optimizer.zero_grad() "
            "first"
        )
    engine.last_stats()  # waits for the commit of the last step


# ---- saving ----


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the entries of a state dict, also of dicts and lists inside."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _staged(value: Any, staging: Staging) -> Any:
    """Return a part of a state dict that stays as it is, with StagedTensor for what is zinf's."""
    if isinstance(value, dict):
        return {name: _staged(item, staging) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_staged(item, staging) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, StateTensor):
        return StagedTensor.of(staging, value._zinf_slot, value._zinf_kind)
    if isinstance(value, Guarded):
        return _staged_parameter(value, staging)
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    return copy.deepcopy(value)


def _staged_parameter(value: Any, staging: Staging) -> Any:
    """Return the entry of a parameter; of a view of a part of it a copy."""
    slot: Slot = value._zinf
    is_whole = value.shape == slot.shape and value.is_contiguous()
    if is_whole and value.data_ptr() == slot.address:
        return StagedTensor.of(staging, slot, None)
    return parameter.plain(value, is_on_host=True)


class Writer(FileSystemWriter):
    """FileSystemWriter that holds one unit of a model in zinf at a time.

    A rank saves the tensors of each unit in a file of their own. dcp.async_save() returns when the
    daemon has a snapshot. The files of the checkpoint are written from it while training goes on;
    `path` has the state twice meanwhile.

    path: of the directory.
    snapshot_of: a model in zinf. The daemon keeps its state as a snapshot, and the directory names
        the snapshot in zinf.json: snapshot_in() returns the name. The state dict then needs no
        optimizer, and a job that begins with the snapshot continues with the same bits. The
        snapshot stays until zinf.admin.delete_snapshot(), or until another save into the directory.
    options: of FileSystemWriter.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        snapshot_of: torch.nn.Module | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, **options)
        self._is_coordinator = True
        self._next: Staging | None = None  # of the save that begins
        self._staging: Staging | None = None  # of the present save; None: it is not asynchronous
        self._snapshot_of: Engine | None = None
        if snapshot_of is not None:
            self._snapshot_of = engine_of(snapshot_of)
            if self._snapshot_of is None:
                raise InvalidArgument("snapshot_of: the model is not prepared")

    def stage(self, state_dict: Any) -> Any:
        """Begin dcp.async_save(): keep a snapshot, and return entries that read it. Collective.

        Raises InvalidArgument in a step, Unsupported for entries of several models, and NoSpace.
        """
        engines = {id(slot.unit.engine): slot.unit.engine for slot in _slots_in(state_dict)}
        if self._snapshot_of is not None:
            engines[id(self._snapshot_of)] = self._snapshot_of
        if not engines:
            return super().stage(state_dict)
        if len(engines) > 1:
            raise Unsupported(
                f"dcp.async_save() of {len(engines)} models in zinf: save each of them into a "
                "directory of its own, or use dcp.save()"
            )
        (engine,) = engines.values()
        _idle(engine, "a checkpoint")
        self._next = Staging(engine)
        return _staged(state_dict, self._next)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Begin a save, in torch's thread where it is asynchronous."""
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)
        self._is_coordinator = is_coordinator
        self._staging, self._next = self._next, None
        if self._staging is not None and not kwargs.get("use_collectives", True):
            raise Unsupported(
                "dcp.async_save(use_collectives=False) of state in zinf: ranks wait for the files "
                "of the snapshot by collectives. Leave use_collectives out"
            )

    def prepare_local_plan(self, plan: Any) -> Any:
        """Make the directory. The plans of all ranks come together after this."""
        plan = super().prepare_local_plan(plan)
        if self._staging is not None:
            self._staging.place(os.fspath(self.path))
            if self._is_coordinator and self._staging.has_entries:
                self._staging.export()
        return plan

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Write this rank's part. Collective with snapshot_of. Raises InvalidArgument in a step."""
        lookup = _lookup(planner, "lookup_object")
        groups: dict[Any, list[Any]] = {}  # by engine, unit and kind; other values by None
        units: dict[Any, Unit] = {}
        for item in plan.items:
            value = lookup(item.index)
            slot = _slot_of(value)
            key = None
            if isinstance(value, StagedTensor):
                key = (0, value._zinf_unit, value._zinf_file)
            elif slot is not None:
                key = (id(slot.unit.engine), slot.unit.index, getattr(value, "_zinf_name", ""))
                if not isinstance(value, StateTensor):
                    units[key] = slot.unit
                if key not in groups:
                    _idle(slot.unit.engine, "a checkpoint")
            groups.setdefault(key, []).append(item)
        results: list[Any] = []
        try:
            for number, key in enumerate(sorted(groups, key=lambda key: key or (0, -1, ""))):
                prefix = f"{plan.storage_data.prefix}{number}_"
                part = dataclasses.replace(
                    plan,
                    items=groups[key],
                    storage_data=dataclasses.replace(plan.storage_data, prefix=prefix),
                )
                results += self._write_part(part, self._values(planner, lookup), units.get(key))
        finally:
            if self._staging is not None:
                self._staging.close()
        if self._snapshot_of is not None and self._staging is None:
            keep(self._snapshot_of, os.fspath(self.path))
        return _done(results)

    def _write_part(self, plan: Any, planner: Any, unit: Unit | None) -> Any:
        """Write a file. unit: the file has its parameters; None: the file has no parameters."""
        if unit is not None:
            unit.hold()
        try:
            return super().write_data(plan, planner).wait()
        finally:
            if unit is not None:
                unit.release()

    def finish(self, metadata: Any, results: Any) -> None:
        """End a save, on the coordinator."""
        super().finish(metadata, results)
        staging, self._staging = self._staging, None
        if staging is not None:
            staging.finish(os.fspath(self.path), is_kept=self._snapshot_of is not None)

    @staticmethod
    def _values(planner: Any, lookup: Callable[[Any], Any]) -> Any:
        def resolve(item: Any) -> Any:
            value = lookup(item.index)
            if isinstance(value, LazyTensor):
                return value.read()
            if isinstance(value, Guarded):
                if value._zinf.unit.engine.device.is_gpu:
                    return parameter.plain(value, is_on_host=True)
                return parameter._unguarded(value)
            return planner.resolve_data(item)

        return _Planner(planner, resolve_data=resolve)


# ---- loading ----


class Reader(FileSystemReader):
    """FileSystemReader that loads into a model and an optimizer in zinf, in place.

    All ranks load the same entries; rank 0 reads those of zinf. Values, masters, optimizer state,
    its count of steps and param_groups are in force when dcp.load() returns, and committed.
    Parameters that are loaded without "optim" keep their optimizer state, and their master becomes
    the loaded value.

    After a damaged file every rank raises, and the model may have a part of the values.
    """

    def read_data(self, plan: Any, planner: Any) -> Any:
        """Read this rank's part. Collective where entries are zinf's."""
        lookup = _lookup(planner, "lookup_tensor")
        others: list[Any] = []
        values: dict[int, _Load] = {}
        for item in plan.items:
            # lookup_tensor() knows no entry of bytes
            value = None if item.type.name == "BYTE_IO" else lookup(item.dest_index)
            slot = _slot_of(value)
            if slot is None:
                others.append(item)
                continue
            engine = slot.unit.engine
            load = values.setdefault(id(engine), _Load(self, engine, plan, planner))
            load.add(item, value, slot)
        super().read_data(dataclasses.replace(plan, items=others), planner).wait()
        for load in values.values():
            load.run()
        return _done(None)

    def _read_part(self, plan: Any, items: list[Any], planner: Any) -> None:
        super().read_data(dataclasses.replace(plan, items=items), planner).wait()


class _Load:
    """What is read into one engine."""

    def __init__(self, reader: Reader, engine: Engine, plan: Any, planner: Any) -> None:
        self._reader, self._engine = reader, engine
        self._plan, self._planner = plan, planner
        self._units: dict[int, list[Any]] = {}  # by index of the unit
        self._masters: dict[int, dict[Slot, list[Any]]] = {}  # likewise
        self._states: dict[tuple[int, str], list[Any]] = {}
        self._source: _OptimizerState | None = None
        self._error: Exception | None = None  # of rank 0, raised when the other ranks are done

    def add(self, item: Any, value: Any, slot: Slot) -> None:
        if isinstance(value, StateTensor) and value._zinf_state is None:
            self._masters.setdefault(slot.unit.index, {}).setdefault(slot, []).append(item)
        elif isinstance(value, StateTensor):
            self._source = value._zinf_state
            self._states.setdefault((slot.index, value._zinf_name), []).append(item)
        else:
            self._units.setdefault(slot.unit.index, []).append(item)

    def run(self) -> None:
        """Read and write. Collective."""
        engine, source = self._engine, self._source
        _idle(engine, "loading a checkpoint")
        count = None
        if source is not None:
            count = source.count()
            for number, group in enumerate(source.groups):
                check_group(source.optimizer.kind, group, number)
        if self._units or self._masters:
            engine.begin_writing()
            for unit in engine.units:
                if unit.index in self._units or unit.index in self._masters:
                    self._write_unit(unit)
            engine.commit()
        if self._masters:
            self._write_masters()
        if source is not None:
            self._write_state(source, count)
        if self._error is not None:
            raise CheckpointError(
                f"{self._reader.path}: cannot be read, and the model has a part of its values: "
                f"{self._error}"
            ) from self._error

    def _write_unit(self, unit: Unit) -> None:
        engine = self._engine
        is_root = engine.session.rank == 0
        if is_root:
            engine.open_unit(unit)
        try:
            if is_root and self._error is None:
                planner = self._planner
                if engine.device.is_gpu:
                    planner = _Planner(planner, resolve_tensor=self._target_of)
                self._reader._read_part(self._plan, self._units.get(unit.index, []), planner)
                for slot, items in self._masters.get(unit.index, {}).items():
                    master = self._read(slot, items)
                    with NoDispatch(), torch.no_grad():
                        moments.fill_from_master(engine.write_target(slot), master)
        except Exception as error:
            self._error = error
        finally:
            engine.close_unit(unit)

    def _target_of(self, item: Any) -> torch.Tensor:
        """Return the CPU memory of a part of a parameter whose unit is open for writing."""
        slot = _slot_of(_lookup(self._planner, "lookup_tensor")(item.dest_index))
        assert slot is not None
        values = self._engine.host_values(slot)
        return narrow_tensor_by_index(values, item.dest_offsets, item.lengths)

    def _write_masters(self) -> None:
        """Write the masters, after _write_unit() wrote the parameters. Collective.

        After an error the present masters are written again, so that all ranks end.
        """
        engine = self._engine
        engine.begin_writing()
        for unit in engine.units:
            for slot, items in self._masters.get(unit.index, {}).items():
                values = None
                if engine.session.rank == 0:
                    try:
                        values = self._read(slot, items) if self._error is None else None
                    except Exception as error:
                        self._error = error
                    if values is None:
                        values = moments.read_kind(engine, slot, StateKind.MASTER)
                moments.write_kind(engine, slot, StateKind.MASTER, values)
        engine.commit()

    def _write_state(self, source: _OptimizerState, count: int | None) -> None:
        groups = source.groups
        optimizer = source.optimizer
        moments.write(
            self._engine,
            optimizer.kind,
            [slot for slot in source.slots if self._has_all(source, slot)],
            self._state_of,
            count=max(1, self._engine.session.update_count) if count is None else count,
            betas=moments.betas_of(optimizer.kind, groups[0]),
        )
        for saved, group in zip(groups, optimizer.param_groups):
            group.update({name: value for name, value in saved.items() if name != "params"})

    def _has_all(self, source: _OptimizerState, slot: Slot) -> bool:
        names = moments.names_of(source.optimizer.kind, source.optimizer.param_groups)
        return all((slot.index, name) in self._states for name in names)

    def _state_of(self, slot: Slot, name: str) -> torch.Tensor:
        """Read one kind of a parameter's state. Zeros after an error, so that all ranks end."""
        if self._error is None:
            try:
                return self._read(slot, self._states[slot.index, name])
            except Exception as error:
                self._error = error
        return torch.zeros(tuple(slot.shape), dtype=torch.float32)

    def _read(self, slot: Slot, items: list[Any]) -> torch.Tensor:
        """Read what the files have of a parameter, or of its state, as float32."""
        values = torch.zeros(tuple(slot.shape), dtype=torch.float32)

        def resolve(item: Any) -> torch.Tensor:
            return narrow_tensor_by_index(values, item.dest_offsets, item.lengths)

        def commit(item: Any, tensor: torch.Tensor) -> None:
            """Do nothing: `values` has what was read."""

        planner = _Planner(self._planner, resolve_tensor=resolve, commit_tensor=commit)
        self._reader._read_part(self._plan, items, planner)
        return values
