# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D205
"""Goal: a checkpoint continues with the bits of an uninterrupted run, whatever ended the last run.
Method: two ranks with dropout and shuffled data end by SIGKILL; parameters and log are compared.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Callable

import pytest
from conftest import Ranks, start
from zinf import admin
from zinf.reference import Reference
from zinf.scratch import name_for

NVME = {"strategy": "zero3", "offload_param": "nvme", "offload_optimizer": "nvme"}


def case(directory: Path, **more: Any) -> dict[str, Any]:
    args = {
        "output_dir": str(directory),
        "max_steps": 10,
        "gradient_accumulation_steps": 2,
        "save_strategy": "steps",
        "save_steps": 3,
        "weight_decay": 0.1,
        **more.pop("args", {}),
    }
    # 6 batches of a rank: the run ends in its fourth epoch.
    common = {"name": "x", "trainer": "zinf", "zinf": NVME, "data": {"count": 24}}
    return {**common, "model_args": {"dropout": 0.1}, "args": args, **more}


def figures(result: dict[str, Any], first: int) -> list[tuple[float, ...]]:
    return [
        (line["step"], line["loss"], line["grad_norm"], line["learning_rate"])
        for line in result["log"]
        if "loss" in line and line["step"] > first
    ]


@pytest.fixture(scope="module")
def whole(daemon: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An uninterrupted run of two ranks."""
    directory = tmp_path_factory.mktemp("whole")
    done = start([case(directory / "out")], 2, directory)
    assert done.code == 0, done.output
    result: dict[str, Any] = done.results["x"]
    return result


@pytest.mark.parametrize(
    ("kill", "step"),
    [
        ({"rank": 1, "step": 8, "where": "step"}, 6),
        ({"rank": -1, "step": 9, "where": "save"}, 9),
        ({"rank": 0, "step": 4, "where": "raise"}, 3),
    ],
    ids=["one rank", "all ranks", "exception"],
)
def test_resumes_with_the_same_bits(
    whole: dict[str, Any],
    ranks: Callable[..., Ranks],
    tmp_path: Path,
    kill: dict[str, Any],
    step: int,
) -> None:
    ended = ranks([case(tmp_path / "out", kill=kill)], 2, "killed")
    assert ended.code != 0
    if kill["where"] == "raise":
        assert "ZeroDivisionError: the test raises here" in ended.output
    resumed = ranks([case(tmp_path / "out", resume=True)], 2, "resumed")
    assert resumed.code == 0, resumed.output
    result = resumed.results["x"]
    assert figures(result, step) == figures(whole, step)
    assert result["digest"] == whole["digest"]


