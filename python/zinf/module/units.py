# SPDX-License-Identifier: Apache-2.0
"""Units of a model: one for each block, one for each large module outside, and one for the rest.

A block is an element of the largest ModuleList (or Sequential) whose elements have one class. All
modules of this class are blocks, unless they lie in another block.

An outer module is an outermost module without a block inside, such as an embedding or a head. An
outer module with at least half as many elements as the largest block becomes a unit. Such a unit
is unsharded and resharded as a block is. Outer modules that share a parameter (tied weights) are
one unit, which has the name of the first module and is unsharded for each of them.

The rest is unsharded during the whole forward and backward. It has the parameters of small outer
modules, of modules around blocks, and those that a block shares with another module. Where the
caller lists modules (fully_shard()), the root has all other parameters.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Callable, Union

import torch
from torch import nn

from ..errors import InvalidArgument
from ..libzinf.structures import DIMS_MAX, PARAM_NAME_BYTES

if TYPE_CHECKING:
    from .engine import Engine
    from .memory import Memory

__all__ = ["Plan", "Slot", "Unit", "find_blocks", "plan_units", "short_name"]

Blocks = Union[None, str, type, Sequence[Union[str, type]], Sequence[nn.Module]]

REST = "<rest>"
_OUTER_PART = 2  # an outer unit has at least one of these parts of the largest block
_NAMES_MAX = 3  # of each type, in an error
_HEAD, _TAIL = 36, 42  # bytes of a long name that its short form keeps


class Slot:
    """A parameter of the model in zinf."""

    __slots__ = (
        "address",
        "beside",
        "byte_count",
        "end",
        "final_round",
        "grad",
        "group",
        "has_parts",
        "hook",
        "index",
        "is_dense",
        "is_repeated",
        "is_trained",
        "memory",
        "name",
        "names",
        "node",
        "parameter",
        "part_count",
        "round",
        "rounds",
        "shape",
        "unit",
    )

    def __init__(self, unit: Unit, name: str, parameter: nn.Parameter, is_trained: bool) -> None:
        self.unit = unit
        self.name = name
        self.names = [name]  # all names: more than one for tied parameters
        self.parameter = parameter
        self.shape = parameter.shape
        self.is_trained = is_trained
        self.index = -1  # of the parameter in the job
        self.group = 0  # of the optimizer
        self.address = self.end = self.byte_count = 0
        self.memory: Memory | None = None  # what tensors that share the parameter's memory see
        self.grad: torch.Tensor | None = None  # this rank's gradient in zinf's memory
        self.node: Any = None  # keeps the AccumulateGrad node, with its hook
        self.hook: Any = None
        self.round = -1  # the newest backward pass with a gradient
        self.rounds = 0  # backward passes of this step with a gradient
        self.final_round = -1
        self.has_parts = False  # a graph of this step brings its gradient in parts (direct.py)
        self.part_count = 0  # uses whose gradient is a part that has not come
        self.is_repeated = False  # this backward pass goes through a retained graph again
        self.is_dense = False  # autograd recorded a use, and has not brought its gradient
        self.beside: torch.Tensor | None = None  # parts that are not in zinf's buffer yet

    @property
    def has_more(self) -> bool:
        """Whether more of the gradient may come in this backward pass."""
        return self.part_count > 0 or self.is_dense or self.is_repeated


class Unit:
    """Parameters that zinf brings and takes away together."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self.engine = engine
        self.name = plan.name
        self.module = plan.module
        self.modules = plan.modules
        self.is_rest = plan.is_rest
        self.is_outer = plan.is_outer
        self.index = -1  # of the unit in the job
        self.slots: list[Slot] = []
        self.trained: list[Slot] = []
        # ---- parameters ----
        self.holds = 0  # uses of the parameters; zinf knows of the first and the last
        self._is_resident = False
        self.is_writable = False
        self.is_part = False  # only rows of a parameter are present
        self.depth = 0  # forward passes of the module that are under way
        self.lookup_count = 0  # the same of embeddings, which do not hold the unit
        self.is_kept = False  # held by the backward pass, or for it
        self.is_pinned = False  # held by unshard() of FSDPModule
        self.stays_after_forward = plan.is_rest  # until the backward pass
        self.stays_after_backward = False  # until the step
        self.following: dict[bool, list[Unit]] = {}  # by phase (backward): what to prefetch
        self.call_count = 0  # forward passes since the last backward
        # Hooks of results of operations on the parameters: whose backward needs their values, and
        # does not.
        self.before_backward: Callable[[Any], None] = engine.refuse_backward
        self.before_valueless: Callable[[Any], None] = engine.refuse_backward
        # ---- gradients of this step ----
        self.is_acquired = False
        self.is_handed = False
        self.has_parts = False  # direct.py brings gradients of uses
        self.has_room = True  # other units have memory for gradients beside this one
        self.round_count = 0  # parameters with a gradient in this backward pass
        self.full_count = 0  # parameters with the gradients of all micro-batches
        self.final_count = 0  # parameters with one in the last micro-batch, after no_sync()

    @property
    def is_resident(self) -> bool:
        """Whether the values are present. Setting it opens or closes the memory for torch."""
        return self._is_resident

    @is_resident.setter
    def is_resident(self, is_resident: bool) -> None:
        self._is_resident = is_resident
        for slot in self.slots:
            if slot.memory is not None:
                (slot.memory.open if is_resident else slot.memory.close)()

    def hold(self) -> None:
        """Have the parameters present until release(). Calls nest."""
        if self.engine.is_gpu:
            self.engine.order(is_coming=True)
        if not self.holds:
            self.engine.bring(self)
        self.holds += 1

    def hold_rows(self, slot: Slot, rows: torch.Tensor) -> bool:
        """Have only the rows of a lookup present until release(). False: nothing was held.

        rows: of int64 or int32, any shape. Where they are no rows, torch says so.
        """
        if self.holds or not self.engine.brings_rows(self):
            return False
        flat = rows.detach().reshape(-1).to(torch.int64).contiguous()
        if int(flat.min()) < 0 or int(flat.max()) >= slot.shape[0]:
            return False
        self.engine.bring_rows(slot, flat)
        self.holds = 1
        return True

    def release(self) -> None:
        """End a use of the parameters, unless a restore has ended all."""
        if not self.holds:
            return
        self.holds -= 1
        if not self.holds:
            self.engine.take(self)

    def keep(self) -> None:
        """Hold the parameters for backward."""
        if not self.is_kept:
            self.hold()
            self.is_kept = True

    def unkeep(self) -> None:
        """End keep()."""
        if self.is_kept:
            self.is_kept = False
            self.release()

    def pin(self) -> None:
        """Hold the parameters until unpin()."""
        if not self.is_pinned:
            self.hold()
            self.is_pinned = True

    def unpin(self) -> None:
        """End pin()."""
        if self.is_pinned:
            self.is_pinned = False
            self.release()

    def end_backward(self) -> None:
        """End keep() when the backward pass is through with the unit."""
        if not self.stays_after_backward:
            self.unkeep()


