# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D205
"""Goal: zinf's Trainer logs what the unmodified Trainer logs, with one rank and with two.
Method: pairs of trainings in the same processes, on real text; all figures are compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Ranks, start

NVME = {"strategy": "zero3", "offload_param": "nvme", "offload_optimizer": "nvme"}
FIGURES = ("loss", "grad_norm", "learning_rate", "eval_loss", "epoch", "step", "train_loss")
CASES: dict[str, dict[str, Any]] = {
    # 11 batches of a rank: the last step of an epoch has 2 of 3 micro-batches.
    "accumulation": {
        "data": {"count": 22},
        "args": {
            "max_steps": -1,
            "num_train_epochs": 2,
            "gradient_accumulation_steps": 3,
            "lr_scheduler_type": "cosine",
            "warmup_steps": 2,
            "weight_decay": 0.1,
        },
        "zinf": NVME,
    },
    "llama": {
        "model": "llama",
        "args": {"max_grad_norm": 0.5, "weight_decay": 0.1, "optim": "adamw_torch"},
        "zinf": NVME,
    },
    "bert": {
        "model": "bert",
        "args": {"optim": "adagrad", "max_grad_norm": 0.0, "learning_rate": 0.01},
    },
    "sgd": {"args": {"optim": "sgd", "learning_rate": 0.1}, "zinf": {"strategy": "zero2"}},
    "autocast": {"args": {"bf16": True}, "zinf": NVME},
    "checkpointing": {
        "model": "llama",
        "args": {"gradient_checkpointing": True, "logging_steps": 2, "optim": "adamw_torch_fused"},
        "zinf": {**NVME, "strategy": "zero2"},
    },
    "untied": {"model_args": {"tie_word_embeddings": False}, "zinf": {"offload_optimizer": "cpu"}},
    "evaluation": {
        "args": {
            "eval_strategy": "steps",
            "eval_steps": 2,
            "save_strategy": "steps",
            "save_steps": 3,
            "eval_on_start": True,
        },
        "zinf": NVME,
        "actions": ["evaluate", "predict", "save_model"],
    },
}
TWO = ("accumulation", "llama", "autocast", "evaluation")


@pytest.fixture(scope="module")
def one(daemon: str, tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return run(list(CASES), 1, tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def two(daemon: str, tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return run(list(TWO), 2, tmp_path_factory.mktemp("two"))


def run(names: list[str], count: int, directory: Path) -> Ranks:
    cases = []
    for name in names:
        for trainer in ("stock", "zinf"):
            case = {**CASES[name], "name": f"{name} {trainer}", "trainer": trainer}
            case["args"] = {
                **case.get("args", {}),
                "output_dir": str(directory / f"{name}-{trainer}"),
            }
            cases.append(case)
    done = start(cases, count, directory)
    assert done.code == 0, done.output
    return done


def compare(done: Ranks, name: str) -> None:
    stock, zinf = done.results[f"{name} stock"], done.results[f"{name} zinf"]
    assert len(zinf["log"]) == len(stock["log"]) > 2
    seen = set()
    for ours, theirs in zip(zinf["log"], stock["log"]):
        assert ours.keys() == theirs.keys()
        for key in set(FIGURES) & ours.keys():
            seen.add(key)
            assert ours[key] == pytest.approx(theirs[key], rel=1e-5, abs=1e-12), (key, ours, theirs)
    assert {"loss", "grad_norm", "learning_rate"} <= seen
    assert zinf["events"] == stock["events"]
    assert "DistributedDataParallel" not in zinf["wrapper"]
    assert zinf["digest"] != stock["digest"] or zinf["log"] == stock["log"]


@pytest.mark.parametrize("name", list(CASES))
def test_one_rank_logs_what_the_stock_trainer_logs(one: Ranks, name: str) -> None:
    compare(one, name)


@pytest.mark.parametrize("name", TWO)
def test_two_ranks_log_what_the_stock_trainer_logs(two: Ranks, name: str) -> None:
    compare(two, name)
    assert two.results[f"{name} stock"]["wrapper"] == "DistributedDataParallel"


@pytest.mark.parametrize("count", [1, 2])
def test_evaluate_predict_and_save_model(one: Ranks, two: Ranks, count: int) -> None:
    results = (one if count == 1 else two).results
    stock, zinf = results["evaluation stock"], results["evaluation zinf"]
    assert zinf["evaluate"]["eval_loss"] == pytest.approx(stock["evaluate"]["eval_loss"], rel=1e-5)
    assert zinf["predict"] == pytest.approx(stock["predict"], rel=1e-4)
    assert zinf["saved"] == stock["saved"]
    assert zinf["saved_digest"] == zinf["digest"]
    assert sorted(zinf["files"]) == sorted(stock["files"]) == ["checkpoint-3", "checkpoint-6"]
    for step, files in zinf["files"].items():
        assert files == sorted([*stock["files"][step], "zinf.json"])
