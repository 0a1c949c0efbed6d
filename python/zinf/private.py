# SPDX-License-Identifier: Apache-2.0
"""A private daemon for a script: no administrator, no service.

With `private_dir=DIR` or `ZINF_PRIVATE=DIR` the first rank of a node starts
`zinfd --user --dir DIR`; the other ranks wait for its socket. The daemon ends when the script and
its launcher have ended, however they end, and stays while a launcher starts ranks again. DIR keeps
the store and the jobs on NVMe: the next script with the same DIR finds them. State in memory
(offload none or cpu) ends with the daemon. DIR/zinfd.log is the daemon's log; the former one is
DIR/zinfd.log.old.

    python -m zinf.private DIR zctl jobs            what DIR holds, when no script runs
    python -m zinf.private DIR zctl delete JOB      any command, with the daemon of DIR
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from . import keeper
from .errors import DaemonNotFound, InvalidArgument, NoSpace, Timeout, ZinfError
from .libzinf import find_program, load

if TYPE_CHECKING:
    from .config import Config
    from .libzinf import Library

__all__ = ["Private", "ensure", "hint_for", "main", "need_for", "size_for"]

_SOCKET_BYTES = 107  # of the path of a UNIX socket
_SIZE_MIN = 64 << 20
_SIZE_AUTO_MAX = 8 << 30  # a new store is written once: seconds
_QUIET_S = 60.0  # without a new line in the log a start has failed
_STOP_S = 90.0  # until a daemon of a former script has stopped
_LOOK_S = 0.02
_LOG_LINES = 12
_STORE_TIER = " nvme:"  # in messages of the daemon, before the name of the store

_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")


@dataclasses.dataclass
class Private:
    """A private daemon that this process uses until it ends."""

    directory: str
    socket_path: str
    lease: int  # descriptor of users.lock; its lock says that this process uses the daemon
    pid: int  # the process that has the lease
    need_bytes: int = 0  # of a store for the model; 0: not known


_used: dict[str, Private] = {}


def size_for(elements: int, param_bytes: int = 2) -> int:
    """Return the bytes of a store for a model: parameters and AdamW's state, twice, and a snapshot.

    elements: of all parameters. param_bytes: of one element. A step writes new data before it
    frees the old, and a snapshot holds a third copy.
    """
    state_bytes = 12 if param_bytes < 4 else 8
    return max(_SIZE_MIN, 3 * elements * (param_bytes + state_bytes) * 11 // 10 + _SIZE_MIN)


def need_for(config: Config, elements: int, param_bytes: int) -> int:
    """Return the bytes of a store for a model with these settings; 0: nothing lies in a store.

    elements: of all parameters. param_bytes: of one element.
    """
    places = (config.offload("offload_optimizer").name, config.offload("offload_param").name)
    return size_for(elements, param_bytes) if "NVME" in places else 0


def ensure(config: Config, library: Library | None = None, need_bytes: int = 0) -> Private:
    """Return the private daemon of config.private_dir, which the first rank of a node starts.

    Waits until its socket answers. need_bytes: of a store for the model; a daemon that is started
    gets a store of at least this size. Raises DaemonNotFound with the last lines of the log if the
    daemon does not come up, NoSpace, and InvalidArgument for a directory that cannot be used.
    """
    directory = os.path.abspath(config.private_dir or "")
    path = os.path.join(directory, "zinfd.sock")
    if len(os.fsencode(path)) > _SOCKET_BYTES:
        raise InvalidArgument(
            f"private_dir {directory} is too long: the path of its socket has "
            f"{len(os.fsencode(path))} bytes, at most {_SOCKET_BYTES} are possible"
        )
    known = _used.get(directory)
    lease = known.lease if known is not None and known.pid == os.getpid() else None
    if lease is not None and not os.fstat(lease).st_nlink:  # The directory was removed.
        os.close(lease)
        lease = None
    if lease is None:
        _make(directory)
        lease = _take_lease(directory)
        _used[directory] = Private(directory, path, lease, os.getpid())
        _register_launcher(directory)
    _used[directory].need_bytes = max(need_bytes, _used[directory].need_bytes)
    if not _answers(path):
        starter = None
        if local_rank(config) == 0 and not _has_keeper(directory):
            starter = _start(config, directory, library, need_bytes)
        _wait(path, directory, starter)
    return _used[directory]


def local_rank(config: Config) -> int:
    """Return the number of this rank on its node: the launcher's, else the rank."""
    for name in _LOCAL_RANKS:
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    if os.environ.get("SLURM_STEP_ID") and os.environ.get("SLURM_LOCALID", "").isdecimal():
        return int(os.environ["SLURM_LOCALID"])
    if config.rank is not None:
        return config.rank
    return int(os.environ["RANK"]) if os.environ.get("RANK", "").isdecimal() else 0