class Plan:
    """A unit before it exists: name, modules, and names with parameters.

    modules: with whose forward the unit comes and goes; `module` is the first of them.
    """

    def __init__(
        self, name: str, modules: list[nn.Module], *, is_rest: bool = False, is_outer: bool = False
    ) -> None:
        self.name = name
        self.module = modules[0]
        self.modules = modules
        self.is_rest = is_rest
        self.is_outer = is_outer
        self.parameters: list[tuple[str, nn.Parameter]] = []

    def element_count(self) -> int:
        """Return the elements of all parameters that have a shape."""
        lazy = torch.nn.parameter.UninitializedParameter
        return sum(item.numel() for _, item in self.parameters if not isinstance(item, lazy))


def find_blocks(model: nn.Module, blocks: Blocks = None) -> list[tuple[str, nn.Module]]:
    """Return the blocks of a model with their names, in the model's order.

    blocks: classes, names of classes or names of modules; modules, in any order; None: as the head
    of this file says.
    """
    if isinstance(blocks, (list, tuple)) and blocks and isinstance(blocks[0], nn.Module):
        return _find_modules(model, blocks)
    if blocks is None:
        kinds: tuple[Any, ...] = _repeated_kinds(model)
    else:
        kinds = (blocks,) if isinstance(blocks, (str, type)) else tuple(blocks)
    found: list[tuple[str, nn.Module]] = []
    used: set[Any] = set()
    for name, module in model.named_modules():
        if module is model or any(name.startswith(outer + ".") for outer, _ in found):
            continue
        for kind in kinds:
            is_class = isinstance(kind, type)
            if type(module) is kind if is_class else kind in (type(module).__name__, name):
                found.append((name, module))
                used.add(kind)
                break
    missing = [str(kind) for kind in kinds if kind not in used]
    if missing and blocks is not None:
        raise InvalidArgument(
            f"blocks: the model has no module of the class or name {', '.join(missing)}"
        )
    return found


