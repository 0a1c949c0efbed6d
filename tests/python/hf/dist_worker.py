# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415
"""A rank of test_distributed.py: dist_worker.py BACKEND CASE OUT. Rank r writes OUT.r.

The same program runs over gloo and over zinf. Inputs come from seeds.
"""

from __future__ import annotations

import datetime
import functools
import math
import operator
import os
import signal
import sys
import time
from typing import Any, Callable

import numpy as np
import torch
import torch.distributed as dist

BACKEND, CASE, OUT = sys.argv[1:4]
if "zinf" in BACKEND:
    import zinf.distributed
SECONDS = float(os.environ.get("DIST_SECONDS", "60"))
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.int8)
Results = dict[str, Any]


def tensor(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 5, shape, generator=generator).to(dtype)


def reductions(rank: int, size: int, results: Results) -> None:
    op = dist.ReduceOp
    for dtype in FLOATS + INTEGERS:
        for kind in (op.SUM, op.PRODUCT, op.MIN, op.MAX):
            for shape in ((1,), (7, 3), (40000,)):
                key = f"{dtype} {kind} {shape}"
                value = tensor(shape, dtype, rank)
                dist.all_reduce(value, op=kind)
                results[f"all_reduce {key}"] = value
                value = tensor(shape, dtype, rank)
                dist.reduce(value, size - 1, op=kind)
                if rank == size - 1:
                    results[f"reduce {key}"] = value
        out = torch.empty(5, dtype=dtype)
        dist.reduce_scatter_tensor(out, tensor((5 * size,), dtype, rank))
        results[f"reduce_scatter_tensor {dtype}"] = out
        out = torch.empty((2, 3), dtype=dtype)
        dist.reduce_scatter(out, [tensor((2, 3), dtype, 10 * rank + i) for i in range(size)])
        results[f"reduce_scatter {dtype}"] = out
    for kind in (op.BAND, op.BOR, op.BXOR):
        value = tensor((9,), torch.int32, rank)
        dist.all_reduce(value, op=kind)
        results[f"bits {kind}"] = value
    value = tensor((6, 5), torch.float32, rank).t()
    dist.all_reduce(value)
    results["all_reduce transposed"] = value
    value = torch.complex(tensor((6,), torch.float32, rank), tensor((6,), torch.float32, rank + 9))
    dist.all_reduce(value)
    results["all_reduce complex"] = value
    value = torch.tensor([rank == 0, True, False])
    dist.all_reduce(value, op=op.MAX)
    results["all_reduce bool"] = value


def unsigned(rank: int, size: int, results: Results) -> None:
    """Compare reductions of unsigned integers with those of Python's integers."""
    op = dist.ReduceOp
    for bits in (16, 32, 64):
        kind = getattr(np, f"uint{bits}")
        rows = [[r + 1, 200, 2**bits - 1 - r, 2 ** (bits - 1) + r] for r in range(size)]
        columns = list(zip(*rows))
        cases: list[tuple[Any, list[int]]] = [
            (op.SUM, [sum(column) % 2**bits for column in columns]),
            (op.PRODUCT, [math.prod(column) % 2**bits for column in columns]),
            (op.BOR, [functools.reduce(operator.or_, column) for column in columns]),
        ]
        if bits < 64:
            cases += [(op.MIN, list(map(min, columns))), (op.MAX, list(map(max, columns)))]
        for reduction, expected in cases:
            value = torch.from_numpy(np.array(rows[rank], dtype=kind))
            dist.all_reduce(value, op=reduction)
            assert value.numpy().tolist() == expected, (bits, reduction, value, expected)
        value = torch.from_numpy(np.array(rows[rank], dtype=kind))
        dist.broadcast(value, size - 1)
        assert value.numpy().tolist() == rows[size - 1]
    try:
        dist.all_reduce(value, op=op.MIN)
    except RuntimeError as error:
        results["text"] = f"{type(error).__name__}: {error}"


def waiting(rank: int, size: int, results: Results) -> None:
    """Rank 1 comes to a call when rank 0 knows that it is missing."""
    dist.barrier()
    value = torch.ones(3)
    if rank == 1:
        sys.stdin.readline()
        dist.all_reduce(value)
        return
    work, text = dist.all_reduce(value, async_op=True), ""
    while "come" not in text:  # Nobody is late before the call is posted.
        try:
            work.wait(datetime.timedelta(seconds=0.1))
        except RuntimeError as error:
            text = f"{type(error).__name__}: {error}"
    print(text, flush=True)
    work.wait()
    results["value"] = value


