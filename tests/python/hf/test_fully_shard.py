# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D205
"""Goal: a script of FSDP2 computes over zinf what it computes with torch's fully_shard().
Method: the same loop with both in the same processes, one rank and two, ten steps of real text:
losses, norms and rates of all steps are compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Ranks, start

CASES: dict[str, dict[str, Any]] = {
    "gpt2": {"state": True},
    "llama": {"model": "llama", "nested": True},
    "checkpointing": {"model": "llama", "checkpointing": False},
    "reentrant": {"checkpointing": True},
    "accumulation": {"model": "llama", "accumulation": 3},
    "shapes": {"lengths": [32, 7, 19, 24, 3]},
    "lora": {"model": "llama", "lora": True},
    "lora and checkpointing": {"model": "gpt2", "lora": True, "checkpointing": True},
    "lora and a saved module": {"model": "llama", "lora": True, "save": ["lm_head"]},
    "unused": {"model": "llama", "unused": True},
}
# Rounding to bfloat16 happens at the same places, but the master begins with rounded values.
LOOSE: dict[str, dict[str, Any]] = {"bf16": {"model": "llama", "bf16": True}}
COMPILED: dict[str, dict[str, Any]] = {
    "compiled": {"model": "llama", "compile": "model"},
    "compiled inside": {"model": "llama", "compile": "inner"},
}


@pytest.fixture(scope="module", params=[1, 2])
def done(request: pytest.FixtureRequest, daemon: str, tmp_path_factory: Any) -> Ranks:
    cases = []
    for name, case in {**CASES, **LOOSE, **COMPILED}.items():
        for kind in ("stock", "zinf"):
            # torch's FSDP2 and compiled code are not what is tested here.
            more = {"compile": None} if kind == "stock" else {}
            cases.append({"model": "gpt2", **case, **more, "name": f"{name} {kind}", "kind": kind})
    directory: Path = tmp_path_factory.mktemp(f"fsdp{request.param}")
    return start(cases, request.param, directory, program="fsdp_worker.py")


def compare(done: Ranks, name: str, tolerance: float) -> dict[str, Any]:
    assert done.code == 0, done.output
    stock, zinf = done.results[f"{name} stock"], done.results[f"{name} zinf"]
    assert len(stock["log"]) == len(zinf["log"]) == 10
    for ours, theirs in zip(zinf["log"], stock["log"]):
        assert ours == pytest.approx(theirs, rel=tolerance)
    assert zinf["class"] == "zinf.optim"
    assert zinf["units"] == (5 if name == "llama" else 3)
    result: dict[str, Any] = zinf
    return result


@pytest.mark.parametrize("name", list(CASES))
def test_equals_torchs_fully_shard(done: Ranks, name: str) -> None:
    zinf = compare(done, name, 1e-5)
    assert zinf["dtypes"] == ["torch.float32"]
    if name == "gpt2":
        assert zinf["state"] == ["Tensor"]


def test_bfloat16_follows_torchs_fully_shard(done: Ranks) -> None:
    zinf = compare(done, "bf16", 0.02)
    assert zinf["dtypes"] == ["torch.bfloat16"]


def test_a_compiled_model_runs_uncompiled_and_says_so(done: Ranks) -> None:
    zinf = compare(done, "compiled", 1e-5)
    assert [text for text in zinf["warnings"] if "runs uncompiled" in text]


def test_compiled_code_inside_the_model_is_refused(done: Ranks) -> None:
    assert done.code == 0, done.output
    error = done.results["compiled inside zinf"]["error"]
    assert error.startswith("ReadOnlyParameter: torch.compile()")
    assert "Train without torch.compile()" in error
