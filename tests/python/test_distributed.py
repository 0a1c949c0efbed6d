# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PT017 - ranks have no test runner
"""Goal: zinf.distributed is a backend of torch.distributed, also of an earlier torch.

Method: ranks in processes of their own over the daemon of the tests. Results are compared with what
the ranks can compute themselves.
"""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time
import unittest
from typing import Any

import house
import zinf

try:
    import torch
    import torch.distributed as dist
except ImportError:  # A test says so.
    torch = dist = None  # type: ignore[assignment]


def begin(seconds: float = 30) -> tuple[int, int]:
    import zinf.distributed  # noqa: PLC0415, F401 - it needs torch

    dist.init_process_group("zinf", timeout=datetime.timedelta(seconds=seconds))
    return dist.get_rank(), dist.get_world_size()


def collectives_rank() -> None:
    rank, size = begin()
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int16):
        value = torch.arange(1000).to(dtype) % 7 * (rank + 1)
        dist.all_reduce(value)
        assert torch.equal(value, (torch.arange(1000).to(dtype) % 7) * 3), dtype
    value = torch.arange(12.0).view(3, 4).t()
    dist.all_reduce(value)
    assert torch.equal(value, 2 * torch.arange(12.0).view(3, 4).t())
    value = torch.tensor([rank == 0, False])
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    assert value.tolist() == [True, False]
    value = torch.full((3,), float(rank))
    dist.broadcast(value, 1)
    assert value.tolist() == [1.0] * 3
    parts = [torch.empty(2) for _ in range(size)]
    dist.all_gather(parts, torch.full((2,), float(rank)))
    assert [part[0].item() for part in parts] == [0.0, 1.0]
    out = torch.empty(2)
    dist.reduce_scatter(out, [torch.full((2,), float(i)) for i in range(size)])
    assert out.tolist() == [2.0 * rank] * 2
    out = torch.empty(4)
    dist.all_to_all_single(out, torch.arange(4.0) + 10 * rank)
    assert out.tolist() == [2.0 * rank, 2 * rank + 1, 2 * rank + 10, 2 * rank + 11]
    out, others = torch.empty(50_000), torch.full((50_000,), float(rank))
    for work in [dist.isend(others, 1 - rank), dist.irecv(out, 1 - rank)]:
        work.wait()
        assert work.is_completed()
    assert out[-1] == 1 - rank
    work = dist.all_reduce(out, async_op=True)
    work.wait()
    assert work.is_completed()
    assert out[0] == 1
    group = dist.new_group([rank]) if rank else dist.new_group([1])
    if rank == 1:
        value = torch.ones(2)
        dist.all_reduce(value, group=group)
        assert value.tolist() == [1.0, 1.0]
    shared = zinf.distributed.empty(10, 3, dtype=torch.int32).fill_(rank)
    dist.all_reduce(shared)
    assert shared.sum() == 30
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, (rank, "text"))
    assert objects == [(0, "text"), (1, "text")]
    layer = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    layer(torch.ones(1, 4) * (rank + 1)).sum().backward()
    gradient = layer.module.weight.grad
    assert gradient is not None
    assert torch.allclose(gradient, torch.full((4, 4), 1.5))
    dist.barrier()
    dist.destroy_process_group()


def refusals_rank() -> None:
    rank, _ = begin()
    for call, word in (
        (
            lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), op=dist.ReduceOp.AVG),
            "average",
        ),
        (lambda: dist.all_reduce(torch.ones(3), op=dist.ReduceOp.BXOR), "no BXOR of torch.float32"),
        (lambda: dist.all_reduce(torch.ones(3 + rank)), "all_reduce"),
        (lambda: zinf.distributed.empty(1 << 40), "arena"),
    ):
        try:
            call()
        except zinf.ZinfError as error:
            assert word in str(error), error
        else:
            raise AssertionError(word)
    dist.barrier()
    try:
        zinf.distributed.configure(arena="many")
    except zinf.InvalidArgument as error:
        assert "arena" in str(error)


def killed_rank() -> None:
    rank, _ = begin()
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for is_async in (False, True):
        try:
            work = dist.all_reduce(torch.ones(3), async_op=is_async)
            if work is not None:
                work.wait()
        except zinf.PeerLost as error:
            assert "rank 1 (pid" in str(error), error
            assert "died" in str(error), error
        else:
            raise AssertionError("no error")
    print("named")


def waits(rank: int) -> list[tuple[str, Any, Any]]:
    """Return calls that wait for the other rank: name, of rank 0, of rank 1."""
    value = torch.ones(3)
    works: list[Any] = []

    def begin_first(call: Any) -> Any:
        """Return a function that begins a call once, and waits for its Work by `call`."""

        def run() -> None:
            if not works:
                works.append(dist.all_reduce(value, async_op=True))
            call(works[0])
            works.clear()

        return run

    def group() -> None:
        dist.new_group([0, 1])

    hour = datetime.timedelta(hours=1)
    cases = [
        ("barrier", dist.barrier, dist.barrier),
        ("all_reduce", lambda: dist.all_reduce(value), lambda: dist.all_reduce(value)),
        ("broadcast", lambda: dist.broadcast(value, 1), lambda: dist.broadcast(value, 1)),
        ("recv", lambda: dist.recv(value, 1), lambda: dist.send(value, 0)),
        ("wait", begin_first(lambda work: work.wait()), lambda: dist.all_reduce(value)),
    ]
    if hasattr(dist.ProcessGroup, "_device_types"):  # torch 1 has these for gloo only.
        wait_for = begin_first(lambda work: work.wait(hour))
        cases += [
            ("wait for", wait_for, lambda: dist.all_reduce(value)),
            ("monitored_barrier", dist.monitored_barrier, dist.monitored_barrier),
        ]
    return [*cases, ("new_group", group, group)]