def copies(rank: int, size: int, results: Results) -> None:
    for dtype in (*FLOATS, *INTEGERS, torch.bool, torch.complex64):
        mine = tensor((4, 3), torch.int64, rank + 50).to(dtype)
        value = mine.clone()
        dist.broadcast(value, size - 1)
        results[f"broadcast {dtype}"] = value
        value = mine.t().contiguous().t()
        dist.broadcast(value, 0)
        results[f"broadcast transposed {dtype}"] = value
        out = torch.empty((4 * size, 3), dtype=dtype)
        dist.all_gather_into_tensor(out, mine)
        results[f"all_gather_into_tensor {dtype}"] = out
        parts = [torch.empty((4, 3), dtype=dtype) for _ in range(size)]
        dist.all_gather(parts, mine)
        results[f"all_gather {dtype}"] = torch.stack(parts)
        if dtype not in {torch.bool, torch.complex64}:  # gloo gathers and scatters neither.
            dist.gather(mine, parts if rank == 0 else None, 0)
            results[f"gather {dtype}"] = torch.stack(parts) if rank == 0 else None
            value = torch.empty((4, 3), dtype=dtype)
            dist.scatter(value, [mine.clone() for _ in range(size)] if rank == 1 else None, 1)
            results[f"scatter {dtype}"] = value
        out = torch.empty((2 * size,), dtype=dtype)
        dist.all_to_all_single(out, mine.reshape(-1)[: 2 * size].clone())
        results[f"all_to_all_single {dtype}"] = out
    sent = [i + 1 for i in range(size)]
    value = tensor((sum(sent), 2), torch.float32, rank)
    out = torch.empty((size * (rank + 1), 2))
    dist.all_to_all_single(out, value, [rank + 1] * size, sent)
    results["all_to_all_single split"] = out
    outs = [torch.empty((2, 2)) for _ in range(size)]  # gloo takes equal sizes only
    dist.all_to_all(outs, list(tensor((2 * size, 2), torch.float32, rank).chunk(size)))
    results["all_to_all"] = torch.cat(outs)
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    results["objects"] = objects


def messages(rank: int, size: int, results: Results) -> None:
    following, former = (rank + 1) % size, (rank - 1) % size
    for count in (3, 300_000):  # Both send first: the large one does not fit into a slot.
        value, out = tensor((count,), torch.float32, rank), torch.empty(count)
        works = [dist.isend(value, following), dist.irecv(out, former)]
        for work in works:
            work.wait()
        assert all(work.is_completed() for work in works)
        results[f"isend {count}"] = out
        out = torch.empty(count)
        ops = [dist.P2POp(dist.isend, value, following), dist.P2POp(dist.irecv, out, former)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        results[f"batch {count}"] = out
    if rank == 0:
        dist.send(torch.arange(4.0), 1)
    elif rank == 1:
        out = torch.empty(4)
        dist.recv(out, 0)
        results["send"] = out


def groups(rank: int, size: int, results: Results) -> None:
    halves = [list(range(i, size, 2)) for i in range(2)]
    made = [dist.new_group(ranks) for ranks in halves]
    value = torch.full((3,), float(rank))
    dist.all_reduce(value, group=made[rank % 2])
    results["half"] = value
    for number in range(70):  # More than there are at once.
        group = dist.new_group(list(range(size)))
        value = torch.full((3,), float(rank + number))
        dist.all_reduce(value, group=group)
        results[f"group {number}"] = value
        dist.destroy_process_group(group)
    works = []
    for number in range(20):
        value = torch.full((1000,), float(rank + number))
        works.append(dist.all_reduce(value, group=made[rank % 2], async_op=True))
        results[f"async {number}"] = value
    for work in works:
        work.wait()
        assert work.is_completed()
    future = dist.all_reduce(value, async_op=True).get_future()
    results["future"] = [part.clone() for part in future.wait()]
    # Last: torch names later groups by a count, which members alone have raised.
    pair = dist.new_group([0, 1], use_local_synchronization=True) if rank < 2 else None
    if pair is not None:
        value = torch.full((3,), float(rank + 1))
        dist.broadcast(value, 1, group=pair)
        results["pair"] = value


def beside(rank: int, size: int, results: Results) -> None:
    """Another backend has the tensors of another device."""
    group: Any = dist.group.WORLD
    for device in ("cpu", "cuda"):
        results[device] = group._get_backend(torch.device(device)).name()
    other = dist.new_group([0, 1])
    for made in (group, other):
        value = torch.full((3,), float(rank + 1))
        dist.all_reduce(value, group=made)
        dist.all_reduce(value, group=made, async_op=True).wait()
        results[f"sum {made is group}"] = value
        objects: list[Any] = [None] * size
        dist.all_gather_object(objects, rank, group=made)
        results[f"objects {made is group}"] = objects
        dist.barrier(group=made)


def model() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)
    )


