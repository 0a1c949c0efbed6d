# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D102, N802, N815, PLR0917 - the methods and arguments are torch's
"""ZinfGroup: a process group of torch.distributed over libzinf's collectives."""

from __future__ import annotations

import ctypes as c
import datetime
import hashlib
import weakref
from collections.abc import Sequence
from typing import Any, Callable

import torch

from ..errors import InvalidArgument, Unsupported
from ..libzinf.structures import CollOptions
from . import dtypes
from .link import Link, Work, current, open_link
from .register import NAME, base_class

__all__ = ["BASE", "IS_BACKEND", "ZinfGroup", "create"]

BASE: Any = base_class()
IS_BACKEND = BASE is not torch._C._distributed_c10d.ProcessGroup
# DDP of torch 1 drops a Work of Python while it waits for it, and waits on.
_KEEPS_WORK = hasattr(torch._C._distributed_c10d.AllreduceOptions, "asyncOp")

Tensors = list[torch.Tensor]


def _name_of(group_id: str) -> str:
    """Return a group's name for libzinf: at most 31 printable bytes."""
    if 0 < len(group_id) <= 31 and group_id.isascii() and group_id.isprintable():
        return group_id
    return hashlib.sha256(group_id.encode()).hexdigest()[:31]


def _milliseconds(timeout: datetime.timedelta | None) -> int:
    """Return a deadline; 0 for torch's "not given"."""
    seconds = timeout.total_seconds() if timeout is not None else 0.0
    return min(max(int(seconds * 1000), 1 if seconds > 0 else 0), 0xFFFFFFFF)