def test_checkpoints_come_and_go_with_their_snapshots(
    ranks: Callable[..., Ranks], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    kept = case(
        out, name="limit", args={"save_steps": 2, "save_total_limit": 2}, actions=["snapshots"]
    )
    again = {**kept, "name": "again"}
    best = case(
        tmp_path / "best",
        name="best",
        # A learning rate at which the loss soon grows again.
        args={
            "save_steps": 2,
            "save_total_limit": 1,
            "eval_strategy": "steps",
            "eval_steps": 2,
            "load_best_model_at_end": True,
            "learning_rate": 0.2,
            "lr_scheduler_type": "constant",
        },
        actions=["snapshots", "evaluate", "save_model"],
    )
    done = ranks([kept, again, best], 1)
    assert done.code == 0, done.output
    for name in ("limit", "again"):
        assert list(done.results[name]["files"]) == ["checkpoint-10", "checkpoint-8"]
        assert len(done.results[name]["snapshots"]) == 2
    references = [Reference.read(str(out / f"checkpoint-{step}")) for step in (8, 10)]
    assert [r.snapshot for r in references if r] == done.results["again"]["snapshots"]
    assert done.results["limit"]["digest"] == done.results["again"]["digest"]

    result = done.results["best"]
    losses = {line["step"]: line["eval_loss"] for line in result["log"] if "eval_loss" in line}
    least = min(losses, key=lambda step: losses[step])
    assert least < 10
    assert result["best"].endswith(f"checkpoint-{least}")
    assert list(result["files"]) == [f"checkpoint-{least}"]
    assert len(result["snapshots"]) == 1
    assert result["evaluate"]["eval_loss"] == losses[least]
    assert result["saved_digest"] == result["digest"]


def test_checkpoints_that_cannot_resume_are_refused(
    ranks: Callable[..., Ranks], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = ranks(
        [
            case(out, args={"max_steps": 6}),
            case(tmp_path / "only", name="only", args={"max_steps": 3, "save_only_model": True}),
        ]
    )
    assert first.code == 0, first.output
    # The newest checkpoint looks like one whose writing was cut off.
    (out / "checkpoint-6/trainer_state.json").write_text('{"epoch": 1,')
    gone = Reference.read(str(out / "checkpoint-3"))
    assert gone is not None
    admin.delete_snapshot(gone.source)
    shutil.copytree(out / "checkpoint-3", tmp_path / "other")
    shutil.copytree(out / "checkpoint-3", tmp_path / "bare")
    (tmp_path / "other/zinf.json").write_text("[]")
    (tmp_path / "bare/zinf.json").unlink()
    tried = ranks(
        [
            case(out, name="gone", resume=True, error=1),
            case(out, name="cut", resume=str(out / "checkpoint-6"), error=1),
            case(out, name="none", resume=str(out / "checkpoint-9"), error=1),
            case(tmp_path / "empty", name="empty", resume=True, error=1),
            case(out, name="bare", resume=str(tmp_path / "bare"), error=1),
            case(out, name="damaged", resume=str(tmp_path / "other"), error=1),
            case(tmp_path / "only", name="only", resume=True),
        ],
        1,
        "tried",
    )
    assert tried.code == 0, tried.output
    errors = {name: result.get("error") for name, result in tried.results.items()}
    assert f"checkpoint-3 needs the snapshot {gone.source} of step 3" in errors["gone"]
    assert "load them with from_pretrained(), and train without resuming" in errors["gone"]
    assert (
        "checkpoint-6 is no complete checkpoint: trainer_state.json is missing or damaged"
        in errors["cut"]
    )
    assert "checkpoint-9 is no complete checkpoint" in errors["none"]
    assert "No valid checkpoint found" in errors["empty"]
    assert "optimizer.pt has no state, and there is no zinf.json" in errors["bare"]
    assert "is no reference to a snapshot" in errors["damaged"]
    # Weights and data continue, the optimizer's state is new.
    assert tried.results["only"]["events"].count("on_step_end") == 7
    assert [line[0] for line in figures(tried.results["only"], 0)] == list(range(1, 11))


@pytest.mark.parametrize(
    ("count", "more"),
    [
        (1, {"optim": "sgd", "optim_args": "momentum=0.9", "learning_rate": 0.1}),
        (2, {"lr_scheduler_type": "cosine", "warmup_steps": 2}),
    ],
    ids=["sgd", "adamw"],
)
def test_a_checkpoint_of_the_stock_trainer_continues(
    ranks: Callable[..., Ranks], tmp_path: Path, count: int, more: dict[str, Any]
) -> None:
    # Dropout and the order of the data continue as well: the checkpoint has the random states.
    whole = ranks([case(tmp_path / "stock", trainer="stock", args=more)], count, "whole")
    assert whole.code == 0, whole.output
    saved = str(tmp_path / "stock/checkpoint-6")
    later = ranks([case(tmp_path / "out", resume=saved, args=more)], count, "later")
    assert later.code == 0, later.output
    ours, stock = figures(later.results["x"], 6), figures(whole.results["x"], 6)
    assert [line[0] for line in ours] == [7, 8, 9, 10]
    for mine, theirs in zip(ours, stock):
        assert mine == pytest.approx(theirs, rel=1e-5)


def test_a_trainer_trains_and_resumes_again_in_its_process(
    ranks: Callable[..., Ranks], tmp_path: Path
) -> None:
    actions = ["resume_first", "train_again", "snapshots"]
    done = ranks([case(tmp_path / "out", actions=actions)], 2)
    assert done.code == 0, done.output
    result = done.results["x"]
    assert result["resumed_digest"] == result["digest"]
    assert result["again"] == list(range(1, 11))
    assert result["is_same_engine"]
    # The job after the resume has another name: its snapshots are those of the last training.
    assert len(result["snapshots"]) == 4


def test_the_jobs_of_a_script_end_with_it(
    daemon: str, ranks: Callable[..., Ranks], tmp_path: Path
) -> None:
    done = ranks([case(tmp_path / "out", args={"max_steps": 2})], 2)
    assert done.code == 0, done.output
    assert name_for(str(tmp_path / "out")) not in json.dumps(admin.jobs())
