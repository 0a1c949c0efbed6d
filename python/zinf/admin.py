# SPDX-License-Identifier: Apache-2.0
"""What zctl does, for scripts: jobs and snapshots without a session.

socket_path: of the daemon; None: as zctl finds it ($ZINF_SOCKET, the user's, the system's).
Errors are those of zinf.errors with zctl's sentence: NotFound, Busy, DaemonNotFound and others.
"""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import time
from typing import Any

from .errors import Busy, DaemonNotFound, InvalidArgument, ZinfError, error_for
from .libzinf import find_program, load

__all__ = [
    "delete_job",
    "delete_snapshot",
    "jobs",
    "restore_snapshot",
    "run",
    "snapshots",
    "take_snapshot",
]


def run(*words: str, socket_path: str | None = None) -> Any:
    """Run `zctl --json WORDS`. Return its answer.

    Ctrl-C ends zctl as well. Raises a ZinfError with zctl's sentence.
    """
    try:
        library_path = load().path
    except ZinfError:
        library_path = ""
    command = [find_program("zctl", library_path), "--json"]
    if socket_path is not None:
        command += ["--socket", socket_path]
    done = subprocess.run(
        [*command, *words], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode:
        raise _error(done.stderr.decode(errors="replace").strip(), done.returncode)
    try:
        return json.loads(done.stdout) if done.stdout.strip() else None
    except ValueError as error:
        raise ZinfError(f"zctl {' '.join(words)}: its answer is no JSON: {error}") from error


def _error(text: str, code: int) -> ZinfError:
    sentence = text.rsplit("zctl: ", 1)[-1].replace("zinfd answered: ", "", 1)
    if "no zinfd listens" in sentence:
        return DaemonNotFound(sentence)
    match = re.search(r"\s*\((E[A-Z0-9]+)\)$", sentence)
    number = getattr(errno, match[1], 0) if match else 0
    if match:
        sentence = sentence[: match.start()]
    return error_for(-number, sentence or f"zctl ended with code {code}")


def jobs(job: str | None = None, *, socket_path: str | None = None) -> list[dict[str, Any]]:
    """Return the jobs of this user, or one of them in detail. docs/ANSWERS.md lists the keys."""
    answer: list[dict[str, Any]] = run("jobs", *_names(job), socket_path=socket_path)
    return answer


def delete_job(
    job: str, *, missing_ok: bool = False, wait_s: float = 30.0, socket_path: str | None = None
) -> bool:
    """Delete a job that nobody uses, with its state. Its snapshots stay.

    wait_s: seconds for what the daemon still does for the job, as reads and writes of a last step.
    Return: False with missing_ok, if there is no such job. Raises Busy with the pids of ranks.
    """
    deadline = time.monotonic() + wait_s
    try:
        while True:
            try:
                run("delete", *_names(job), "--yes", socket_path=socket_path)
                break
            except Busy as error:
                if not str(error).endswith(": try again") or time.monotonic() >= deadline:
                    raise
            time.sleep(0.02)
    except ZinfError as error:
        if missing_ok and error.errno == errno.ENOENT and not isinstance(error, DaemonNotFound):
            return False
        raise
    return True


def snapshots(job: str | None = None, *, socket_path: str | None = None) -> list[dict[str, Any]]:
    """Return the snapshots of all jobs or of one, oldest first. docs/ANSWERS.md lists the keys."""
    answer: list[dict[str, Any]] = run("snapshot", "list", *_names(job), socket_path=socket_path)
    return answer


def take_snapshot(
    job: str, name: str | None = None, *, keep: int = 0, socket_path: str | None = None
) -> dict[str, Any]:
    """Keep the committed step of a job. Session.snapshot() does it for the job of a session."""
    words = ["snapshot", *_names(job)]
    if name is not None:
        words += ["--name", name]
    if keep:
        words += ["--keep", str(keep)]
    answer: dict[str, Any] = run(*words, socket_path=socket_path)
    return answer


def delete_snapshot(
    snapshot: str, *, missing_ok: bool = False, socket_path: str | None = None
) -> bool:
    """Remove a snapshot, "JOB/NAME". Return: False with missing_ok, if there is none."""
    try:
        run("snapshot", "rm", *_names(snapshot), socket_path=socket_path)
    except ZinfError as error:
        if missing_ok and error.errno == errno.ENOENT and not isinstance(error, DaemonNotFound):
            return False
        raise
    return True


def restore_snapshot(
    snapshot: str, *, other: str | None = None, socket_path: str | None = None
) -> dict[str, Any]:
    """Return a job to a snapshot, "JOB/NAME"; or begin a new job `other` with it."""
    words = ["snapshot", "restore", *_names(snapshot)]
    if other is not None:
        words += ["--as", other]
    answer: dict[str, Any] = run(*words, socket_path=socket_path)
    return answer


def _names(name: str | None) -> list[str]:
    if name is None:
        return []
    if not name or name.startswith("-") or os.sep * 2 in name:
        raise InvalidArgument(f"'{name}' is no name of a job or snapshot")
    return [name]