# ---- the directory ----


def _make(directory: str) -> None:
    try:
        os.makedirs(os.path.join(directory, "launchers"), mode=0o700, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(f"private_dir {directory} cannot be made: {error}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise InvalidArgument(f"private_dir {directory} cannot be written by uid {os.geteuid()}")


def _open_lock(directory: str, name: str) -> int:
    return os.open(os.path.join(directory, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _take_lease(directory: str) -> int:
    """Take a share of users.lock. A keeper holds it while the daemon of a former script stops."""
    lease = _open_lock(directory, "users.lock")
    deadline = time.monotonic() + _STOP_S
    while True:
        try:
            fcntl.lockf(lease, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                os.close(lease)
                raise InvalidArgument(f"private_dir {directory}: no locks: {error}") from error
            if time.monotonic() >= deadline:
                os.close(lease)
                raise Timeout(
                    f"the private zinfd of a former script in {directory} has not stopped within "
                    f"{_STOP_S:.0f} s: see {directory}/zinfd.log"
                ) from None
            time.sleep(_LOOK_S)
        else:
            return lease


def _register_launcher(directory: str) -> None:
    """Name the process that would start this rank again, so that the daemon waits for it."""
    names = (*_LOCAL_RANKS, "SLURM_STEP_ID", "RANK")
    parent = os.getppid()
    started = keeper.start_time(parent) if any(map(os.environ.get, names)) else ""
    if started and parent > 1:
        with open(os.path.join(directory, "launchers", f"{parent}.{started}"), "w"):
            pass


def _has_keeper(directory: str) -> bool:
    lock = _open_lock(directory, "keeper.lock")
    try:
        fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


# ---- the daemon ----


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(path)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


def _auto_bytes(directory: str) -> int:
    """Return the bytes of a store without private_size: half of what is free, at most 8 GiB."""
    while not os.path.exists(directory):
        directory = os.path.dirname(directory)
    return min(shutil.disk_usage(directory).free // 2, _SIZE_AUTO_MAX)


def _store_bytes(directory: str) -> int:
    store = os.path.join(directory, "store")
    return os.stat(store).st_size if os.path.exists(store) else 0


def _store_words(config: Config, directory: str, need_bytes: int = 0) -> list[str]:
    """Return zinfd's words for the size of the store: none if the present one is large enough.

    need_bytes: of a store for the model. Where this much is not free, a store without room for a
    snapshot is made.
    """
    present = _store_bytes(directory)
    free = shutil.disk_usage(directory).free
    size = config.private_size
    if size is None:
        size = max(0 if present else _auto_bytes(directory), need_bytes)
        if size - present > free and present + free >= need_bytes // 3 * 2:
            size = present + free // 10 * 9
    if size <= present:
        return []
    size = max(size, _SIZE_MIN)
    if size - present > free:
        raise NoSpace(
            f"private_dir {directory}: a store of {size >> 20} MiB needs {(size - present) >> 20} "
            f"MiB, and {free >> 20} MiB are free. Set private_size, or choose another directory"
        )
    return ["--size", str(size)]


def hint_for(config: Config, text: str) -> str:
    """Return what enlarges the store, as the end of a NoSpace with this text; "": no help."""
    if config.private_dir is None or _STORE_TIER not in text:
        return ""
    directory = os.path.abspath(config.private_dir)
    present, known = _store_bytes(directory), _used.get(directory)
    wanted = max(2 * present, known.need_bytes if known is not None else 0)
    return (
        f". The private daemon in {directory} has a store of {present >> 20} MiB: set "
        f'private_size="{wanted >> 20}M" (ZINF_PRIVATE_SIZE), which its next start takes'
    )


def _start(
    config: Config, directory: str, library: Library | None, need_bytes: int
) -> subprocess.Popen[bytes]:
    """Start the keeper, which starts zinfd."""
    program = find_program("zinfd", library.path if library is not None else "")
    words = ["--user", "--dir", directory, *_store_words(config, directory, need_bytes)]
    for assignment in config.private_set:
        words += ["--set", assignment]
    log = os.path.join(directory, "zinfd.log")
    with contextlib.suppress(FileNotFoundError):
        os.replace(log, log + ".old")
    with open(log, "ab") as output:
        return subprocess.Popen(
            [sys.executable or "python3", "-I", "-S", keeper.__file__, directory, program, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            start_new_session=True,
        )


def _wait(path: str, directory: str, starter: subprocess.Popen[bytes] | None) -> None:
    """Wait until the socket answers. A new store is written first; the log shows how far it is."""
    size, changed = _log_bytes(directory), time.monotonic()
    while not _answers(path):
        if starter is not None and starter.poll():  # Code 0: another keeper was first.
            raise DaemonNotFound(
                f"the private zinfd in {directory} ended with code {starter.returncode}"
                + log_tail(directory)
            )
        if _log_bytes(directory) != size:
            size, changed = _log_bytes(directory), time.monotonic()
        if time.monotonic() - changed > _QUIET_S:
            raise DaemonNotFound(
                f"no private zinfd came up in {directory} within {_QUIET_S:.0f} s"
                + log_tail(directory)
            )
        time.sleep(_LOOK_S)


def _log_bytes(directory: str) -> int:
    try:
        return os.stat(os.path.join(directory, "zinfd.log")).st_size
    except OSError:
        return 0


def log_tail(directory: str) -> str:
    """Return the last lines of the daemon's log, as the end of a message."""
    log = os.path.join(directory, "zinfd.log")
    try:
        with open(log, errors="replace") as file:
            lines = file.read().splitlines()[-_LOG_LINES:]
    except OSError:
        lines = []
    if not lines:
        return f" ({log} is empty)"
    return f". The end of {log}:\n  " + "\n  ".join(lines)


# ---- the command ----


def main(words: list[str] | None = None) -> int:
    """Run a command with the daemon of a directory. Return the command's exit code."""
    from .config import Config  # noqa: PLC0415 - config imports this module's users

    parser = argparse.ArgumentParser(
        prog="python -m zinf.private",
        description="Runs a command, such as zctl, with the private daemon of a directory. The "
        "daemon starts if no script uses it, and then ends with the command.",
    )
    parser.add_argument("directory", help="of the private daemon (ZINF_PRIVATE)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="default: zctl jobs")
    options = parser.parse_args(words)
    directory = os.path.abspath(options.directory)
    command = options.command or ["zctl", "jobs"]
    if not os.path.exists(os.path.join(directory, "store")):
        print(f"{parser.prog}: {directory} has no store of a private daemon", file=sys.stderr)
        return 1
    try:
        library = load()
        daemon = ensure(Config.load(None, private_dir=directory, rank=0, world_size=1), library)
        if command[0] in {"zctl", "zinfd"}:
            command[0] = find_program(command[0], library.path)
        environment = {**os.environ, "ZINF_SOCKET": daemon.socket_path}
        return subprocess.run(command, env=environment, check=False).returncode
    except (OSError, ZinfError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
