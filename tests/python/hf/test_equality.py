# SPDX-License-Identifier: Apache-2.0
"""50 steps of training by zinf are those of DDP and torch's AdamW, whatever lies where.

Losses and norms of f32 are torch's. Those of bf16 are no further from torch's f32 than torch's
bf16. Strategies and places give the same bits. By default the cases have every pair of values;
CASES=all runs the product.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any, Callable

import pairs
import pytest

VALUES: dict[str, list[Any]] = {
    "ranks": [1, 2, 4],
    "strategy": ["ddp", "zero1", "zero2", "zero3"],
    "offload": ["none", "cpu", "nvme"],
    "dtype": ["float32", "bfloat16"],
    "accumulation": [1, 4],
    "checkpointing": [False, True],
    "tied": [True, False],
}
CASES = pairs.product(VALUES) if os.environ.get("CASES") == "all" else pairs.pairwise(VALUES)
LOSS, NORM = 1e-5, 1e-4  # relative


def name_of(case: dict[str, Any]) -> str:
    kinds = ["checkpointing"] * case["checkpointing"] + ["tied" if case["tied"] else "untied"]
    words = [case["strategy"], case["offload"], case["dtype"], f"by{case['accumulation']}", *kinds]
    return "-".join([f"ranks{case['ranks']}", *words])


@pytest.fixture(scope="module")
def results(
    daemon: str, tmp_path_factory: Any, start_ranks: Callable[..., Any]
) -> Callable[[int], dict[str, Any]]:
    """Results by name of the case, of one start for all cases of a number of ranks."""
    known: dict[int, dict[str, Any]] = {}

    def run(ranks: int) -> dict[str, Any]:
        if ranks not in known:
            cases = [case for case in CASES if case["ranks"] == ranks]
            directory: Path = tmp_path_factory.mktemp(f"ranks-{ranks}")
            done = start_ranks(
                cases, ranks, directory, program="equality_worker.py", timeout=60 + 120 * len(cases)
            )
            assert done.code == 0, done.output
            known[ranks] = {name_of(c): r for c, r in zip(cases, done.results)}
        return known[ranks]

    return run


def test_cases_have_every_pair_of_values() -> None:
    had = set().union(*map(pairs.pairs_of, CASES))
    for (one, values), (other, others) in itertools.combinations(VALUES.items(), 2):
        for pair in itertools.product(values, others):
            assert ((one, pair[0]), (other, pair[1])) in had


def distances(run: dict[str, Any], reference: dict[str, Any], what: str) -> list[float]:
    assert len(run[what]) == len(reference[what]) == 50
    return [abs(a - b) / abs(b) for a, b in zip(run[what], reference[what])]


@pytest.mark.parametrize("case", CASES, ids=map(name_of, CASES))
def test_training_equals_torch(case: dict[str, Any], results: Any) -> None:
    found = results(case["ranks"])[name_of(case)]
    ours, f32, bf16 = found["zinf"], found["f32"], found["bf16"]
    assert [x.hex() for x in ours["losses"]] == [x.hex() for x in found["base"]["losses"]]
    assert [x.hex() for x in ours["norms"]] == [x.hex() for x in found["base"]["norms"]]
    assert f32["losses"][-1] < 0.8 * f32["losses"][0]  # it learns
    if bf16 is None:
        assert max(distances(ours, f32, "losses")) <= LOSS
        assert max(distances(ours, f32, "norms")) <= NORM
    else:
        assert sum(distances(ours, f32, "losses")) <= sum(distances(bf16, f32, "losses"))
