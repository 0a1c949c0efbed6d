# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D205
"""Goal: Accelerate's loop over zinf computes what it computes with DDP; it saves and loads.
Method: one script with both Accelerators, started by python, `accelerate launch` and torchrun.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE


def run(directory: Path, count: int, launcher: bool = False, **spec: Any) -> dict[str, Any]:
    name = f"{spec['kind']}-{len(os.listdir(directory))}"
    path, out = directory / f"{name}.json", directory / f"{name}.out"
    path.write_text(json.dumps({"steps": 8, "accumulation": 2, **spec, "out": str(out)}))
    command = [sys.executable]
    if count > 1:
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    elif launcher:
        command += ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1"]
        command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    command += [str(HERE / "accelerate_worker.py"), str(path)]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=directory,  # the job of a script is named after it
        timeout=400,
        check=False,
    )
    if spec.pop("fails", False):
        return {"code": done.returncode, "output": done.stdout}
    assert done.returncode == 0, done.stdout[-4000:]
    result: dict[str, Any] = json.loads(out.read_text())
    return result


def compare(ours: dict[str, Any], stock: dict[str, Any], tolerance: float = 1e-5) -> None:
    assert len(ours["log"]) == len(stock["log"]) == 8
    for mine, theirs in zip(ours["log"], stock["log"]):
        assert mine == pytest.approx(theirs, rel=tolerance)
    assert ours["class"] == "GPT2LMHeadModel"


@pytest.mark.parametrize("count", [1, 2])
def test_the_loop_computes_what_the_stock_one_computes(
    daemon: str, tmp_path: Path, count: int
) -> None:
    stock = run(tmp_path, count, kind="stock")
    compare(run(tmp_path, count, launcher=True, kind="zinf"), stock)
    if count == 1:
        compare(run(tmp_path, count, kind="plain"), stock)
    else:
        assert stock["class"] == "DistributedDataParallel"


def test_autocast(daemon: str, tmp_path: Path) -> None:
    ours = run(tmp_path, 1, kind="zinf", bf16=True)
    stock = run(tmp_path, 1, kind="stock", bf16=True)
    # A parameter that differs by one bit of float32 may round to another bfloat16.
    compare(ours, stock, 1e-3)


@pytest.mark.parametrize("count", [1, 2])
def test_float16_follows_torchs_grad_scaler(daemon: str, tmp_path: Path, count: int) -> None:
    # The scale overflows in the first steps, and grows after each second clean step.
    scaler = {"init_scale": 2.0**26, "growth_interval": 2, "backoff_factor": 0.125}
    spec = {"fp16": scaler, "accumulation": 1, "steps": 14}
    ours = run(tmp_path, count, kind="zinf", **spec)["log"]
    stock = run(tmp_path, count, kind="stock", **spec)["log"]
    assert [line[4:] for line in ours] == [line[4:] for line in stock]
    skipped = [line[5] for line in ours]
    assert 2 <= sum(skipped) < 10
    assert any(skipped[3:])  # also after it has grown
    for mine, theirs in zip(ours, stock):
        assert mine[3] == theirs[3]  # the schedule waits in skipped steps
        assert mine[1] == pytest.approx(theirs[1], rel=2e-3)
        if not mine[5]:
            assert mine[2] == pytest.approx(theirs[2], rel=1e-2)


def test_a_saved_state_with_a_loss_scale(daemon: str, tmp_path: Path) -> None:
    scaler = {"init_scale": 2.0**26, "growth_interval": 2, "backoff_factor": 0.125}
    spec = {"kind": "zinf", "fp16": scaler, "accumulation": 1}
    saved = str(tmp_path / "state")
    whole = run(tmp_path, 1, **spec, steps=17, save={"11": saved})
    later = run(tmp_path, 1, **spec, steps=6, load={"0": saved})
    assert [line[1:] for line in later["log"]] == [line[1:] for line in whole["log"][11:]]
    assert later["sum"] == whole["sum"]


def test_what_float16_needs_is_refused_without_it(daemon: str, tmp_path: Path) -> None:
    import accelerate  # noqa: PLC0415 - state of the process
    import torch  # noqa: PLC0415 - likewise
    import zinf.accelerate  # noqa: PLC0415 - likewise
    from models import gpt2  # noqa: PLC0415 - likewise

    accelerate.state.AcceleratorState._reset_state(True)
    try:
        accelerator = zinf.accelerate.Accelerator(cpu=True, mixed_precision="fp16")
        with pytest.raises(zinf.InvalidArgument, match="needs a model: call prepare"):
            accelerator.backward(torch.zeros(1, requires_grad=True))
        model = gpt2()
        optimizer = torch.optim.AdamW(model.parameters())
        model, optimizer = zinf.prepare(
            model, optimizer, socket_path=daemon, job="acc-16", rank=0, world_size=1
        )
        with pytest.raises(zinf.InvalidArgument, match="prepared without a loss scale"):
            accelerator.prepare(model, optimizer)
        with pytest.raises(zinf.InvalidArgument, match="closure cannot be used"):
            accelerator.scaler.step(optimizer, lambda: None)
        with pytest.raises(zinf.InvalidArgument, match="daemon keeps the loss scale"):
            accelerator.scaler.update(2.0)
        engine = zinf.engine_of(model)
        assert engine is not None
        accelerator.save_model(model, tmp_path)
        read = gpt2(seed=9)
        zinf.checkpoint.load_model(read, tmp_path)
        for name, value in model.state_dict().items():
            assert torch.equal(value, read.state_dict()[name])
        engine.close(delete_job=True)
        with pytest.raises(zinf.InvalidArgument, match="loss_scale has size=2"):
            zinf.Config.load(loss_scale={"size": 2})
    finally:
        accelerate.state.AcceleratorState._reset_state(True)


def test_a_saved_state_continues_with_the_same_bits(daemon: str, tmp_path: Path) -> None:
    whole = run(tmp_path, 2, kind="zinf", dropout=0.1)
    saved = str(tmp_path / "state")
    # A state is saved after step 3 and loaded after step 6. Each epoch has the same 3 steps.
    back = run(
        tmp_path, 2, kind="zinf", dropout=0.1, steps=11, save={"3": saved}, load={"6": saved}
    )
    assert [line[1:] for line in back["log"][:6]] == [line[1:] for line in whole["log"][:6]]
    assert [line[1:] for line in back["log"][6:11]] == [line[1:] for line in whole["log"][3:8]]
    assert back["sum"] == whole["sum"]
    files = {
        "model.safetensors",
        "optimizer.bin",
        "random_states_0.pkl",
        "random_states_1.pkl",
        "scheduler.bin",
    }
    assert files | {"zinf.json"} == set(os.listdir(saved))
    # Another process begins with the saved state. The first job is gone, its snapshot is not.
    later = run(tmp_path, 2, kind="zinf", dropout=0.1, steps=5, load={"0": saved})
    assert [line[1:] for line in later["log"]] == [line[1:] for line in whole["log"][3:8]]
    assert later["sum"] == whole["sum"]


def test_total_limit_removes_snapshots(daemon: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    result = run(tmp_path, 1, kind="zinf", steps=5, project=str(project), total_limit=2)
    assert sorted(os.listdir(project / "checkpoints")) == ["checkpoint_3", "checkpoint_4"]
    assert len(result["snapshots"]) == 2


def test_a_state_without_its_snapshot_is_refused(daemon: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    tried = run(tmp_path, 1, kind="zinf", load={"1": str(other)}, fails=True)
    assert tried["code"] != 0
    assert "has no zinf.json: zinf's save_state() did not write it" in tried["output"]
    reference = {
        "format": "zinf-reference",
        "version": 1,
        "job": "x",
        "snapshot": "y",
        "step": 3,
        "world_size": 1,
    }
    (other / "zinf.json").write_text(json.dumps(reference))
    tried = run(tmp_path, 1, kind="zinf", load={"1": str(other)}, fails=True)
    assert tried["code"] != 0
    assert "needs the snapshot x/y of step 3" in tried["output"]
