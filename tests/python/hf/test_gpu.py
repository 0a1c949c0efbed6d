# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D205
"""Goal: Trainer over the fake GPU logs what it logs on the CPU; a CUDA tensor has the address that
zinf gives it. Method: both trainings in one process, with a private daemon on the fake CUDA driver;
the tensor is made without a driver and not read. No GPU is used.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import accelerate
import pytest
import torch
from conftest import BUILD, HERE, Ranks
from zinf.accelerate import Accelerator

DRIVER = BUILD / "tests/gpu/libcuda.so.1"
CASES: dict[str, dict[str, Any]] = {
    "accumulation": {"args": {"gradient_accumulation_steps": 2, "weight_decay": 0.1}},
    "checkpointing": {"model": "llama", "args": {"gradient_checkpointing": True}},
    "autocast": {"args": {"bf16": True}},
    "resumed": {"args": {"save_strategy": "steps", "save_steps": 3}, "actions": ["resume_first"]},
}


@pytest.mark.skipif(not DRIVER.exists(), reason="the fake CUDA driver is not built")
def test_trainer_logs_the_figures_of_the_cpu(
    start_ranks: Callable[..., Ranks], tmp_path: Path
) -> None:
    settings = {
        "private_dir": str(tmp_path / "zinf"),
        "private_size": "512M",
        "private_set": [f"gpu.driver={DRIVER}", "gpu.enable=yes", "gpu.reserve=none"],
        "strategy": "zero3",
    }
    cases = []
    for place in ("cpu", "cuda"):
        for name, case in CASES.items():
            more = {"name": f"{name} {place}", "trainer": "zinf", "is_fake": place == "cuda"}
            more["args"] = {**case["args"], "output_dir": str(tmp_path / f"{name}-{place}")}
            cases.append({**case, **more, "zinf": {**settings, "device": place}})
    environment = {"ZINF_FAKE_GPU": "order=shuffled:3"}
    found = start_ranks(cases, 1, tmp_path / "run", env=environment)
    assert found.code == 0, found.output
    for name in CASES:
        ours, other = (found.results[f"{name} {place}"] for place in ("cuda", "cpu"))
        assert len(ours["log"]) == len(other["log"]), name
        assert any("loss" in line for line in ours["log"]), name
        for mine, theirs in zip(ours["log"], other["log"]):
            for figure in ("loss", "grad_norm", "learning_rate"):
                assert mine.get(figure) == theirs.get(figure), (name, mine, theirs)
        assert ours["digest"] == other["digest"], name
        assert ours.get("resumed_digest") == other.get("resumed_digest"), name


def test_a_disabled_grad_scaler_is_none() -> None:
    """On a GPU Accelerate makes a GradScaler also where its kwargs disable it."""
    made = object.__new__(Accelerator)
    made.native_amp = False
    made.scaler_handler = accelerate.utils.GradScalerKwargs(enabled=False)
    made.scaler = torch.amp.GradScaler("cpu", enabled=False)
    made._zinf_scale = None
    made._zinf_scale_losses()
    assert made.scaler is None
    assert made._zinf_scale is None


# torch initializes CUDA at the first CUDA tensor, which fails without a driver: it is left out.
TENSORS = """
import torch
torch.cuda._lazy_init = lambda: None
from zinf.module import device
from zinf.module.memory import Memory, means
address = 0x7F0000000200
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    made = device.from_address(address, (3, 5), dtype, device.Cuda.dlpack_type, 1)
    assert made.device == torch.device("cuda", 1)
    assert (made.dtype, tuple(made.shape), made.stride()) == (dtype, (3, 5), (5, 1))
    parameter = torch.nn.Parameter(torch.zeros(3, 5, dtype=dtype))
    parameter.data = made
    assert parameter.device == made.device
    assert parameter.detach().view(-1).data_ptr() == address
    assert means() == "message"
    memory = Memory(made, "weight", is_on_host=False)
    memory.close()
    try:
        parameter.detach().data_ptr()
    except RuntimeError as error:
        assert "'weight' is away" in str(error)
    else:
        raise AssertionError("it is open")
    memory.open()
    assert parameter.data_ptr() == address
print("good")
"""


@pytest.mark.skipif(torch.version.cuda is None, reason="this torch has no CUDA")
def test_a_cuda_tensor_has_the_address_type_and_shape() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TENSORS], capture_output=True, text=True, check=False
    )
    assert done.stdout == "good\n", done.stderr


CHECKPOINT = """
import sys
sys.path.insert(0, sys.argv[1])
import fake_cuda
import torch
import torch.distributed.checkpoint as dcp
import zinf
import zinf.checkpoint
directory, driver = sys.argv[2:]
fake_cuda.install()

def train(model, optimizer):
    losses = []
    for step in range(3):
        torch.manual_seed(step)
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses

found = []
for place in ("cuda", "cpu"):
    torch.manual_seed(len(found))
    blocks = [torch.nn.Linear(8, 8) for _ in range(5)]
    model = torch.nn.Sequential(*blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer = zinf.prepare(
        model, optimizer, job=place, device=place, private_dir=f"{directory}/zinf",
        private_size="256M", gpu_param_budget_bytes=3 * fake_cuda.CHUNK,
        private_set=[f"gpu.driver={driver}", "gpu.enable=yes", "gpu.reserve=none"],
    )
    if place == "cuda":
        train(model, optimizer)
        state = zinf.checkpoint.state_dict(model, optimizer)
        dcp.save(state, storage_writer=zinf.checkpoint.Writer(f"{directory}/dcp"))
        first = model.state_dict()
        found.append(train(model, optimizer))
    state = zinf.checkpoint.state_dict(model, optimizer)
    dcp.load(state, storage_reader=zinf.checkpoint.Reader(f"{directory}/dcp"))
    assert all(torch.equal(model.state_dict()[name], value) for name, value in first.items())
    found.append(train(model, optimizer))
    zinf.engine_of(model).close(delete_job=True)
assert found[0] == found[1] == found[2], found
print("good")
"""


@pytest.mark.skipif(not DRIVER.exists(), reason="the fake CUDA driver is not built")
def test_checkpoints_of_torch_go_from_the_gpu_to_the_gpu_and_to_the_cpu(tmp_path: Path) -> None:
    words = [str(HERE.parent), str(tmp_path), str(DRIVER)]
    done = subprocess.run(
        [sys.executable, "-c", CHECKPOINT, *words],
        env={**os.environ, "ZINF_FAKE_GPU": "order=late"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "good\n", done.stderr