class ZinfGroup(BASE):  # type: ignore[misc]
    """The members of a group, in this rank.

    Methods have torch's names and arguments. Each returns a Work. A call with asyncOp, and every
    send and receive, goes on by itself.
    """

    def __init__(self, link: Link, number: int, rank: int, size: int, name: str) -> None:
        super().__init__(rank, size)
        self._link = link
        self._number = number
        self._rank, self._size, self._name = rank, size, name
        self._sequence = 0
        self._options = CollOptions(bytes=c.sizeof(CollOptions), group=number)
        self._options_at = c.byref(self._options)
        self._done = _over(None)
        library = link.session._library
        self._all_reduce = library.zinf_coll_all_reduce
        self._library = library
        link.hold()
        self._end = weakref.finalize(self, link.leave, number)
        self._end.atexit = False

    # ---- what torch asks of a group ----

    supports_coalescing = False

    def getBackendName(self) -> str:
        return NAME

    def _get_backend_name(self) -> str:
        return NAME

    def name(self) -> str:
        return NAME

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return self._rank

    def getSize(self) -> int:
        return self._size

    def getRank(self) -> int:
        return self._rank

    if not IS_BACKEND:

        @property
        def group_name(self) -> str:
            return self._name

        def getGroupName(self) -> str:
            return self._name

        def _set_group_name(self, name: str) -> None:
            self._name = name

        def _get_backend(self, device: torch.device) -> ZinfGroup:
            return self

        @property
        def _device_types(self) -> list[torch.device]:
            """Devices of tensors: torch asks for them in monitored_barrier() and async_save()."""
            return [torch.device("cpu")]

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: libzinf counts calls itself."""

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def shutdown(self) -> None:
        """Leave the group. Other members that still wait for this one get PeerLost."""
        self._end()

    def abort(self) -> None:
        """End the calls of all members, at once, with an error that names this rank."""
        if self._end.alive:
            self._link.abort(self._number, "torch aborted the process group")
            self._end()

    # ---- calling ----

    def _run(
        self,
        function: Any,
        arguments: tuple[Any, ...],
        opts: Any,
        result: Any,
        keep: Any = None,
        after: Callable[[], None] | None = None,
    ) -> Any:
        """Make a call of libzinf: wait for it, or let it go on by itself if opts say so."""
        self._sequence += 1
        timeout = getattr(opts, "timeout", None)
        timeout_ms = _milliseconds(timeout) if timeout is not None and timeout.days >= 0 else 0
        if getattr(opts, "asyncOp", False):
            return self._begin(function, arguments, timeout_ms, result, keep, after)
        if timeout_ms:
            options = CollOptions(
                bytes=c.sizeof(CollOptions), group=self._number, timeout_ms=timeout_ms
            )
            self._link.wait(function, *arguments, c.byref(options))
        else:
            self._link.wait(function, *arguments, self._options_at)
        if after is not None:
            with torch.no_grad():
                after()
        # torch drops the Work of a call that it waited for; 1.13 does not say whether it did.
        return self._done if hasattr(opts, "asyncOp") else _over(result)

    def _begin(
        self,
        function: Any,
        arguments: tuple[Any, ...],
        timeout_ms: int,
        result: Any,
        keep: Any,
        after: Callable[[], None] | None = None,
    ) -> Any:
        return self._link.begin(
            function, arguments, self._number, timeout_ms, result, (keep, arguments), after
        )

    @staticmethod
    def _check(tensor: torch.Tensor) -> torch.Tensor:
        """Refuse what has no plain memory."""
        if tensor.is_sparse or tensor.layout is not torch.strided:
            raise Unsupported(f"zinf has no collectives of {tensor.layout} tensors: use gloo")
        if tensor.device.type != "cpu":
            hint = "" if IS_BACKEND else " with the variable ZINF_DIST_BASE=backend"
            raise Unsupported(
                f"zinf moves tensors of the CPU, this one is on {tensor.device}: let NCCL move it "
                f"beside zinf, by init_process_group('cpu:zinf,cuda:nccl'){hint}"
            )
        return tensor

    def _one(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        if len(tensors) != 1:
            raise InvalidArgument(f"a call of {len(tensors)} tensors for one rank: give one")
        return self._check(tensors[0])

    def _target(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Callable[[], None] | None]:
        """Return contiguous memory for a result, and how it gets into the tensor."""
        if tensor.is_contiguous():
            return tensor, None
        flat = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        return flat, lambda: _put(tensor, flat)

    # ---- reductions ----

    def _prepare(
        self, tensor: torch.Tensor, op: Any
    ) -> tuple[dtypes.Plan, torch.Tensor, Callable[[], None] | None]:
        """Return memory that holds the tensor as libzinf reduces it, and how the result returns."""
        plan = dtypes.plan(tensor.dtype, op)
        if plan.wide is None and tensor.is_contiguous():
            # A view of other elements on the same memory needs no copy.
            return plan, tensor, None
        with torch.no_grad():
            flat = tensor.contiguous() if plan.wide is None else tensor.to(plan.wide).contiguous()
        return plan, flat, lambda: _put(tensor, flat)

    def _count(self, plan: dtypes.Plan, tensor: torch.Tensor) -> int:
        return tensor.numel() * (2 if plan.is_complex else 1)

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Any:
        tensor = tensors[0] if len(tensors) == 1 else self._one(tensors)
        self._check(tensor)
        plan, flat, after = self._prepare(tensor, _reduction(opts))
        at = flat.data_ptr()
        arguments = (at, at, self._count(plan, flat), plan.dtype, plan.op)
        return self._run(self._all_reduce, arguments, opts, tensors, flat, after)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        works = [self.allreduce([tensor], opts) for tensor in tensors]
        return self._last(works, opts, tensors)

    def reduce(self, tensors: Tensors, opts: Any = None) -> Any:
        tensor = self._one(tensors)
        plan, flat, after = self._prepare(tensor, _reduction(opts))
        root = _root(opts)
        at = flat.data_ptr()
        arguments = (at, at, self._count(plan, flat), plan.dtype, plan.op, root)
        after = after if root == self._rank else None
        return self._run(self._library.zinf_coll_reduce, arguments, opts, tensors, flat, after)

    def _reduce_scatter_base(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> Any:
        self._check(output)
        if input.numel() != output.numel() * self._size or input.dtype != output.dtype:
            raise InvalidArgument(
                f"reduce_scatter of {input.numel()} elements of {input.dtype} into "
                f"{output.numel()} of {output.dtype}: {self._size} ranks need "
                f"{output.numel() * self._size} of one type"
            )
        plan, source, _ = self._prepare(self._check(input), _reduction(opts))
        target: torch.Tensor = output
        after: Callable[[], None] | None = None
        if plan.wide is not None:
            target = torch.empty(output.shape, dtype=plan.wide)
            after = _copier(output, target)
        elif not output.is_contiguous():
            target, after = self._target(output)
        arguments = (
            source.data_ptr(),
            target.data_ptr(),
            self._count(plan, target),
            plan.dtype,
            plan.op,
        )
        function = self._library.zinf_coll_reduce_scatter
        return self._run(function, arguments, opts, [output], (source, target), after)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any = None) -> Any:
        parts, output = inputs[0], self._one(outputs)
        _check_parts(parts, self._size, output, "reduce_scatter")
        with torch.no_grad():
            source = torch.stack([self._check(part) for part in parts])
        return self._reduce_scatter_base(output, source, opts)

    def reduce_scatter_tensor_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Any:
        works = [self._reduce_scatter_base(o, i, opts) for o, i in zip(outputs, inputs)]
        return self._last(works, opts, outputs)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    # ---- copies ----

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Any:
        tensor = self._one(tensors)
        dtype, factor = dtypes.moved(tensor)
        root = _root(opts)
        after: Callable[[], None] | None = None
        flat = tensor
        if not tensor.is_contiguous():
            with torch.no_grad():
                flat = tensor.contiguous()
            after = _copier(tensor, flat) if root != self._rank else None
        arguments = (flat.data_ptr(), flat.numel() * factor, dtype, root)
        return self._run(self._library.zinf_coll_broadcast, arguments, opts, tensors, flat, after)

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        if output.numel() != input.numel() * self._size or output.dtype != input.dtype:
            raise InvalidArgument(
                f"all_gather of {input.numel()} elements of {input.dtype} into {output.numel()} of "
                f"{output.dtype}: {self._size} ranks need {input.numel() * self._size} of one type"
            )
        dtype, factor = dtypes.moved(self._check(input))
        with torch.no_grad():
            source = input.contiguous()
        target, after = self._target(self._check(output))
        arguments = (source.data_ptr(), target.data_ptr(), source.numel() * factor, dtype)
        function = self._library.zinf_coll_all_gather
        return self._run(function, arguments, opts, [output], (source, target), after)

    all_gather_single = _allgather_base
    all_gather_into_tensor = _allgather_base

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        source = self._one(inputs)
        _check_parts(outputs[0], self._size, source, "all_gather")
        with torch.no_grad():
            source = source.contiguous()
        dtype, factor = dtypes.moved(source)
        flat = torch.empty((self._size, *source.shape), dtype=source.dtype)
        arguments = (source.data_ptr(), flat.data_ptr(), source.numel() * factor, dtype)
        after = _spreader(outputs[0], flat)
        function = self._library.zinf_coll_all_gather
        return self._run(function, arguments, opts, outputs, (source, flat), after)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        columns = list(zip(*outputs))
        if outputs and len(outputs[0]) == len(inputs) and len(outputs) == self._size:
            works = [self.allgather([list(o)], [i], opts) for o, i in zip(columns, inputs)]
        else:
            works = [self.allgather([o], [i], opts) for o, i in zip(outputs, inputs)]
        return self._last(works, opts, outputs)

    def allgather_into_tensor_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Any:
        works = [self._allgather_base(o, i, opts) for o, i in zip(outputs, inputs)]
        return self._last(works, opts, outputs)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        root = _root(opts)
        source = self._one(inputs)
        with torch.no_grad():
            source = source.contiguous()
        dtype, factor = dtypes.moved(source)
        flat: torch.Tensor | None = None
        after: Callable[[], None] | None = None
        if root == self._rank:
            _check_parts(outputs[0] if outputs else [], self._size, source, "gather")
            flat = torch.empty((self._size, *source.shape), dtype=source.dtype)
            after = _spreader(outputs[0], flat)
        target = flat.data_ptr() if flat is not None else None
        arguments = (source.data_ptr(), target, source.numel() * factor, dtype, root)
        function = self._library.zinf_coll_gather
        return self._run(function, arguments, opts, outputs, (source, flat), after)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any = None) -> Any:
        root = _root(opts)
        output = self._one(outputs)
        dtype, factor = dtypes.moved(output)
        flat: torch.Tensor | None = None
        if root == self._rank:
            _check_parts(inputs[0] if inputs else [], self._size, output, "scatter")
            with torch.no_grad():
                flat = torch.stack([self._check(part) for part in inputs[0]])
        target, after = self._target(output)
        source = flat.data_ptr() if flat is not None else None
        arguments = (source, target.data_ptr(), target.numel() * factor, dtype, root)
        function = self._library.zinf_coll_scatter
        return self._run(function, arguments, opts, outputs, (flat, target), after)

    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> Any:
        dtype, factor = dtypes.moved(self._check(input))
        with torch.no_grad():
            source = input.contiguous()
        target, after = self._target(self._check(output))
        if output.dtype != input.dtype:
            raise InvalidArgument(f"all_to_all of {input.dtype} into {output.dtype}")
        keep = (source, target)
        if not len(output_split_sizes) and not len(input_split_sizes):
            if source.numel() % self._size or source.numel() != target.numel():
                raise InvalidArgument(
                    f"all_to_all of {source.numel()} elements into {target.numel()} by "
                    f"{self._size} ranks: give split sizes"
                )
            count = source.numel() // self._size * factor
            arguments: tuple[Any, ...] = (source.data_ptr(), target.data_ptr(), count, dtype)
            function = self._library.zinf_coll_all_to_all
            return self._run(function, arguments, opts, [output], keep, after)
        sent = self._splits(source, input_split_sizes, factor, "input")
        taken = self._splits(target, output_split_sizes, factor, "output")
        arguments = (source.data_ptr(), sent, target.data_ptr(), taken, dtype)
        function = self._library.zinf_coll_all_to_allv
        return self._run(function, arguments, opts, [output], keep, after)

    all_to_all_single = alltoall_base

    def _splits(
        self, tensor: torch.Tensor, splits: Sequence[int], factor: int, role: str
    ) -> c.Array[c.c_uint64]:
        """Return the elements for each member."""
        rows = tensor.shape[0] if tensor.dim() else 1
        if not len(splits):
            if rows % self._size:
                raise InvalidArgument(
                    f"all_to_all: {rows} rows of the {role} for {self._size} ranks: give split "
                    "sizes"
                )
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows or min(splits) < 0:
            raise InvalidArgument(
                f"all_to_all: {role} split sizes {list(splits)} of {rows} rows for {self._size} "
                "ranks"
            )
        row = tensor.numel() // rows * factor if rows else 0
        return (c.c_uint64 * self._size)(*[count * row for count in splits])

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        if len(outputs) != self._size or len(inputs) != self._size:
            raise InvalidArgument(
                f"all_to_all of {len(inputs)} into {len(outputs)} tensors for {self._size} ranks"
            )
        dtype, factor = dtypes.moved(self._check(inputs[0]))
        with torch.no_grad():
            source = torch.cat([self._check(part).reshape(-1) for part in inputs])
        target = torch.empty(sum(part.numel() for part in outputs), dtype=outputs[0].dtype)
        sent = (c.c_uint64 * self._size)(*[part.numel() * factor for part in inputs])
        taken = (c.c_uint64 * self._size)(*[part.numel() * factor for part in outputs])

        def after() -> None:
            place = 0
            for part in outputs:
                _put(part, target[place : place + part.numel()].view(part.shape))
                place += part.numel()

        arguments = (source.data_ptr(), sent, target.data_ptr(), taken, dtype)
        function = self._library.zinf_coll_all_to_allv
        return self._run(function, arguments, opts, outputs, (source, target), after)

    # ---- messages ----

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> Any:
        tensor = self._one(tensors)
        dtype, factor = dtypes.moved(tensor)
        with torch.no_grad():
            source = tensor.contiguous()
        arguments = (source.data_ptr(), source.numel() * factor, dtype, dst)
        return self._begin(self._library.zinf_coll_send, arguments, 0, tensors, source)

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> Any:
        tensor = self._one(tensors)
        dtype, factor = dtypes.moved(tensor)
        target, after = self._target(tensor)
        arguments = (target.data_ptr(), target.numel() * factor, dtype, src)
        return self._begin(self._library.zinf_coll_recv, arguments, 0, tensors, target, after)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Any:
        raise Unsupported("zinf receives from a named rank: give src")

    recvAnysource = recv_anysource

    # ---- barriers ----

    def barrier(self, opts: Any = None) -> Any:
        return self._run(self._library.zinf_coll_barrier, (), opts, None)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Wait for all members. The error names all ranks that did not come.

        timeout: a timedelta, or what torch passes to a Backend: options that have one.
        """
        timeout = getattr(timeout, "timeout", timeout)
        if isinstance(timeout, (int, float)):
            timeout = datetime.timedelta(seconds=timeout)
        timeout_ms = 0
        if timeout is not None and timeout.days >= 0:
            timeout_ms = max(_milliseconds(timeout), 1)
        options = CollOptions(
            bytes=c.sizeof(CollOptions), group=self._number, timeout_ms=timeout_ms
        )
        self._link.wait(self._library.zinf_coll_barrier, c.byref(options))

    def _last(self, works: list[Any], opts: Any, result: Any) -> Any:
        """Return one Work for several. Calls of a group end in their order."""
        if getattr(opts, "asyncOp", False) and works:
            return works[-1]
        return _over(result)


