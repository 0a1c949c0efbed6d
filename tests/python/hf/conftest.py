# SPDX-License-Identifier: Apache-2.0
"""A private zinfd for all tests of a run, and the start of ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = Path(os.environ.get("ZINF_BUILD", ROOT / "build/release")).resolve()
sys.path[:0] = [str(ROOT / "python"), str(HERE)]
os.environ["PYTHONPATH"] = str(ROOT / "python")
os.environ.setdefault("ZINF_LIBRARY", str(BUILD / "lib/libzinf.so.0"))
os.environ["PATH"] = f"{BUILD / 'bin'}:{os.environ['PATH']}"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


@pytest.fixture(scope="session")
def daemon() -> Iterator[str]:
    """The socket of a zinfd with an empty store."""
    with tempfile.TemporaryDirectory(
        prefix="zinf-hf-", dir=os.environ.get("TMPDIR", "/var/tmp")
    ) as directory:
        read, write = os.pipe()
        process = subprocess.Popen(
            [
                BUILD / "bin/zinfd",
                "--user",
                "--dir",
                directory,
                "--size",
                "2G",
                "--ready-fd",
                str(write),
            ],
            pass_fds=[write],
        )
        os.close(write)
        with os.fdopen(read) as ready:
            assert ready.read().strip() == "ready"
        os.environ["ZINF_SOCKET"] = f"{directory}/zinfd.sock"
        yield os.environ["ZINF_SOCKET"]
        process.terminate()
        assert process.wait(60) == 0


class Ranks:
    """What started ranks left: exit code, output, results of rank 0."""

    def __init__(self, code: int, output: str, out: Path) -> None:
        self.code, self.output = code, output
        self.results: Any = json.loads(out.read_text()) if out.exists() else {}


def start(
    cases: list[dict[str, Any]],
    ranks: int,
    directory: Path,
    *,
    env: dict[str, str] | None = None,
    program: str = "worker.py",
    timeout: float = 500,
) -> Ranks:
    """Runs a program: worker.py of one rank by plain python, else by torchrun."""
    directory.mkdir(parents=True, exist_ok=True)
    spec, out = directory / "spec.json", directory / "out.json"
    spec.write_text(json.dumps({"cases": cases, "out": str(out)}))
    command = [sys.executable]
    if ranks > 1 or program != "worker.py":
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += [str(HERE / program), str(spec)]
    done = subprocess.run(
        command,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ranks(done.returncode, done.stdout[-6000:], out)


@pytest.fixture
def ranks(daemon: str, tmp_path: Path) -> Callable[..., Ranks]:
    """start() with the daemon, in a directory of the test."""

    def run(cases: list[dict[str, Any]], count: int = 1, name: str = "run", **more: Any) -> Ranks:
        return start(cases, count, tmp_path / name, **more)

    return run


@pytest.fixture(scope="session")
def start_ranks() -> Callable[..., Ranks]:
    """start(), for files whose tests share what ranks left."""
    return start