def _find_modules(model: nn.Module, blocks: Sequence[Any]) -> list[tuple[str, nn.Module]]:
    wanted = {id(module) for module in blocks}
    found = [(name, module) for name, module in model.named_modules() if id(module) in wanted]
    missing = wanted - {id(module) for _, module in found}
    if missing:
        lost = next(module for module in blocks if id(module) in missing)
        raise InvalidArgument(f"blocks: a {type(lost).__name__} is not in the model")
    return [(name, module) for name, module in found if module is not model]


def _repeated_kinds(model: nn.Module) -> tuple[type, ...]:
    """Return the classes of the largest list of equal modules, and of lists of half its size."""
    sizes: Counter[type] = Counter()
    for kind in (nn.ModuleList, nn.Sequential):
        inside: set[int] = set()
        for module in model.modules():
            if id(module) in inside or not isinstance(module, kind):
                continue
            children = list(module)
            classes = {type(child) for child in children}
            if len(children) < 2 or len(classes) != 1:
                continue
            inside.update(id(m) for child in children for m in child.modules())
            element = classes.pop()
            if any(True for child in children for _ in child.parameters()):
                unique = {id(p): p.numel() for child in children for p in child.parameters()}
                sizes[element] += sum(unique.values())
        if sizes:
            break
    largest = max(sizes.values(), default=0)
    return tuple(kind for kind, size in sizes.items() if 2 * size >= largest)


def plan_units(model: nn.Module, blocks: Blocks = None) -> list[Plan]:
    """Divide the parameters of a model into units; the rest is the last one.

    Empty parameters and parameters that are not floats are left to the model.
    """
    plans = [Plan(name, [module]) for name, module in find_blocks(model, blocks)]
    inside = [{id(module) for module in plan.module.modules()} for plan in plans]
    owners: dict[int, set[int]] = {}
    for module in model.modules():
        numbers = {number for number, ids in enumerate(inside) if id(module) in ids} or {-1}
        inner = {n for n in numbers if n >= 0 and _is_innermost(n, numbers, plans, inside)}
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), set()).update(inner or numbers)
    rest = Plan(REST, [model], is_rest=True)
    left: list[tuple[str, nn.Parameter]] = []
    for name, parameter in model.named_parameters():
        if not is_managed(parameter):
            continue
        numbers = owners[id(parameter)]
        number = next(iter(numbers)) if len(numbers) == 1 else -1
        if number >= 0:
            plans[number].parameters.append((name, parameter))
        elif numbers == {-1}:
            left.append((name, parameter))
        else:
            rest.parameters.append((name, parameter))
    outer: list[Plan] = []
    if plans and not (isinstance(blocks, (list, tuple)) and isinstance(blocks[0], nn.Module)):
        outer = _plan_outer(model, plans, left)
    found = {id(item) for plan in outer for _, item in plan.parameters}
    rest.parameters += [(name, item) for name, item in left if id(item) not in found]
    return [plan for plan in [*plans, *outer, rest] if plan.parameters]


