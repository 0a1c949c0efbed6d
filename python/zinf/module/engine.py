# SPDX-License-Identifier: Apache-2.0
"""Engine: the training state of a model in zinf, and its steps."""

from __future__ import annotations

import contextlib
import math
import os
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Callable

import torch
from torch import nn

from .. import admin
from ..errors import (
    Busy,
    Interrupted,
    InvalidArgument,
    PeerLost,
    StaleSession,
    Timeout,
    Unsupported,
    ZinfError,
)
from ..session import Session, StepOptions, StepStats
from ..width import width_of
from . import budgets, hooks, memory, parameter, state, units
from .device import Device, tensor_at
from .gradients import Gradients, watch_parameter
from .parameter import NoDispatch
from .units import Slot, Unit

__all__ = ["Engine", "engine_of"]

ParamGroups = list[dict[str, Any]]

_engines: weakref.WeakKeyDictionary[nn.Module, Engine] = weakref.WeakKeyDictionary()


def engine_of(model: nn.Module) -> Engine | None:
    """Return the engine of a prepared model, also of one inside a wrapper; None: not prepared."""
    engine = _engines.get(model)
    if engine is not None:
        return engine
    for item in model.parameters():
        if isinstance(item, parameter.Guarded):
            return item._zinf.unit.engine
    return None


