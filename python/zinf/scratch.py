# SPDX-License-Identifier: Apache-2.0
"""Jobs that end with the script: the jobs of Trainer and Accelerate.

Checkpoints are snapshots, and snapshots outlive the job. So the job is not needed after the script.
A killed run leaves its job; the next run deletes that job first.

restore() makes a second job from the snapshot: `NAME` and `NAME.2` replace each other.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import logging
import os
import re
import sys
import time
import weakref
from typing import Any, Callable

from . import admin, private
from .config import Config
from .errors import Busy, InvalidArgument, NoSpace
from .libzinf import load
from .module import parameter, units
from .module.engine import Engine
from .session import Session

__all__ = ["begin", "begin_daemon", "name_for", "own", "restore", "script_name"]

_SECOND = ".2"
_LEAVE_S = 5.0  # for the daemon to notice that killed processes have gone
_LOOK_S = 0.05
_logger = logging.getLogger("zinf")
_owned: weakref.WeakSet[Engine] = weakref.WeakSet()


def name_for(path: str, prefix: str = "hf") -> str:
    """Return the name of the job of a directory or file: readable and unique."""
    real = os.path.realpath(path)
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", os.path.basename(real)).strip("-.")[:40] or "run"
    return f"{prefix}-{readable}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:10]}"


def script_name() -> str:
    """Return the name of the job of this script in this working directory."""
    return name_for(os.path.join(os.getcwd(), os.path.basename(sys.argv[0] or "python")), "acc")


def begin_daemon(config: Config, model: Any = None) -> Config:
    """Start the private daemon that the settings ask for. Return settings with its socket.

    model: its size gives that of a new store; None: not known.
    """
    if config.private_dir is None:
        return config
    need = 0
    if model is not None:
        items = [item for item in model.parameters() if units.is_managed(item)]
        width = max((item.element_size() for item in items), default=0)
        need = private.need_for(config, sum(item.numel() for item in items), width)
    return config.replace(socket_path=private.ensure(config, load(), need).socket_path)


def begin(
    config: Config, name: str, is_first: bool, barrier: Callable[[], Any], model: Any = None
) -> Config:
    """Make way for a new job: `name`, or the one that the settings name. Collective.

    A job of a killed run with the name `name` is deleted. One that the settings name belongs to the
    user: InvalidArgument if it exists. model: of begin_daemon(). Return settings with job and
    socket.
    """
    given = config.job or os.environ.get("ZINF_JOB") or None
    config = begin_daemon(config.replace(job=given or name), model)
    for engine in list(_owned):
        if engine.session.job in (config.job, f"{config.job}{_SECOND}"):
            if not engine.session.is_closed:
                _logger.warning(
                    "zinf: a new run of job '%s' begins: the model of the former run of this "
                    "process cannot be used any more",
                    config.job,
                )
            engine.close()
    barrier()
    if is_first:
        if given is not None:
            _refuse_present(given, config.socket_path)
        else:
            for job in (name, name + _SECOND):
                _delete(job, config.socket_path)
    barrier()
    return config


def _refuse_present(job: str, socket_path: str | None) -> None:
    if any(known["name"] == job for known in admin.jobs(socket_path=socket_path)):
        raise InvalidArgument(
            f"job '{job}' exists, and this run begins a new one: delete it (zctl delete {job}), or "
            "leave the setting 'job' out"
        )


def _delete(job: str, socket_path: str | None) -> None:
    deadline = time.monotonic() + _LEAVE_S
    while True:
        try:
            admin.delete_job(job, missing_ok=True, socket_path=socket_path)
        except Busy as error:
            if time.monotonic() >= deadline:
                raise Busy(
                    f"job '{job}' of the same output directory or script is in use: {error}. End "
                    "that run, or use another directory"
                ) from error
            time.sleep(_LOOK_S)
        else:
            return


def own(engine: Engine) -> None:
    """Delete the job of an engine when the script ends."""
    _owned.add(engine)


@atexit.register
def _end() -> None:
    for engine in list(_owned):
        with contextlib.suppress(Exception):  # The process ends: it can do nothing about an error.
            engine.close()
            # Each rank tries this. The daemon refuses it until the last rank has left.
            admin.delete_job(
                engine.session.job, missing_ok=True, socket_path=engine.session.config.socket_path
            )


def restore(engine: Engine, snapshot: str) -> None:
    """Return a model to a snapshot, "JOB/NAME": parameters, optimizer state, step. Collective.

    The parameters get other addresses: views of them that were made before are invalid. On a GPU
    both jobs have memory meanwhile. Raises NoSpace; the model then keeps its former job.
    """
    former = engine.session
    engine.discard()
    with contextlib.suppress(Exception):
        engine.last_stats()
    job = former.job
    other = job[: -len(_SECOND)] if job.endswith(_SECOND) else job + _SECOND
    session = Session(former.config.replace(job=other))
    try:
        engine.device.open(session)
        _add_model(session, engine)
        session.load(snapshot)
        session.materialize()
    except NoSpace as error:
        session.close()
        if not engine.device.is_gpu:
            raise
        raise NoSpace(
            f"{error}. The GPU memory that the model had before stays charged until the process "
            "ends: give parameters and gradients at most half of the GPU (gpu_param_budget_bytes, "
            "gpu_grad_budget_bytes). In a new process Trainer's resume_from_checkpoint and "
            "zinf.prepare(snapshot=) need the memory once",
            error.errno,
        ) from error
    except BaseException:
        session.close()
        raise
    engine.session = session
    for unit in engine.units:
        unit.holds, unit.is_kept = 0, False
        unit.is_pinned = False
        for slot in unit.slots:
            _move(engine, slot)
        unit.is_resident = False
    former.close()
    session.barrier()
    if session.rank == 0:
        _delete(job, former.config.socket_path)


def _add_model(session: Session, engine: Engine) -> None:
    for unit in engine.units:
        added = session.add_unit(units.short_name(unit.name))
        if unit.is_rest and session.has_gpu:
            session.gpu_apart(added)
        for slot in unit.slots:
            shape = units.shape_for(slot.parameter)
            index = session.add_param(units.short_name(slot.name), shape)
            if not slot.is_trained:
                session.freeze(index)
            elif slot.group:
                session.set_param_group(index, slot.group)


def _move(engine: Engine, slot: Any) -> None:
    view = engine._view(slot)
    with parameter.NoDispatch():
        slot.parameter.data = view
    if slot.is_trained:
        slot.grad = engine.grad_view(slot)