def _plan_outer(
    model: nn.Module, blocks: list[Plan], left: list[tuple[str, nn.Parameter]]
) -> list[Plan]:
    """Return the units of large outer modules. left: parameters that are in no block."""
    tops = {id(plan.module) for plan in blocks}
    seen = {id(module) for plan in blocks for module in plan.module.modules()}
    wanted = {id(item) for _, item in left}
    plans: list[Plan] = []
    owners: dict[int, Plan] = {}  # by id of a parameter
    for name, module in model.named_modules():
        if id(module) in seen:
            continue
        inside = {id(item) for item in module.modules()}
        if inside & tops:  # around blocks
            wanted.difference_update(id(item) for item in module._parameters.values())
            continue
        seen |= inside
        plan = Plan(name, [module], is_outer=True)
        plans.append(plan)
        for item in module.parameters():
            other = owners.setdefault(id(item), plan)
            if other is not plan:  # The earlier one of both has all.
                plan, other = sorted((plan, other), key=plans.index)
                plans.remove(other)
                plan.modules += other.modules
                owners.update((key, plan) for key, value in owners.items() if value is other)
    for name, parameter in left:
        if id(parameter) in wanted and id(parameter) in owners:
            owners[id(parameter)].parameters.append((name, parameter))
    least = max(plan.element_count() for plan in blocks) / _OUTER_PART
    return [plan for plan in plans if plan.parameters and plan.element_count() >= least]


def _is_innermost(
    number: int, numbers: set[int], plans: list[Plan], inside: list[set[int]]
) -> bool:
    """Whether none of the blocks `numbers` lies inside the block `number`."""
    return not any(n != number and id(plans[n].module) in inside[number] for n in numbers if n >= 0)


def is_managed(parameter: nn.Parameter) -> bool:
    """Whether zinf holds a parameter: floats, not empty."""
    if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
        return True  # refused by check_parameters()
    return parameter.numel() > 0 and parameter.is_floating_point()


def check_parameters(
    plans: Iterable[Plan], param_dtype: str | None, place: torch.device
) -> torch.dtype:
    """Return the type of the parameters in zinf. Refuse what zinf cannot hold, with names.

    param_dtype: the setting; None: the model's type, which must be one. place: the device that
    computes the model.
    """
    types: dict[torch.dtype, list[str]] = {}
    gpus: dict[torch.device, str] = {}
    for plan in plans:
        for name, parameter in plan.parameters:
            if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
                raise InvalidArgument(
                    f"parameter '{name}' has no shape yet: run the model once before prepare()"
                )
            if parameter.device.type not in ("cpu", "meta", place.type):
                raise InvalidArgument(
                    f"parameter '{name}' is on {parameter.device}, and zinf computes the model on "
                    f"'{place}': move the model there with model.cpu(), or give device='cuda' for "
                    "a GPU of NVIDIA"
                )
            if parameter.device.type == "cuda":
                gpus.setdefault(parameter.device, name)
            types.setdefault(parameter.dtype, []).append(name)
    if len(gpus) > 1:
        (one, first), (other, second), *_ = gpus.items()
        raise InvalidArgument(
            f"parameter '{first}' is on {one}, and '{second}' on {other}: zinf computes a model on "
            "one GPU in each process. Load it on the CPU, without device_map"
        )
    if param_dtype is not None:
        return getattr(torch, param_dtype)  # type: ignore[no-any-return]
    if len(types) > 1:
        found = ", ".join(f"{dtype} of {_some(names)}" for dtype, names in types.items())
        raise InvalidArgument(
            f"the parameters have {len(types)} types ({found}), and a job in zinf has one: convert "
            "the model to one type, or set param_dtype"
        )
    dtype = next(iter(types), torch.float32)
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise InvalidArgument(
            f"parameter '{types[dtype][0]}' is {dtype}: zinf holds float32, bfloat16 and float16; "
            "convert the model, or give param_dtype"
        )
    return dtype


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return ", ".join(f"'{name}'" for name in names[:_NAMES_MAX]) + more


def short_name(name: str) -> str:
    """Return a name that fits zinf: long ones keep both ends around a hash of the whole name."""
    data = name.encode()
    if len(data) < PARAM_NAME_BYTES:
        return name
    digest = hashlib.sha256(data).hexdigest()[:12]
    head = data[:_HEAD].decode(errors="ignore")
    tail = data[-_TAIL:].decode(errors="ignore")
    return f"{head}~{digest}~{tail}"


def shape_for(parameter: nn.Parameter) -> tuple[int, ...]:
    """Return the shape that zinf records; it has at most eight dimensions."""
    shape = tuple(parameter.shape)
    return shape if len(shape) <= DIMS_MAX else (parameter.numel(),)