def interrupted_rank() -> None:
    """Rank 0 takes Ctrl-C in each wait. Rank 1 comes when it is told to."""
    rank, _ = begin(3600)
    for name, mine, theirs in waits(rank):
        print(name, flush=True)
        if rank == 1:
            sys.stdin.readline()
            theirs()
            continue
        try:
            mine()
            raise AssertionError(f"{name} returned")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        if name == "recv":  # The message was begun; it ends with its Work.
            zinf.distributed.current()._settle(0)
        elif name != "new_group":  # torch counts its groups: a second call has another name.
            mine()
    print("over", flush=True)


def joining_rank(path: str) -> None:
    """Rank 0 waits in init_process_group() for rank 1, which waits for its line before it."""
    import zinf.distributed  # noqa: PLC0415, F401 - it needs torch

    rank = int(os.environ["RANK"])
    print("joining", flush=True)
    if rank == 1:
        sys.stdin.readline()
    hour = datetime.timedelta(hours=1)
    store = dist.FileStore(path, 2)
    try:
        dist.init_process_group("zinf", store=store, rank=rank, world_size=2, timeout=hour)
        print("joined", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)


@unittest.skipUnless(torch is not None, "no torch")
class Distributed(unittest.TestCase):
    def setUp(self) -> None:
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        os.environ["MASTER_PORT"] = "0"
        os.environ["ZINF_ARENA"] = "2M"

    def tearDown(self) -> None:
        for name in ("MASTER_ADDR", "MASTER_PORT", "ZINF_ARENA"):
            os.environ.pop(name, None)

    def run_ranks(self, program: str) -> list[Any]:
        os.environ["MASTER_PORT"] = str(house.free_port())
        return house.start_ranks(2, program)

    def test_collectives_give_what_the_ranks_expect(self) -> None:
        for process in self.run_ranks("test_distributed.collectives_rank"):
            output = house.finish(process, house.patient(60))
            self.assertEqual(process.returncode, 0, output)

    def test_what_cannot_be_is_refused_and_the_group_goes_on(self) -> None:
        for process in self.run_ranks("test_distributed.refusals_rank"):
            output = house.finish(process, house.patient(60))
            self.assertEqual(process.returncode, 0, output)

    def test_a_killed_rank_is_named(self) -> None:
        first, second = self.run_ranks("test_distributed.killed_rank")
        output = house.finish(first, house.patient(60))
        house.finish(second)
        self.assertEqual(first.returncode, 0, output)
        self.assertIn("named", output)

    def line(self, process: Any) -> str:
        return str(process.stdout.readline()).strip()

    def interrupt(self, process: Any) -> None:
        """Send Ctrl-C to a process that sleeps in its main thread. The limit is no measurement."""
        await_sleep(process.pid)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.line(process), "interrupted")
        self.assertLess(time.monotonic() - sent, max(15, house.patient(0.5)))

    def test_ctrl_c_ends_each_wait_which_can_go_on(self) -> None:
        first, second = self.run_ranks("test_distributed.interrupted_rank")
        for process in (first, second):
            self.addCleanup(house.kill, process)
        names = []
        while (name := self.line(first)) not in ("new_group", ""):
            names.append(name)
            self.assertEqual(self.line(second), name)
            self.interrupt(first)
            second.stdin.write("go\n")
            second.stdin.flush()
        self.assertIn("wait", names)
        self.assertEqual(name, "new_group", house.finish(first) if not name else "")
        self.interrupt(first)
        self.assertEqual(self.line(first), "over")

    def test_ctrl_c_ends_the_start_of_a_group(self) -> None:
        path = os.path.join(house.folder("store"), "file")
        first, second = house.start_ranks(2, "test_distributed.joining_rank", path)
        for process in (first, second):
            self.addCleanup(house.kill, process)
            self.assertEqual(self.line(process), "joining")
        self.interrupt(first)
        house.finish(first, house.patient(60))
        # Rank 0 has named the job and left: rank 1 hears of it, or waits for a rank 0.
        self.assertIsNone(second.poll())


def await_sleep(pid: int) -> None:
    """Return when the main thread of a process has slept for some looks in a row."""
    looks, former = 0, ""
    while looks < 5:
        with open(f"/proc/{pid}/task/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        state = " ".join(fields[11:13])  # utime, stime
        looks = looks + 1 if fields[0] == "S" and state == former else 0
        former = state
        time.sleep(0.02)


if __name__ == "__main__":
    unittest.main()