class Engine:
    """The training state of a model in zinf. zinf.prepare() makes it.

    session: attached, without a model. step_options: makes the hyperparameters of a step from
    param_groups. group_of: parameter group by id of a parameter; a parameter without one is not
    trained. blocks: of find_blocks(). device: None: the CPU.
    """

    def __init__(
        self,
        session: Session,
        model: nn.Module,
        step_options: Callable[[ParamGroups], StepOptions],
        group_of: Mapping[int, int],
        *,
        dtype: torch.dtype,
        plans: list[units.Plan],
        snapshot: str | None = None,
        device: Device | None = None,
    ) -> None:
        self.session = session
        self.model = model
        self.device = Device() if device is None else device
        self.is_gpu = self.device.is_gpu
        self.dtype = dtype
        self.units: list[Unit] = []
        self.blob_source: Callable[[], bytes] | None = None  # asked at each step
        self.before_close: list[Callable[[], None]] = []
        self.keeps_state = True  # load_state_dict() and writable() keep the optimizer state
        self.recorder: Callable[[Slot, Any], None] | None = None  # load_state_dict() is under way
        self._step_options = step_options
        config = session.config
        is_trained = not config.is_forward_only
        accumulation = config.gradient_accumulation_steps
        if config.grad_reduction != "per_step":
            raise InvalidArgument("grad_reduction: the Python package supports per_step only")
        self.gradients = Gradients(self, accumulation, config.find_unused_parameters)
        self.begin_options = StepOptions(is_deferred=True)  # with which steps begin
        self._has_begun = False
        self.was_zeroed = False  # zero_grad() was called since the last step
        self._ticket = 0
        self._stats: StepStats | None = None
        self._in_backward = False
        self._generation = 0  # steps of this process
        self._max_norm = 0.0
        self._norm: float | None = None
        self.groups_source: Callable[[], ParamGroups] | None = None  # the optimizer's, for...
        self._is_early = config.update_early and is_trained  # ... steps that update early
        self._begun: StepOptions | None = None  # of the step that updates early
        self._next: dict[tuple[bool, int], Unit] = {}  # (backward, unit): the unit that came next
        self._last: Unit | None = None
        self._last_phase = False
        self._always_leaves = True
        self._writable: tuple[set[Unit], int] | None = None  # of writable(): units, root
        self._open: Unit | None = None  # the unit that it has open
        self._has_written = False
        self._keep_written = True
        self.device.open(session)
        for plan in plans:
            self._add_unit(plan, group_of, is_trained)
        if snapshot is not None:
            session.load(snapshot)
        session.materialize()
        session.on_close.append(self._end_reads)
        self._take_parameters()
        self.device.move_others(model, [slot.parameter for slot in self._slots()])
        self._watch_model()
        _engines[model] = self
        _living.add(self)

    # ---- the model ----

    def _add_unit(self, plan: units.Plan, group_of: Mapping[int, int], is_trained: bool) -> None:
        unit = Unit(self, plan)
        unit.index = self.session.add_unit(units.short_name(plan.name))
        for name, item in plan.parameters:
            group = group_of.get(id(item))
            slot = Slot(unit, name, item, is_trained and item.requires_grad and group is not None)
            slot.index = self.session.add_param(units.short_name(name), units.shape_for(item))
            if not slot.is_trained:
                self.session.freeze(slot.index)
            elif group:
                slot.group = group
                self.session.set_param_group(slot.index, group)
            unit.slots.append(slot)
            if slot.is_trained:
                unit.trained.append(slot)
        if unit.is_rest and self.session.has_gpu:
            self.session.gpu_apart(unit.index)
        self.units.append(unit)

    def _take_parameters(self) -> None:
        """Move the parameters into zinf, unit by unit: the first values, or those of the job."""
        session = self.session
        is_new = session.committed_step < 0
        for unit in self.units:
            views = [self._view(slot) for slot in unit.slots]
            if is_new:
                if session.rank == 0:
                    session.write_begin(unit.index)
                    with torch.no_grad():
                        for slot in unit.slots:
                            state.first_values(slot.parameter, self.host_values(slot))
                session.write_end(unit.index, 0)
            for slot, view in zip(unit.slots, views):
                state.move_parameter(slot.parameter, view)
                parameter.guard(slot.parameter, slot)
            unit.is_resident = False
        if is_new:
            session.commit()
        self._renew_hooks()
        counts = [sum(math.prod(slot.shape) for slot in unit.trained) for unit in self.units]
        for number, unit in enumerate(self.units):
            unit.has_room = budgets.leaves_room(
                counts, width_of(self.dtype), number, session.config.grad_budget_bytes
            )
            for slot in unit.trained:
                slot.grad = self.grad_view(slot)
        names: dict[int, Slot] = {id(slot.parameter): slot for slot in self._slots()}
        for module_name, module in self.model.named_modules():
            for name, item in module._parameters.items():
                slot_or_none = names.get(id(item))
                full = f"{module_name}.{name}" if module_name else name
                if slot_or_none is not None and full not in slot_or_none.names:
                    slot_or_none.names.append(full)

    def _view(self, slot: Slot) -> torch.Tensor:
        """Return a tensor over the memory that a parameter has now. Its memory begins open."""
        if slot.memory is not None:
            slot.memory.end()
        shape = slot.parameter.shape
        slot.address = self.device.param_address(self.session, slot.index)
        view = self.device.param(self.session, slot.index, shape, self.dtype)
        slot.byte_count = view.numel() * view.element_size()
        slot.end = slot.address + slot.byte_count
        slot.memory = memory.Memory(view, slot.name, is_on_host=not self.device.is_gpu)
        return view

    def grad_view(self, slot: Slot) -> torch.Tensor:
        """Return a tensor over the memory of this rank's gradient of a trained parameter."""
        name = self.session.config.grad_dtype
        dtype = getattr(torch, name) if name else self.dtype
        return self.device.grad(self.session, slot.index, slot.parameter.shape, dtype)

    def host_values(self, slot: Slot) -> torch.Tensor:
        """Return the values of a parameter whose unit is open for writing, in CPU memory."""
        address = self.session.param_address(slot.index)
        return tensor_at(address, slot.parameter.shape, self.dtype)

    def write_target(self, slot: Slot) -> torch.Tensor:
        """Return what to write to for a parameter whose unit is open for writing.

        Inside NoDispatch() and no_grad(). Graphs that saved the former values are refused.
        """
        if not self.device.is_gpu:
            return slot.parameter
        increment: Any = getattr(torch.autograd.graph, "increment_version", None)
        if increment is not None:  # torch 2
            increment(slot.parameter)
        return self.host_values(slot)

    def _watch_model(self) -> None:
        for unit in self.units:
            for slot in unit.slots:
                with NoDispatch():
                    needs_grad = slot.parameter.requires_grad
                if needs_grad and not self.session.config.is_forward_only:
                    watch_parameter(slot, self.gradients.arrived)
            self._always_leaves = hooks.add_forward_hooks(self, unit)
        if not any(unit.module is self.model for unit in self.units):
            hooks.add_model_hooks(self, self.model)
        state.add_hooks(self, self.model)
        self._places = state.places_of(self.model)

    def _slots(self) -> Iterator[Slot]:
        for unit in self.units:
            yield from unit.slots

    def units_backward(self) -> list[Unit]:
        """Return the units in the order in which they are handed over: the rest last."""
        blocks = [unit for unit in self.units if not unit.is_rest and not unit.is_outer]
        outer = [unit for unit in self.units if unit.is_outer]
        return blocks[::-1] + outer[::-1] + [unit for unit in self.units if unit.is_rest]

    # ---- units come and go ----

    def order(self, *, is_coming: bool = False) -> None:
        """Let what torch's current stream is given next come behind the former uses of units.

        On a GPU alone: callers look at is_gpu before. is_coming: of a unit that is held from now
        on.
        """
        if not self.session.is_closed:
            self.device.order(self.session, is_coming=is_coming)

    def bring(self, unit: Unit) -> None:
        """Have the parameters of a unit present. Unit.hold() calls it."""
        if unit.is_part:  # Ctrl-C ended hold_rows().
            self.take(unit)
        if not unit.is_writable and not unit.is_resident:  # It is where Ctrl-C ended hold().
            self.session.unshard(unit.index)
        unit.is_resident = True
        self._note(unit)

    def brings_rows(self, unit: Unit) -> bool:
        """Whether an embedding of the unit waits for the rows that it reads, and no others.

        The update of an embedding ends a step, and the next forward begins with it.
        """
        return (
            not self.device.is_gpu
            and self.session.has_rows
            and not self._in_backward
            and not unit.is_resident
            and not unit.stays_after_forward
        )

    @property
    def takes_parts(self) -> bool:
        """Whether uses of a parameter may bring their gradients one by one (direct.py).

        So does a recomputation in backward: it repeats the forward.
        """
        return self.gradients.takes_parts

    def bring_rows(self, slot: Slot, rows: torch.Tensor) -> None:
        """Have rows of a parameter present. rows: (n,) int64. Unit.hold_rows() calls it."""
        unit = slot.unit
        self.session.unshard_rows(unit.index, slot.index, rows.data_ptr(), rows.numel())
        unit.is_part = unit.is_resident = True
        self._note(unit)

    def take(self, unit: Unit) -> None:
        """Give the parameters of a unit back. Unit.release() calls it."""
        if unit.is_writable:
            return
        unit.is_resident = unit.is_part = False
        if not self.session.is_closed:
            if self.is_gpu:
                self.order()
            self.session.reshard(unit.index)

    def _note(self, unit: Unit) -> None:
        """Remember the order of units, and prefetch the one that came next before."""
        phase = self._in_backward
        last = self._last
        if last is not None and last is not unit:
            self._next[self._last_phase, last.index] = unit
        self._last, self._last_phase = unit, phase
        after = unit.following.get(phase)
        if after is None:
            learned = self._next.get((phase, unit.index))
            after = [] if learned is None else [learned]
        for following in after:
            if not following.holds:
                self.session.prefetch(following.index)

    def enter(self, unit: Unit, args: Any, *, is_lookup: bool = False) -> None:
        """Begin a forward pass of a unit's module.

        is_lookup: it is an embedding, which holds its rows itself.
        """
        if self._in_backward and not hooks.is_inside_backward():
            self._end_backward(is_broken=True)
        if unit.depth and not self._always_leaves and not self._in_backward and unit.is_rest:
            self._drop_forwards()  # a forward pass ended by an exception
        if is_lookup and not unit.holds and self.brings_rows(unit):
            unit.lookup_count += 1
            unit.call_count += 1
            return
        unit.hold()
        unit.depth += 1
        if not self._in_backward:
            unit.call_count += 1
        if torch.is_grad_enabled() and not unit.is_rest:
            tensor = hooks.first_differentiable(args)
            if tensor is not None:
                tensor.register_hook(self._after_backward(unit))

    def leave(self, unit: Unit, result: Any, *, is_lookup: bool = False) -> None:
        """End a forward pass of a unit's module, also one that an exception ended.

        is_lookup: of enter().
        """
        if unit.lookup_count:
            unit.lookup_count -= 1
            return
        if not unit.depth:
            return
        unit.depth -= 1
        if self._in_backward:
            unit.keep()
        elif not unit.depth:
            stays = unit.is_rest or unit.stays_after_forward
            if (stays or (self.is_gpu and not is_lookup)) and torch.is_grad_enabled():
                tensor = hooks.first_differentiable(result)
                if tensor is not None and tensor.grad_fn is not None:
                    if unit.stays_after_forward:
                        unit.keep()
                    if stays:
                        tensor.register_hook(unit.before_backward)
                    else:  # The next block, whose input it is, goes first.
                        hooks.call_before_node(tensor, unit.before_backward)
            if not unit.stays_after_forward:
                unit.unpin()
        unit.release()

    def begin_forward(self) -> None:
        """Begin a forward pass of a model that is no unit's module."""
        if not self._always_leaves and not self._in_backward:
            self._drop_forwards()  # a forward pass ended by an exception

    def check_result(self, result: Any) -> None:
        """Let backward of a model's result refuse a graph of an earlier step."""
        tensor = hooks.first_differentiable(result) if torch.is_grad_enabled() else None
        if tensor is not None and tensor.grad_fn is not None:
            tensor.register_hook(self._check_generation("the model", self._generation))

    def _drop_forwards(self) -> None:
        """Forget forward passes that ended without their hook."""
        for unit in self.units:
            unit.lookup_count = 0
            while unit.depth:
                unit.depth -= 1
                unit.release()

    # ---- backward ----

    def refuse_backward(self, _: Any) -> None:
        """Stand in for a hook before the first step."""

    def _renew_hooks(self) -> None:
        """Give each unit a hook of this generation: graphs of former steps are refused."""
        for unit in self.units:
            unit.before_backward = self._before_backward(unit, self._generation)
            unit.before_valueless = self._before_backward(unit, self._generation, keeps=False)

    def _before_backward(
        self, unit: Unit, generation: int, *, keeps: bool = True
    ) -> Callable[[Any], None]:
        check = self._check_generation(f"unit '{unit.name}'", generation)

        def hook(gradient: Any) -> None:
            check(gradient)
            if torch.is_grad_enabled():
                raise ZinfError(
                    "backward with create_graph=True: zinf does not keep parameters for a backward "
                    "through a backward. Compute such a term without create_graph, or on "
                    "copy.deepcopy(model)"
                )
            if not self._in_backward:
                self._in_backward = hooks.queue_at_end(self._end_backward)
            if keeps:
                if not unit.is_kept:
                    unit.keep()
                elif self.is_gpu:  # A branch of the unit may have another stream.
                    self.order()

        return hook

    def _check_generation(self, name: str, generation: int) -> Callable[[Any], None]:
        def hook(_: Any) -> None:
            if generation != self._generation:
                raise ZinfError(
                    f"backward through a graph of an earlier step: {name} has changed since its "
                    "forward. Run forward again, or call backward before optimizer.step()"
                )

        return hook

    def _after_backward(self, unit: Unit) -> Callable[[Any], None]:
        """Return a hook of the input's gradient: backward is through with the block by then."""

        def hook(_: Any) -> None:
            if self._in_backward:
                unit.end_backward()

        return hook

    def _end_backward(self, is_broken: bool = False) -> None:
        self._in_backward = False
        for unit in self.units:
            unit.end_backward()
        if not is_broken and self.gradients.has_any:
            self.gradients.end_round()

    # ---- steps ----

    def begin_step(self) -> None:
        """Begin a step with its first gradient. Waits for the commit of the former step."""
        if self._has_begun:
            return
        self._check_model()
        options = self.begin_options
        if self._is_early and self.groups_source is not None:
            options = self._step_options(self.groups_source())
            options.update_early = True
            self._begun = options
        self.session.step_begin(options)
        self._has_begun = True
        self._settle()

    @property
    def has_begun(self) -> bool:
        """Whether gradients of a step were taken that has not ended."""
        return self._has_begun

    def step(self, param_groups: ParamGroups, blob: bytes | None = None) -> None:
        """End a step with the hyperparameters of param_groups. Returns before it is committed.

        Without gradients nothing happens. blob: at most 65536 bytes that are committed with the
        step; None: what blob_source() returns. Collective.
        """
        if not self._has_begun:
            return
        self._leave_all()
        self.gradients.flush()
        options = self._step_options(param_groups)
        if self._max_norm > 0:
            options.max_norm = self._max_norm
        if blob is None:
            blob = self.blob_source() if self.blob_source is not None else b""
        if self._begun is None:
            self._ticket = self.session.step_with(options, blob)
        else:
            self._check_early(options)
            self._ticket = self.session.step(blob)
        self._stats = None
        self._end_step()
        self.gradients.forget_parts()
        self._generation += 1
        self._renew_hooks()

    def discard(self) -> None:
        """Forget the gradients of a step that has begun, also after an exception. Collective."""
        self.was_zeroed = True
        if self._has_begun or self._in_backward:
            self._leave_all()
        if self._has_begun:
            self.session.step_discard()
            self._end_step()
        elif self.gradients.has_any:  # Parts of a gradient that were kept apart.
            self._end_step()

    def _check_early(self, options: StepOptions) -> None:
        """Refuse hyperparameters that differ from those with which units were updated."""
        if self._begun is not None and self._begun.values() != options.values():
            raise InvalidArgument(
                "update_early: param_groups have changed between backward and optimizer.step(), "
                "and units were updated with the former values. Change them after step(), or set "
                "update_early=False"
            )

    def _end_step(self) -> None:
        self._has_begun = False
        self._begun = None
        self._max_norm, self._norm = 0.0, None
        self.gradients.reset()

    def _leave_all(self) -> None:
        """Give all units back, whatever held them."""
        self._in_backward = False
        self._drop_forwards()
        for unit in self.units:
            unit.unkeep()
            unit.unpin()
            if unit.is_resident and not unit.holds:  # As in bring().
                self.take(unit)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Only accumulate gradients in backward passes inside; the next one outside is the last."""
        self.gradients.has_no_sync = True
        self.gradients.no_sync_depth += 1
        try:
            yield
        finally:
            self.gradients.no_sync_depth -= 1

    def set_sync(self, is_last: bool) -> None:
        """Say whether the next backward passes are the last ones of a step, as no_sync() does."""
        if not is_last:
            self.gradients.has_no_sync = True
        self.gradients.no_sync_depth = 0 if is_last else 1

    def grad_norm(self) -> float:
        """Return the norm of all gradients of the step before clipping. Collective."""
        if not self._has_begun:
            return 0.0
        if self._begun is not None:
            raise InvalidArgument(
                "the norm of the gradients: with update_early units are updated during backward, "
                "before the norm is known. Set update_early=False to clip"
            )
        if self._norm is None:
            self._leave_all()
            self.gradients.flush()
            self._norm = self.session.grad_norm()
        return self._norm

    def current_norm(self) -> float:
        """Return the norm of the gradients after the clipping that was asked for. Collective."""
        norm = self.grad_norm()
        if self._max_norm > 0:
            norm *= min(1.0, self._max_norm / (norm + 1e-6))
        return norm

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Have the step clip the gradients to max_norm. Return their norm before. Collective."""
        if not max_norm > 0:
            raise InvalidArgument(f"clip_grad_norm_: max_norm is {max_norm}; it must be above 0")
        norm = self.current_norm()
        if self._has_begun and max_norm < torch.finfo(torch.float32).max:
            self._max_norm = min(max_norm, self._max_norm or max_norm)
        return torch.tensor(norm, dtype=torch.float32)

    def _settle(self) -> None:
        """Wait for the commit of the last step."""
        if self._ticket:
            ticket, self._ticket = self._ticket, 0
            try:
                self._stats = self.session.wait(ticket)
            except (KeyboardInterrupt, Interrupted, Timeout):
                self._ticket = ticket  # it may be waited for again
                raise

    def last_stats(self) -> StepStats | None:
        """Return the statistics of the last step, after its commit; None: no step was made."""
        self._settle()
        return self._stats

    @property
    def committed_step(self) -> int:
        """The newest committed step. Waits for the last one."""
        self._settle()
        return self.session.committed_step

    def blob(self) -> bytes:
        """Return the blob that this rank committed last."""
        self._settle()
        return self.session.blob()

    # ---- values ----

    def find_units(self, which: Any = None) -> list[Unit]:
        """Return units by a Unit, a name of a unit, a module or a parameter; None: all."""
        if which is None:
            return self.units
        if isinstance(which, Unit):
            return [which]
        if isinstance(which, parameter.Guarded):
            return [which._zinf.unit]
        if isinstance(which, nn.Module):
            items = {id(item) for item in which.parameters()}
            return [u for u in self.units if any(id(s.parameter) in items for s in u.slots)]
        found = [unit for unit in self.units if unit.name == which]
        if not found:
            raise InvalidArgument(f"the model has no unit '{which}'")
        return found

    @contextlib.contextmanager
    def gathered(self, which: Any = None) -> Iterator[None]:
        """Have units present inside the block. which: of find_units()."""
        held: list[Unit] = []
        try:
            for unit in self.find_units(which):
                unit.hold()
                held.append(unit)
            yield
        finally:
            for unit in held:
                unit.release()

    def named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield each parameter once with its name, unit by unit. Valid until the next one.

        The tensors are on the CPU.
        """
        for unit in self.units:
            unit.hold()
            try:
                for slot in unit.slots:
                    if self.device.is_gpu:
                        yield slot.name, parameter.plain(slot.parameter, is_on_host=True).data
                    else:
                        yield slot.name, slot.parameter.detach()
            finally:
                unit.release()

    @contextlib.contextmanager
    def writable(
        self,
        which: Any = None,
        root: int = 0,
        commit: bool = True,
        keep_state: bool | None = None,
    ) -> Iterator[None]:
        """Allow writes to parameters inside the block, on every rank; those of `root` count.

        Between steps only. One unit is open at a time: the first write to a parameter opens its
        unit, and ends the writing of the former one. Every rank writes the same units in the same
        order. The optimizer state of written units stays; keep_state=False makes it zero; None:
        `Engine.keeps_state` decides. The new values are committed at the end, unless commit is
        False: then call commit(). Collective.
        """
        if self.device.is_gpu:
            raise Unsupported(
                f"writable() of a model on {self.device.place}: zinf copies parameters to the GPU, "
                "and not back. Use load_state_dict(), or zinf.zero.GatheredParameters(parameters, "
                "modifier_rank=0)"
            )
        if self._writable is not None:
            raise Busy("writable() inside writable()")
        self.begin_writing()
        self._writable = (set(self.find_units(which)), root)
        self._keep_written = self.keeps_state if keep_state is None else keep_state
        self._has_written = False
        try:
            yield
        finally:
            try:
                self._close_written()
            finally:
                self._writable = None
            if self._has_written and commit:
                self.commit()

    def open_for_write(self, unit: Unit) -> bool:
        """Open a unit for a write inside writable(). False: not inside, or not of its units."""
        if self._writable is None or unit not in self._writable[0]:
            return False
        self._close_written()
        self.open_unit(unit)
        self._open, self._has_written = unit, True
        return True

    def _close_written(self) -> None:
        unit, self._open = self._open, None
        if unit is not None and self._writable is not None:
            self.close_unit(unit, self._writable[1], self._keep_written)

    def begin_writing(self) -> None:
        """Make ready for open_unit(). Raises Busy inside a step."""
        if self._has_begun:
            raise Busy(
                "parameters cannot be written while a step is under way: call optimizer.step() or "
                "optimizer.zero_grad() first"
            )
        self._leave_all()
        self._settle()
        if self.session.config.commit_interval > 1:
            self.commit()

    def open_unit(self, unit: Unit) -> None:
        """Begin to write a unit."""
        if unit.holds:
            raise Busy(f"unit '{unit.name}' is in use: gathered() or a forward pass is under way")
        self.session.write_begin(unit.index)
        unit.is_writable = unit.is_resident = True

    def close_unit(self, unit: Unit, root: int = 0, keep_state: bool | None = None) -> None:
        """End to write a unit. Ranks that did not open it call this as well."""
        unit.is_writable = unit.is_resident = False
        if self.keeps_state if keep_state is None else keep_state:
            self.session.write_keep(unit.index, root)
        else:
            self.session.write_end(unit.index, root)

    def commit(self, blob: bytes | None = None) -> None:
        """Commit written values and uncommitted steps; blob None keeps the present one."""
        self._settle()
        if blob is None:
            blob = self.session.blob()
        self.session.commit(blob)

    def snapshot(self, name: str | None = None, keep: int = 0) -> int:
        """Keep the state after the last step as a snapshot. Return its step. Collective."""
        self._settle()
        if self.session.config.commit_interval > 1:
            self.commit()
        if self.session.rank == 0:
            self.session.snapshot(name, keep)
        if self.session.world_size > 1:
            self.session.barrier()
        return self.session.committed_step

    def _check_model(self) -> None:
        problem = state.changed_place(self._places)
        if problem:
            raise InvalidArgument(
                f"the model was changed after zinf.prepare(): {problem}. Change it before prepare()"
            )

    # ---- the end ----

    def _end_reads(self) -> None:
        """Close the memory of all parameters, which leaves the process now."""
        for slot in self._slots():
            slot.unit.is_writable = slot.unit.is_resident = False
            if slot.memory is not None:
                slot.memory.end()

    def close(self, delete_job: bool = False) -> None:
        """Wait for the last step and leave the job. The model cannot be used then.

        The job stays, unless delete_job asks to delete it; every other rank has left then.
        """
        if self.session.is_closed:
            return
        is_early = self._begun is not None  # This step cannot be discarded, only be left.
        try:
            with contextlib.suppress(PeerLost, StaleSession):  # The group is over: nothing is held.
                self._leave_all()
                for call in self.before_close:
                    call()
            if delete_job and not is_early:
                self.discard()
            self._settle()
        finally:
            if delete_job and not is_early:
                self.session.destroy_job()
            else:
                self.session.close()
            if is_early:
                self._end_step()
        if delete_job and is_early:
            admin.delete_job(self.session.job, socket_path=self.session.config.socket_path)


_living: weakref.WeakSet[Engine] = weakref.WeakSet()


def living_engines() -> list[Engine]:
    """Return the engines of this process."""
    return list(_living)


def _after_fork() -> None:
    """Let a child ask the session for any use of a parameter: zinf's memory is not mapped there."""
    for engine in list(_living):
        engine._ticket = 0
        for unit in engine.units:
            unit.is_resident = unit.is_writable = unit.is_part = False
            unit.holds = 0
            unit.is_kept = unit.is_pinned = False


os.register_at_fork(after_in_child=_after_fork)
