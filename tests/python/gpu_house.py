# SPDX-License-Identifier: Apache-2.0
"""What the tests of the fake GPU share: a daemon with GPUs, ranks, and models prepared there."""

from __future__ import annotations

import itertools
import os
import subprocess
import unittest
from typing import Any, Callable

import fake_cuda
import house
import torch_models as models
import zinf

CHUNK = fake_cuda.CHUNK
# Of five blocks, an embedding and the rest, which has a chunk of its own.
THREE = {"gpu_param_budget_bytes": 4 * CHUNK}
ZERO3: dict[str, Any] = {"strategy": "zero3"}

_daemon: subprocess.Popen[bytes] | None = None
_name = ""
_numbers = itertools.count()


def start() -> None:
    """Start a daemon with two GPUs for a file of tests: its setUpModule."""
    global _daemon, _name  # noqa: PLW0603 - one daemon for each file
    if not os.path.exists(fake_cuda.DRIVER):
        raise unittest.SkipTest(f"there is no {fake_cuda.DRIVER}: make check-python builds it")
    sets = (*house.SETS, "gpu.enable=yes", f"gpu.driver={fake_cuda.DRIVER}", "gpu.reserve=none")
    _name = f"gpu-{next(_numbers)}"
    _daemon = house.start_daemon(_name, *sets, environment={"ZINF_FAKE_GPU": "gpus=2"})


def stop() -> None:
    """Stop it: the tearDownModule of the file."""
    if _daemon is not None:
        _daemon.terminate()
        _daemon.wait(60)


def socket() -> str:
    return os.path.join(house.path_of(_name), "zinfd.sock")


def run(
    function: Callable[..., Any], *words: Any, ranks: int = 1, fake: str = "", job: str = ""
) -> list[Any]:
    """Run a function as ranks of a job. Return the first value that each sent."""
    job = job or f"gpu-{next(_numbers)}"
    processes = []
    for rank in range(ranks):
        environment = house.rank_environment(rank, ranks, job, socket())
        environment["ZINF_FAKE_GPU"] = "gpus=2" + (f",{fake}" if fake else "")
        processes.append(models.Process(environment, function, *words))
    found = [list(process.values()) for process in processes]
    codes = [process.finish() for process in processes]
    if any(codes):
        raise AssertionError(f"ranks ended with {codes}")
    return [values[0] for values in found]


def prepared(
    module: Any, device: str, streams: int = 0, optimizer: Any = None, **settings: Any
) -> tuple[Any, Any, Any]:
    """Prepare a model in this process. With "cuda" it is the fake."""
    fake_cuda.install(streams)
    optimizer = models.adamw(module) if optimizer is None else optimizer
    settings = {"socket_path": socket(), "timeout": 20, "device": device, **settings}
    if device == "cuda" and streams:
        fake_cuda.watch(module)
    module, optimizer = zinf.prepare(module, optimizer, **settings)
    engine = zinf.engine_of(module)
    if device == "cuda":
        engine.device.units = engine.units
    return module, optimizer, engine


def refused(kind: type[Exception], text: str, call: Callable[[], Any]) -> None:
    with unittest.TestCase().assertRaisesRegex(kind, text):
        call()
