# SPDX-License-Identifier: Apache-2.0
"""A short list of cases that has every pair of values of a product."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any


def pairs_of(case: Mapping[str, Any]) -> set[tuple[tuple[str, Any], tuple[str, Any]]]:
    return set(itertools.combinations(case.items(), 2))


def product(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(values, chosen)) for chosen in itertools.product(*values.values())]


def pairwise(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Choose the case with most missing pairs until none is missing; of equal ones the first."""
    every = product(values)
    missing = set().union(*map(pairs_of, every))
    chosen = []
    while missing:
        best = max(every, key=lambda case: len(pairs_of(case) & missing))
        missing -= pairs_of(best)
        chosen.append(best)
    return chosen
