# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share: one zinfd, names of jobs, and processes of ranks."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, os.environ.get("ZINF_BUILD", "build/release"))
LIBRARY = os.path.join(BUILD, "lib", "libzinf.so.0")
ZINFD = os.path.join(BUILD, "bin", "zinfd")

# A small daemon that is up at once.
SETS = ("tier.cpu.capacity=128M", "nvme disk.measure=never", "tier.cpu.huge_pages=never")
STORE = "64M"

os.environ["ZINF_LIBRARY"] = LIBRARY
os.environ["PYTHONPATH"] = os.pathsep.join([HERE, os.path.join(ROOT, "python")])

import zinf  # noqa: E402 - the variables above come first
from zinf import keeper  # noqa: E402 - as above

# A shell ignores SIGINT in what it starts in the background, and so would the ranks.
signal.signal(signal.SIGINT, signal.default_int_handler)

_folder = ""
_daemon: subprocess.Popen[bytes] | None = None
_numbers = itertools.count(1)


@contextlib.contextmanager
def open_house() -> Iterator[None]:
    """Make the folder of all tests; at the end stop the daemon and remove the folder."""
    global _folder, _daemon  # noqa: PLW0603 - one house for the process
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    for name in [name for name in os.environ if name.startswith("ZINF_")]:
        if name not in ("ZINF_LIBRARY", "ZINF_BUILD"):
            del os.environ[name]
    _folder = tempfile.mkdtemp(prefix="zinf-python.", dir=os.environ.get("TMPDIR", "/var/tmp"))
    try:
        yield
    finally:
        if _daemon is not None:
            _daemon.terminate()
            _daemon.wait(60)
            _daemon = None
        shutil.rmtree(_folder, ignore_errors=True)


def folder(name: str) -> str:
    """Make a folder of a test."""
    return tempfile.mkdtemp(prefix=f"{name}.", dir=_folder)


def socket_path() -> str:
    """Return the socket of the daemon, which the first call starts."""
    global _daemon  # noqa: PLW0603 - one daemon for the process
    if _daemon is None:
        _daemon = start_daemon("zinf", *SETS)
    return os.path.join(_folder, "zinf", "zinfd.sock")


def start_daemon(
    name: str, *sets: str, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a daemon whose directory is `name` in the folder of all tests. It is up."""
    reader, writer = os.pipe()
    directory = os.path.join(_folder, name)
    words = ["--user", "--dir", directory, "--size", STORE, "--ready-fd", str(writer)]
    for assignment in sets:
        words += ["--set", assignment]
    path = os.path.join(_folder, f"{name}d.log")
    with open(path, "wb") as log:
        daemon = subprocess.Popen(
            [ZINFD, *words],
            stderr=log,
            pass_fds=[writer],
            env={**os.environ, **(environment or {})},
            preexec_fn=keeper.die_with_parent,  # noqa: PLW1509 - nothing of it takes a lock
        )
    os.close(writer)
    with os.fdopen(reader, "rb") as ready:
        if not ready.read(1):
            with open(path, errors="replace") as log_file:
                raise AssertionError("zinfd did not start:\n" + log_file.read())
    return daemon


def path_of(name: str) -> str:
    """Return a path in the folder of all tests."""
    return os.path.join(_folder, name)


def daemon_pid() -> int:
    """Return the process of the daemon, which runs."""
    assert _daemon is not None
    return _daemon.pid


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def job_name() -> str:
    return f"job-{os.getpid()}-{next(_numbers)}"


def config(**settings: Any) -> zinf.Config:
    """Return settings for the daemon of the tests; a job of its own unless one is named."""
    start = {"socket_path": socket_path(), "job": None, "optimizer": "sgd", "timeout": 20}
    settings = {**start, **settings}
    settings["job"] = settings["job"] or job_name()
    return zinf.Config.load(zinf.Config(**settings))


def session(**settings: Any) -> zinf.Session:
    return zinf.Session(config(**settings))


def rank_environment(
    rank: int, world_size: int, job: str, socket: str | None = None
) -> dict[str, str]:
    return {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "ZINF_JOB": job,
        "ZINF_SOCKET": socket or socket_path(),
    }


def start_program(
    program: str, *words: str, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a function of a test's file in a process of its own: "test_session.train_rank"."""
    module, _, function = program.partition(".")
    code = f"import sys, {module}; {module}.{function}(*sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-u", "-c", code, *words],
        env=environment or dict(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_ranks(count: int, program: str, *words: str) -> list[subprocess.Popen[str]]:
    job = job_name()
    return [
        start_program(program, *words, environment=rank_environment(rank, count, job))
        for rank in range(count)
    ]


def finish(process: subprocess.Popen[str], seconds: float = 60) -> str:
    """Wait for a process. Return what it printed. It is killed if it does not end."""
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        output = process.communicate()[0]
        raise AssertionError(f"a process did not end within {seconds} s:\n{output}") from None


def patient(seconds: float) -> float:
    """Return a limit that a busy machine keeps as well."""
    return seconds * (1 + os.getloadavg()[0] / (os.cpu_count() or 1))


def kill(process: subprocess.Popen[str]) -> None:
    """End a process that a test left, and close its pipes."""
    if process.poll() is None:
        process.kill()
    process.communicate()


def wait_until_asked(pid: int, call: str, seconds: float = 20) -> None:
    """Return when the last request of a rank is `call`, as zctl jobs shows it."""
    deadline = time.monotonic() + patient(seconds)
    doing = ""
    while time.monotonic() < deadline:
        for job in zinf.admin.jobs(socket_path=socket_path()):
            for rank in job["ranks"]:
                if rank["pid"] == pid:
                    doing = rank["doing"] or ""
                    if doing == call:
                        return
    raise AssertionError(f"process {pid} does {doing!r}, not {call!r}")


def run_ranks(count: int, program: str, *words: str) -> list[str]:
    """Run a function as ranks of a new job. Return what each printed; all must end well."""
    processes = start_ranks(count, program, *words)
    outputs = [finish(process) for process in processes]
    for rank, process in enumerate(processes):
        if process.returncode:
            raise AssertionError(f"rank {rank} ended with {process.returncode}:\n{outputs[rank]}")
    return outputs