def train(
    wrapped: torch.nn.Module, optimizer: torch.optim.Optimizer, rank: int
) -> list[torch.Tensor]:
    losses = []
    for step in range(8):
        inputs = tensor((4, 32), torch.float32, 100 * step + rank)
        loss = wrapped(inputs).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = loss.detach().clone()
        dist.all_reduce(value)
        losses.append(value)
    return losses


def ddp(rank: int, size: int, results: Results) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(model(), bucket_cap_mb=0.01)
    results["ddp"] = train(wrapped, torch.optim.AdamW(wrapped.parameters(), lr=1e-2), rank)
    wrapped = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.AdamW, lr=1e-2)
    results["zero"] = train(wrapped, optimizer, rank)


def fsdp(rank: int, size: int, results: Results) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (size,))
    sharded = model()
    for layer in sharded:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    results["fsdp"] = train(sharded, torch.optim.AdamW(sharded.parameters(), lr=1e-2), rank)
    state = get_model_state_dict(sharded)
    before = {name: value.full_tensor() for name, value in state.items()}
    dcp.async_save(state, checkpoint_id=f"{OUT}.dcp").result()
    for value in state.values():
        value.to_local().zero_()
    dcp.load(state, checkpoint_id=f"{OUT}.dcp")
    for name, value in state.items():
        assert torch.equal(value.full_tensor(), before[name]), name


def killed(rank: int, size: int, results: Results) -> None:
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    for is_async in (False, True):
        try:
            work = dist.all_reduce(torch.ones(1000), async_op=is_async)
            if work is not None:
                work.wait()
            results[f"text {is_async}"] = "no error"
        except RuntimeError as error:
            results[f"text {is_async}"] = f"{type(error).__name__}: {error}"
    results["seconds"] = time.monotonic() - began


def late(rank: int, size: int, results: Results) -> None:
    dist.barrier()
    others = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=300))
    if rank == 1:
        sys.stdin.readline()  # The test's, when the other rank has ended.
        return
    try:
        dist.monitored_barrier(others, timeout=datetime.timedelta(seconds=0.5))
    except RuntimeError as error:
        results["monitored"] = f"{type(error).__name__}: {error}"
    began = time.monotonic()
    try:
        dist.all_reduce(torch.ones(3))
    except RuntimeError as error:
        results["text"] = f"{type(error).__name__}: {error}"
    results["seconds"] = time.monotonic() - began


def refused(rank: int, size: int, results: Results) -> None:
    def text(call: Callable[[], Any]) -> str:
        try:
            call()
        except (RuntimeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return "no error"

    op = dist.ReduceOp
    integers = torch.ones(3, dtype=torch.int64)
    results["avg"] = text(lambda: dist.all_reduce(integers, op=op.AVG))
    results["bits"] = text(lambda: dist.all_reduce(torch.ones(3), op=op.BAND))
    results["sparse"] = text(lambda: dist.all_reduce(torch.ones(3).to_sparse()))
    results["counts"] = text(lambda: dist.all_reduce(torch.ones(3 + rank)))
    results["arena"] = text(lambda: zinf.distributed.empty(1 << 30))
    dist.barrier()
    shared = zinf.distributed.empty((100, 10), dtype=torch.float64)
    shared.fill_(rank + 1)
    dist.all_reduce(shared)
    results["empty"] = shared.clone()
    del shared
    for _ in range(50):  # Memory of the arena comes back.
        zinf.distributed.empty(100_000)


def main() -> None:
    dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=SECONDS))
    rank, size = dist.get_rank(), dist.get_world_size()
    results: Results = {}
    globals()[CASE](rank, size, results)
    torch.save(results, f"{OUT}.{rank}")
    if CASE not in ("killed", "late"):
        dist.barrier()
        dist.destroy_process_group()


main()
