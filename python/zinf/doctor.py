# SPDX-License-Identifier: Apache-2.0
"""python -m zinf.doctor: whether zinf can train here, and what to do about the rest.

    python -m zinf.doctor [--json] [DIRECTORY]

DIRECTORY is where a private daemon would have its store: $ZINF_PRIVATE, else the present one. The
rows of the machine are those of `zctl doctor`. Exit code 1: something is missing.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.metadata
import json
import os
import resource
import shutil
import subprocess
import sys
import warnings
from typing import Any, Callable

from . import admin, config
from .errors import LibraryNotFound, ZinfError
from .libzinf import find_program, load

__all__ = ["Finding", "examine", "main"]

OK, BETTER, MISSING = "ok", "could be better", "missing"

_PACKAGES = ("transformers", "accelerate", "safetensors", "deepspeed", "peft")
_STORE_MIN = 8 << 30  # below it the text says how small the store would be


@dataclasses.dataclass(frozen=True)
class Finding:
    """One row: subject, verdict, what was found, what to do.

    Verdicts: ok, could be better, missing; and "not used" of zctl doctor.
    """

    subject: str
    verdict: str
    found: str
    advice: str = ""


def examine(directory: str | None = None) -> list[Finding]:
    """Look at Python, torch, libzinf, the daemon and the machine. Return the findings."""
    place = os.path.abspath(directory or os.environ.get("ZINF_PRIVATE") or os.getcwd())
    found = [_python(), *_torch(), _packages(), *_library(), *_variables()]
    path = _library_path()
    found += _daemon(place)
    found.append(_room(place))
    found += _machine(place, path)
    return found


# ---- Python and torch ----


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    text = f"{version} ({sys.executable})"
    if sys.version_info < (3, 9):  # noqa: UP036 - what is installed may be older
        return Finding("python", MISSING, text, "use Python 3.9 or newer")
    return Finding("python", OK, text)


def _torch() -> list[Finding]:
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        return [
            Finding("torch", BETTER, f"cannot be imported ({error})",
                    "pip install torch: prepare(), initialize() and Trainer need it")
        ]  # fmt: skip
    found = [Finding("torch", OK, str(torch.__version__))]
    missing = [name for name, test in _hooks(torch).items() if not test()]
    if missing:
        found.append(
            Finding("hooks of torch", BETTER, f"torch lacks {', '.join(missing)}",
                    "nothing: zinf uses other means there")
        )  # fmt: skip
    else:
        found.append(Finding("hooks of torch", OK, "all that zinf uses are there"))
    try:
        importlib.import_module("zinf.module.parameter")
    except Exception as error:
        found.append(
            Finding("parameters", MISSING, f"zinf.module.parameter fails: {error}",
                    "use a release of torch that docs/PYTORCH.md names")
        )  # fmt: skip
    return found


def _hooks(torch: Any) -> dict[str, Callable[[], bool]]:
    """Return tests of the hooks that zinf uses where they are there."""

    def always_called() -> bool:
        code = torch.nn.Module.register_forward_hook.__code__
        return "always_call" in code.co_varnames

    return {
        "register_post_accumulate_grad_hook": lambda: hasattr(
            torch.Tensor, "register_post_accumulate_grad_hook"
        ),
        "always_call of forward hooks": always_called,
        "torch.utils.swap_tensors": lambda: hasattr(torch.utils, "swap_tensors"),
    }


def _packages() -> Finding:
    versions = []
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return Finding("packages", OK, ", ".join(versions) or "none of Hugging Face's")


# ---- libzinf and the daemon ----


def _library() -> list[Finding]:
    try:
        library = load()
    except LibraryNotFound as error:
        return [Finding("libzinf", MISSING, str(error), "install zinf, or set ZINF_LIBRARY")]
    version = library.zinf_version().decode()
    found = [Finding("libzinf", OK, f"{version} at {library.path}")]
    if library.has("zinf_layout"):
        found.append(Finding("layout", OK, "structures agree with this package"))
    else:
        found.append(
            Finding("layout", BETTER, "this libzinf cannot be asked for it", "install a newer zinf")
        )
    lacking = [
        name for name in ("zinf_step_with", "zinf_interrupt", "zinf_grad_norm")
        if not library.has(name)
    ]  # fmt: skip
    if lacking:
        found.append(
            Finding("calls", MISSING, f"libzinf lacks {', '.join(lacking)}", "install a newer zinf")
        )
    for program in ("zinfd", "zctl"):
        try:
            found.append(Finding(program, OK, find_program(program, library.path)))
        except LibraryNotFound as error:
            found.append(Finding(program, MISSING, str(error), "install zinf, or set ZINF_PREFIX"))
    return found


def _library_path() -> str:
    try:
        return load().path
    except ZinfError:
        return ""


def _variables() -> list[Finding]:
    """Return what the variables say, and which are not known."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            config.Config.load()
        except ZinfError as error:
            return [Finding("variables", MISSING, str(error), "correct the variable, or unset it")]
    if caught:
        return [Finding("variables", BETTER, str(caught[0].message), "correct its name")]
    names = sorted(name for name in os.environ if name.startswith("ZINF_"))
    return [Finding("variables", OK, ", ".join(names) or "none")]


