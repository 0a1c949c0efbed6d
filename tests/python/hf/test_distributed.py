# SPDX-License-Identifier: Apache-2.0
"""Goal: torch.distributed over zinf gives what gloo gives, and names the rank that fails.

Method: the same program runs over gloo and over zinf. Integers and copies are equal, floats are
equal but for the order of a sum.
"""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import zinf
from conftest import HERE
from zinf.distributed import group  # registers the backend

# Relative differences that another order of at most four summands makes.
TOLERANCE = {
    torch.float64: 1e-15,
    torch.float32: 5e-7,
    torch.complex64: 5e-7,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}
_ports = iter(range(21000 + os.getpid() % 9000 * 4, 65000))


def start(
    backend: str, case: str, count: int, out: Path, **extra: str
) -> list[subprocess.Popen[str]]:
    port = str(next(_ports))
    processes = []
    for rank in range(count):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "ZINF_ARENA": "2M",
            **extra,
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, str(HERE / "dist_worker.py"), backend, case, str(out)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return processes


def run(backend: str, case: str, count: int, directory: Path, **extra: str) -> list[Any]:
    out = directory / f"{backend}-{case}-{count}"
    processes = start(backend, case, count, out, **extra)
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    for rank, process in enumerate(processes):
        assert process.returncode == 0, f"{backend}, rank {rank}:\n{outputs[rank]}"
    return [torch.load(f"{out}.{rank}", weights_only=False) for rank in range(count)]


def compare(name: str, mine: Any, theirs: Any) -> None:
    if isinstance(mine, list):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs):
            compare(name, one, other)
    elif not isinstance(mine, torch.Tensor):
        assert mine == theirs, name
    else:
        assert mine.dtype == theirs.dtype
        tolerance = TOLERANCE.get(mine.dtype, 0.0)
        scale = theirs.abs().max().item() if tolerance else 1.0
        difference = (mine.to(torch.complex128) - theirs.to(torch.complex128)).abs().max().item()
        assert difference <= tolerance * max(scale, 1.0), f"{name}: {difference} of {scale}"


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("case", ["reductions", "copies", "messages", "groups", "ddp", "fsdp"])
def test_results_are_those_of_gloo(daemon: str, tmp_path: Path, case: str, count: int) -> None:
    mine = run("zinf", case, count, tmp_path)
    theirs = run("gloo", case, count, tmp_path)
    for rank in range(count):
        assert mine[rank].keys() == theirs[rank].keys()
        assert mine[rank]
        for name in mine[rank]:
            compare(f"rank {rank}: {name}", mine[rank][name], theirs[rank][name])


def test_a_backend_beside_others_gives_the_same(daemon: str, tmp_path: Path) -> None:
    mine = run("zinf", "ddp", 2, tmp_path, ZINF_DIST_BASE="backend")
    theirs = run("zinf", "ddp", 2, tmp_path, ZINF_DIST_BASE="group")
    for name in mine[0]:
        compare(name, mine[0][name], theirs[0][name])


def test_stands_beside_the_backend_of_another_device(daemon: str, tmp_path: Path) -> None:
    """NCCL needs a GPU: gloo takes its place. torch parses the names in the same way."""
    found = dist.distributed_c10d.BackendConfig("cpu:zinf,cuda:nccl").get_device_backend_map()
    assert found == {"cpu": "zinf", "cuda": "nccl"}
    for results in run("cpu:zinf,cuda:gloo", "beside", 2, tmp_path, ZINF_DIST_BASE="backend"):
        assert (results["cpu"], results["cuda"]) == ("zinf", "gloo")
        for is_world in (True, False):
            assert results[f"sum {is_world}"].tolist() == [6.0] * 3
            assert results[f"objects {is_world}"] == [0, 1]


@pytest.mark.parametrize("case", ["reductions", "copies", "ddp", "fsdp"])
def test_beside_another_backend_gives_the_same(daemon: str, tmp_path: Path, case: str) -> None:
    mine = run("cpu:zinf,cuda:gloo", case, 2, tmp_path, ZINF_DIST_BASE="backend")
    theirs = run("zinf", case, 2, tmp_path, ZINF_DIST_BASE="group")
    for rank in range(2):
        assert mine[rank].keys() == theirs[rank].keys()
        for name in mine[rank]:
            compare(name, mine[rank][name], theirs[rank][name])


def test_tensors_of_a_gpu_are_refused_with_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor: Any = types.SimpleNamespace(
        is_sparse=False, layout=torch.strided, device=torch.device("cuda", 1)
    )
    for is_backend, way in ((False, " with the variable ZINF_DIST_BASE=backend"), (True, "")):
        monkeypatch.setattr(group, "IS_BACKEND", is_backend)
        with pytest.raises(zinf.Unsupported, match=rf"is on cuda:1: let NCCL.*nccl'\){way}$"):
            group.ZinfGroup._check(tensor)


def test_a_killed_rank_is_named_at_once(daemon: str, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    processes = start("zinf", "killed", 3, out)
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert processes[1].returncode == -9
    for rank in (0, 2):
        assert processes[rank].returncode == 0, outputs[rank]
        results = torch.load(f"{out}.{rank}", weights_only=False)
        for is_async in (False, True):
            text = results[f"text {is_async}"]
            assert text.startswith("PeerLost: "), text
            assert f"rank 1 (pid {processes[1].pid}) died" in text
        assert results["seconds"] < 10


def test_a_rank_that_does_not_come_is_named_at_the_deadline(daemon: str, tmp_path: Path) -> None:
    out = tmp_path / "late"
    processes = start("zinf", "late", 2, out, DIST_SECONDS="3")
    output = processes[0].communicate(timeout=120)[0]
    processes[1].communicate("\n", timeout=60)
    assert processes[0].returncode == 0, output
    results = torch.load(f"{out}.0", weights_only=False)
    assert results["text"].startswith("Timeout: "), results["text"]
    assert f"rank 1 (pid {processes[1].pid}) did not come within 3 s" in results["text"]
    assert results["seconds"] > 2.5
    assert results["monitored"].startswith("Timeout: barrier #1 of group 1: rank 1 (pid")


def test_a_wait_that_ends_early_names_who_did_not_come(daemon: str, tmp_path: Path) -> None:
    out = tmp_path / "waiting"
    processes = start("zinf", "waiting", 2, out)
    assert processes[0].stdout is not None
    text = processes[0].stdout.readline()
    outputs = [processes[1].communicate("\n", timeout=120)[0], processes[0].communicate()[0]]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert "(sum) of group 0 is not over within 0.1 s" in text, text
    assert text.strip().endswith("rank 1 has not come")
    assert torch.load(f"{out}.0")["value"].tolist() == [2.0] * 3


def test_unsigned_integers_are_reduced_as_pythons_are(daemon: str, tmp_path: Path) -> None:
    for results in run("zinf", "unsigned", 2, tmp_path):
        assert results["text"] == "Unsupported: zinf has no MIN of torch.uint64"


def test_refusals_say_why_and_the_group_goes_on(daemon: str, tmp_path: Path) -> None:
    for rank, results in enumerate(run("zinf", "refused", 2, tmp_path)):
        assert results["avg"].startswith("Unsupported: zinf has no average of torch.int64")
        assert results["bits"].startswith("Unsupported: zinf has no BAND of torch.float32")
        assert "sparse" in results["sparse"]
        assert results["counts"].startswith("InvalidArgument: call "), results["counts"]
        assert "all_reduce" in results["counts"], results
        assert results["arena"].startswith("NoSpace: "), rank
        assert torch.equal(results["empty"], torch.full((100, 10), 3.0, dtype=torch.float64))