def _over(result: Any) -> Any:
    """Return the Work of a call that is over."""
    if _KEEPS_WORK:
        return Work(None, 0, 0, result)
    future: Any = torch.futures.Future()
    future.set_result(result)
    return torch._C._distributed_c10d._create_work_from_future(future)


def _put(tensor: torch.Tensor, source: torch.Tensor) -> None:
    tensor.detach().copy_(source)


def _copier(tensor: torch.Tensor, source: torch.Tensor) -> Callable[[], None]:
    return lambda: _put(tensor, source)


def _spreader(tensors: Tensors, flat: torch.Tensor) -> Callable[[], None]:
    def spread() -> None:
        for tensor, part in zip(tensors, flat):
            _put(tensor, part)

    return spread


def _check_parts(parts: Tensors, size: int, like: torch.Tensor, name: str) -> None:
    if len(parts) != size:
        raise InvalidArgument(f"{name} of {len(parts)} tensors for {size} ranks")
    for index, part in enumerate(parts):
        if part.numel() != like.numel() or part.dtype != like.dtype:
            raise InvalidArgument(
                f"{name}: tensor {index} has {part.numel()} elements of {part.dtype}, this rank's "
                f"{like.numel()} of {like.dtype}"
            )


def _reduction(opts: Any) -> Any:
    return opts.reduceOp if opts is not None else torch.distributed.ReduceOp.SUM


def _root(opts: Any) -> int:
    return int(opts.rootRank) if opts is not None else 0


def create(opts: Any, pg_options: Any = None) -> ZinfGroup:
    """Make the group that torch asks for. The first one is that of all ranks."""
    ranks = list(opts.global_ranks_in_group)
    timeout = opts.timeout.total_seconds()
    if not ranks:
        link = open_link(opts.store, opts.group_rank, opts.group_size, timeout)
        number = 0
    else:
        if ranks != sorted(ranks):
            raise Unsupported(f"group of ranks {ranks}: zinf numbers members in ascending order")
        link = current()
        number = link.join(_name_of(opts.group_id), ranks, _milliseconds(opts.timeout))
    return ZinfGroup(link, number, opts.group_rank, opts.group_size, opts.group_id)