def _daemon(place: str) -> list[Finding]:
    """Return whether a daemon answers, and its stores."""
    is_private = bool(os.environ.get("ZINF_PRIVATE"))
    socket_path = os.path.join(place, "zinfd.sock") if is_private else None
    try:
        status = admin.run("status", socket_path=socket_path)
        tiers = admin.run("tiers", socket_path=socket_path)
    except ZinfError as error:
        if is_private:
            text = f"none in {place} now; the script starts it"
            return [Finding("daemon", OK, text)]
        return [
            Finding("daemon", MISSING, str(error),
                    "start zinfd, or set ZINF_PRIVATE=DIRECTORY: the script then starts one")
        ]  # fmt: skip
    text = (
        f"zinfd {status['version']} at {status['socket']}, protocol {status['protocol']}, "
        f"{status['engine']}, {status['isa']}"
    )
    found = [Finding("daemon", OK, text)]
    if status["catalog_error"]:
        found.append(
            Finding(
                "catalog", MISSING, str(status["catalog_error"]), "restart zinfd: no job commits"
            )
        )
    if status["jobs"] >= status["jobs_max"]:
        found.append(
            Finding("jobs", MISSING, f"{status['jobs']} of {status['jobs_max']}", "zctl delete JOB")
        )
    return found + [_tier(tier) for tier in tiers]


def _tier(tier: dict[str, Any]) -> Finding:
    free = tier["capacity_bytes"] - tier["used_bytes"]
    text = f"{_bytes(free)} of {_bytes(tier['capacity_bytes'])} free"
    bad = [member for member in tier.get("members") or [] if member["state"] != "healthy"]
    if bad:
        return Finding(tier["name"], BETTER, f"{text}; {bad[0]['path']} is {bad[0]['state']}",
                       f"zctl tiers: {bad[0]['reason']}")  # fmt: skip
    if free < tier["capacity_bytes"] // 20:
        return Finding(tier["name"], BETTER, text, "zctl jobs and zctl snapshot list show what it "
                       "holds")  # fmt: skip
    return Finding(tier["name"], OK, text)


# ---- the machine ----


def _room(place: str) -> Finding:
    """Return how large the store of a private daemon could be, and the limit of locked memory."""
    existing = place
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    free = shutil.disk_usage(existing).free
    text = f"{_bytes(free)} free in {existing}"
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding("private store", BETTER, f"{existing} cannot be written",
                       "set ZINF_PRIVATE to another directory")  # fmt: skip
    if free < _STORE_MIN:
        return Finding("private store", BETTER, text,
                       "a model needs three times its parameters and optimizer state")  # fmt: skip
    return Finding("private store", OK, text)


def _machine(place: str, library_path: str) -> list[Finding]:
    """Return the rows of zctl doctor, and the limit of open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = [
        Finding("open files", OK, str(files)) if files == -1 or files >= 1024
        else Finding("open files", BETTER, str(files), "ulimit -n 4096")
    ]  # fmt: skip
    try:
        program = find_program("zctl", library_path)
    except LibraryNotFound:
        return found
    existing = place if os.path.isdir(place) else os.getcwd()
    done = subprocess.run(
        [program, "--json", "doctor", existing],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    try:
        rows: list[dict[str, str]] = json.loads(done.stdout)
    except ValueError:
        text = done.stderr.strip() or f"zctl doctor ended with {done.returncode}"
        return [*found, Finding("machine", MISSING, text, "install zctl of the same release")]
    return found + [Finding(r["subject"], r["verdict"], r["found"], r["advice"]) for r in rows]


def _bytes(count: float) -> str:
    return f"{count / (1 << 30):.1f} GiB"


# ---- the command ----


def _print(found: list[Finding]) -> None:
    head = Finding("subject", "verdict", "found", "what to do")
    rows = [head, *found]
    widths = [max(len(getattr(row, name)) for row in rows) for name in ("subject", "verdict")]
    for row in rows:
        print(f"{row.subject.ljust(widths[0])}  {row.verdict.ljust(widths[1])}  {row.found}")
        if row.advice and row is not head:
            print(f"{' ' * sum(widths)}      -> {row.advice}")


def main(words: list[str] | None = None) -> int:
    """Run the command. Return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m zinf.doctor",
        description="Says whether zinf can train here. Ends with 1 if something is missing.",
    )
    parser.add_argument("directory", nargs="?", help="of a private daemon's store")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(words)
    found = examine(options.directory)
    missing = [row for row in found if row.verdict == MISSING]
    if options.json:
        print(json.dumps([dataclasses.asdict(row) for row in found], indent=2))
    else:
        _print(found)
        names = ", ".join(row.subject for row in missing)
        print(f"missing: {names}" if missing else "zinf can train here")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
