# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D205
"""Goal: a script of DeepSpeed with one changed line computes what it computed, and continues.
Method: the script runs under the package deepspeed, on the CPU, and under zinf.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import HERE
from zinf.deepspeed import schedules
from zinf.deepspeed.zero_checkpoint import ZeroCheckpoint

SCRIPT = (HERE / "deepspeed_script.py").read_text()
LINE = "import deepspeed\n"
assert SCRIPT.count(LINE) == 1

ADAMW = {"type": "AdamW", "params": {"lr": 2e-3, "weight_decay": 0.1}}
WARMUP = {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 3, "total_num_steps": 12,
                                              "warmup_max_lr": 3e-3}}  # fmt: skip


def config(stage: int, accumulation: int = 1, **keys: Any) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 0.5,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "optimizer": {**ADAMW, "params": {**ADAMW["params"], "torch_adam": True}},
        **keys,
    }


def run(directory: Path, kind: str, count: int = 1, fails: bool = False, **spec: Any) -> Any:
    """Run the script under a package. Return what it wrote; with `fails` its output."""
    number = len(os.listdir(directory))
    path, out = directory / f"{number}.json", directory / f"{number}.out"
    path.write_text(json.dumps({"model": "gpt2", "steps": 8, **spec, "out": str(out)}))
    script = directory / f"with_{kind}.py"
    script.write_text(
        SCRIPT.replace(LINE, "import zinf as deepspeed\n" if kind == "zinf" else LINE)
    )
    environment = {**os.environ, "MODELS": str(HERE), "DS_ACCELERATOR": "cpu"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(count), str(script), str(path)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory,
        timeout=500, check=False, env=environment,
    )  # fmt: skip
    if fails:
        assert done.returncode != 0
        return done.stdout
    assert done.returncode == 0, done.stdout[-5000:]
    return json.loads(out.read_text())


def compare(ours: Any, stock: Any, tolerance: float = 1e-5) -> None:
    assert len(ours["log"]) == len(stock["log"]) > 0
    for mine, theirs in zip(ours["log"], stock["log"]):
        assert mine[0] == pytest.approx(theirs[0], rel=tolerance)
        if theirs[1] is not None:  # DeepSpeed has no norm without ZeRO and 16 bits
            assert mine[1] == pytest.approx(theirs[1], rel=max(1e-4, tolerance))
        assert mine[2] == theirs[2]


@pytest.mark.parametrize(
    ("stage", "count", "spec"),
    [
        (0, 1, {"config": config(0, 2)}),
        (2, 1, {"config": config(2, 2, scheduler=WARMUP)}),
        (3, 1, {"config": config(3, scheduler=WARMUP), "model": "llama"}),
        (3, 1, {"config": config(3), "has_data": True}),
        (2, 2, {"config": config(2, 2, scheduler=WARMUP)}),
        (3, 2, {"config": config(3), "is_deferred": True}),
    ],
)
def test_a_script_computes_what_it_computed(
    daemon: str, tmp_path: Path, stage: int, count: int, spec: dict[str, Any]
) -> None:
    # Transformers initialises a model inside DeepSpeed's zero.Init only with its own integration.
    stock = run(tmp_path, "deepspeed", count, **{**spec, "is_deferred": False})
    compare(run(tmp_path, "zinf", count, **spec), stock)


def test_an_optimizer_of_the_script(daemon: str, tmp_path: Path) -> None:
    keys = config(2)
    del keys["optimizer"]
    spec = {"config": keys, "optimizer": True}
    compare(run(tmp_path, "zinf", **spec), run(tmp_path, "deepspeed", **spec))


def test_bfloat16(daemon: str, tmp_path: Path) -> None:
    spec = {"config": config(2, bf16={"enabled": True}), "model": "llama"}
    compare(run(tmp_path, "zinf", **spec), run(tmp_path, "deepspeed", **spec), 2e-2)


def test_float16(daemon: str, tmp_path: Path) -> None:
    # DeepSpeed refuses float16 on the CPU: its float32 is the measure.
    fp16 = {"enabled": True, "initial_scale_power": 8}
    spec = {"config": config(2, fp16=fp16), "model": "llama"}
    stock = run(tmp_path, "deepspeed", **{**spec, "config": config(2)})
    compare(run(tmp_path, "zinf", **spec), stock, 2e-2)
    # A scale that overflows: steps are skipped, and the schedule waits.
    fp16 = {"enabled": True, "initial_scale_power": 24, "hysteresis": 1}
    spec = {"config": config(2, fp16=fp16, scheduler=WARMUP), "steps": 16}
    rates = [line[2] for line in run(tmp_path, "zinf", **spec)["log"]]
    waited = sum(a == b for a, b in zip(rates[2:], rates[3:]))
    assert waited > 3
    assert rates[-1] > 0


@pytest.mark.parametrize("count", [1, 2])
def test_a_saved_state_continues_with_the_same_bits(
    daemon: str, tmp_path: Path, count: int
) -> None:
    saved = str(tmp_path / "saved")
    spec = {"config": config(3, 2, scheduler=WARMUP)}
    whole = run(tmp_path, "zinf", count, save=saved, **spec)
    later = run(tmp_path, "zinf", count, load=saved, **spec)
    assert later["log"] == whole["log"][4:]
    assert later["sum"] == whole["sum"]


@pytest.mark.parametrize(("stage", "count"), [(0, 1), (1, 1), (2, 2), (3, 2)])
def test_deepspeeds_checkpoint_continues(
    daemon: str, tmp_path: Path, stage: int, count: int
) -> None:
    saved = str(tmp_path / "saved")
    spec = {"config": config(stage, scheduler=WARMUP)}
    stock = run(tmp_path, "deepspeed", count, save=saved, **spec)
    found = ZeroCheckpoint(os.path.join(saved, "global_step4"))
    if stage:
        from deepspeed.utils import zero_to_fp32  # noqa: PLC0415 - loading it takes seconds

        theirs = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(saved)
        assert {name for name in theirs if name in found} == set(theirs)
        for name, value in theirs.items():
            assert torch.equal(found.tensor(name), value), name
    # Its weights, optimizer state, counts and schedule, also on another number of ranks.
    later = run(tmp_path, "zinf", count, load=saved, **spec)
    compare(later, {"log": stock["log"][4:]})
    if count == 2:
        alone = run(tmp_path, "zinf", 1, load=saved, **spec)
        assert [line[2] for line in alone["log"]] == [line[2] for line in stock["log"]][4:]
    # Without the optimizer state
    later = run(tmp_path, "zinf", count, load=saved, only_weights=True, **spec)
    # The loss of the first step is that of the same weights and batch.
    assert later["log"][0][0] == pytest.approx(stock["log"][4][0], rel=1e-5)
    assert [line[2] for line in later["log"]][1:] == [line[2] for line in stock["log"]][5:]


def test_schedules_have_the_values_of_deepspeed() -> None:
    from deepspeed.runtime import lr_schedules  # noqa: PLC0415 - loading it takes seconds

    def optimizer(kind: Any) -> Any:
        groups = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
        parts = [{"params": [groups[0]], "lr": 0.02}, {"params": [groups[1]], "lr": 0.3}]
        return kind(parts, lr=0.1)

    cycle = {"cycle_min_lr": 0.001, "cycle_max_lr": 0.01, "cycle_first_step_size": 10}
    lists = {"cycle_min_lr": [0.001, 0.002], "cycle_max_lr": [0.01, 0.03]}
    total = {"total_num_steps": 40, "warmup_num_steps": 10}
    cases: list[tuple[str, dict[str, Any]]] = [
        ("LRRangeTest", {}),
        ("LRRangeTest", {"lr_range_test_step_size": 7, "lr_range_test_step_rate": 0.5,
                         "lr_range_test_staircase": True, "lr_range_test_min_lr": [0.1, 0.2]}),
        ("OneCycle", {**cycle, "decay_step_size": 3, "decay_lr_rate": 0.1, "decay_mom_rate": 1e-3}),
        ("OneCycle", {**cycle, **lists, "cycle_second_step_size": 15, "cycle_first_stair_count": 3,
                      "cycle_second_stair_count": 4}),
        ("OneCycle", {**cycle, "cycle_momentum": False}),
        ("WarmupLR", {}),
        ("WarmupLR", {"warmup_num_steps": 12, "warmup_type": "linear", "warmup_max_lr": [0.1, 0.2],
                      "warmup_min_lr": 0.01}),
        ("WarmupLR", {"warmup_num_steps": 1}),
        ("WarmupDecayLR", total),
        ("WarmupDecayLR", {**total, "warmup_max_lr": 0.5, "warmup_type": "linear"}),
        ("WarmupCosineLR", total),
        ("WarmupCosineLR", {**total, "warmup_min_ratio": 0.1, "cos_min_ratio": 0.2,
                            "warmup_type": "linear"}),
    ]  # fmt: skip
    for kind in (torch.optim.AdamW, torch.optim.SGD):
        for name, keys in cases:
            ours, theirs = optimizer(kind), optimizer(kind)
            mine = getattr(schedules, name)(ours, **keys)
            other = getattr(lr_schedules, name)(theirs, **keys)
            for step in range(60):
                for a, b in zip(ours.param_groups, theirs.param_groups):
                    assert a["lr"] == pytest.approx(b["lr"], rel=1e-12), (name, step)
                    if "betas" in b:
                        assert a["betas"] == pytest.approx(b["betas"], rel=1e-12), (name, step)
                mine.step()
                other.step()
            assert mine.get_last_lr() == [group["lr"] for group in ours.param_groups]
            assert mine.state_dict() == other.state_dict()
