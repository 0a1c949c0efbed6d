# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - names of unittest
"""Tests of torch's distributed_test.py over zinf: torch_worker.py RANKS OUT [NAME...].

The file is torch's, in the installed package. It runs as upstream runs it for a backend, with these
changes:

- The backend's name takes the place of "gloo" and "mpi" in conditions that choose tests, so that
  tests of these alone run as well.
- A test's ranks are forked from this process, which has imported torch once. A test that needs a
  GPU starts no rank.
- Groups of the ranks 1 and 2 are tested from three ranks on. Upstream asks for eight.
- The package expecttest need not be installed: the file uses nothing of it.
- Ranks may be 120 seconds apart at the barrier around a test: the machine may be busy.

OUT: outcome by name: "passed", "skipped: REASON" or "failed: TEXT".
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import sys
import tempfile
import types
import unittest
from typing import Any, Callable

RANKS, OUT, *NAMES = sys.argv[1:]
os.environ.update(BACKEND="zinf", WORLD_SIZE=RANKS, TEMP_DIR=tempfile.mkdtemp())

_expecttest = types.ModuleType("expecttest")
_expecttest.TestCase = unittest.TestCase  # type: ignore[attr-defined]
sys.modules.setdefault("expecttest", _expecttest)

import torch  # noqa: E402 - after the variables
import zinf.distributed  # noqa: E402, F401 - it registers the backend
from torch.testing._internal import common_distributed as common  # noqa: E402

Function = Callable[..., Any]
APART_S = 120


def needs_gpus(count: Any) -> Callable[[Function], Function]:
    return unittest.skip(f"needs {count} GPUs")


def needs_a_gpu(function: Function) -> Function:
    return unittest.skip("needs a GPU")(function)


def from_three_ranks(function: Function) -> Function:
    return unittest.skipIf(int(RANKS) < 3, "needs 3 ranks")(function)


def patient_sync(sync: Function, wait_for: int | None = None, timeout: float = 0) -> None:
    sync(wait_for, max(timeout, APART_S))


def changed() -> types.ModuleType:
    """Return torch's file as a module."""
    common.skip_if_lt_x_gpu = needs_gpus
    common.skip_if_no_gpu = needs_a_gpu
    common.skip_if_small_worldsize = from_three_ranks
    for feature in ("gpu", "cuda", "ddp", "subgroup", "plugin"):
        common.DistTestCases.backend_feature[feature].add("zinf")
    name = "torch.testing._internal.distributed.distributed_test"
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin, encoding="utf-8") as file:
        text = file.read()
    for former, new in (
        ('BACKEND != "gloo"', 'BACKEND != "zinf"'),
        ('BACKEND == "gloo"', 'BACKEND == "zinf"'),
        ('BACKEND != "mpi"', 'BACKEND != "zinf"'),
        ('@require_backend_is_available({"gloo"})', '@require_backend_is_available({"zinf"})'),
    ):
        assert former in text
        text = text.replace(former, new)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(compile(text, spec.origin, "exec", dont_inherit=True), module.__dict__)
    module.Barrier.sync = functools.partial(patient_sync, module.Barrier.sync)
    return module


upstream = changed()


class TestZinf(upstream.TestDistBackend, upstream.DistributedTest._DistTestBase):  # type: ignore
    """Upstream's tests, with forked ranks."""

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Outcome(unittest.TestResult):
    """Outcome by name of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}

    def note(self, test: unittest.TestCase, text: str) -> None:
        self.texts.setdefault(test.id().rsplit(".", 1)[1], text)
        print(test.id().rsplit(".", 1)[1], text, flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.note(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.note(test, f"skipped: {reason}")

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self.note(test, f"failed: {self._exc_info_to_string(err, test)}")

    addFailure = addError  # noqa: N815


loader = unittest.TestLoader()
suite = loader.loadTestsFromTestCase(TestZinf)
if NAMES:
    suite = unittest.TestSuite(test for test in suite if test.id().rsplit(".", 1)[1] in NAMES)
outcome = Outcome()
suite.run(outcome)
with open(OUT, "w", encoding="utf-8") as file:
    json.dump(outcome.texts, file, indent=1)
