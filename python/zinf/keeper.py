# SPDX-License-Identifier: Apache-2.0
"""The process beside a private daemon: starts zinfd and ends it after the script.

zinf.private starts this file by its path, in a session of its own, with stdout and stderr in
DIR/zinfd.log. It imports only the standard library, so that it takes little memory. Two files in
DIR carry locks of fcntl(2), which the kernel drops with their process:

- `keeper.lock`: held by the keeper for its life. A second keeper ends at once with code 0.
- `users.lock`: shared by all ranks that use the daemon. The keeper takes it for itself when the
  last rank has gone, and holds it until zinfd has stopped.

A launcher (torchrun) starts a rank again after its death. The folder `launchers` names the
launchers of the ranks by process and start time. While one lives, the daemon stays.

The daemon also ends when DIR is removed: the removal of keeper.lock says so.

    keeper.py DIR ZINFD [WORD]...       the words go to zinfd
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

_TAKE_S = 2.0  # a rank that only looks holds keeper.lock for microseconds
_LOOK_S = 0.1
_LOOK_AT_DIRECTORY_S = 1.0
_STOP_S = 75.0  # zinfd's stop_timeout_s, and time to end
_PR_SET_PDEATHSIG = 1


def start_time(pid: int) -> str:
    """Return when a process started, in ticks since boot; "" if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    is_dead = after_name[0] in (b"Z", b"X")
    return "" if is_dead else after_name[19].decode()


def has_launcher(folder: str) -> bool:
    """Whether one of the launchers lives. Entries of those that have ended are removed.

    A folder that was removed has no launchers.
    """
    try:
        for name in os.listdir(folder):
            pid, _, started = name.partition(".")
            if pid.isdecimal() and start_time(int(pid)) == started:
                return True
            os.unlink(os.path.join(folder, name))
    except FileNotFoundError:
        pass
    return False


def take(lock: int) -> bool:
    """Take keeper.lock. False: another keeper has it."""
    deadline = time.monotonic() + _TAKE_S
    while True:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_S / 10)
        else:
            return True


def wait_for_end(users: int, launchers: str) -> None:
    """Return when no rank and no launcher is left. users.lock is then held."""
    while True:
        fcntl.lockf(users, fcntl.LOCK_EX)
        if not has_launcher(launchers):
            return
        fcntl.lockf(users, fcntl.LOCK_UN)
        time.sleep(_LOOK_S)


def wait_for_removal(lock: int) -> None:
    """Return when keeper.lock was removed, and most likely the whole directory."""
    while os.fstat(lock).st_nlink:
        time.sleep(_LOOK_AT_DIRECTORY_S)


def stop(daemon: subprocess.Popen[bytes], reason: str) -> None:
    """Stop the daemon. A full disk, where the log has no room, does not matter."""
    with contextlib.suppress(OSError):
        print(f"{reason}: stopping zinfd", file=sys.stderr, flush=True)
    daemon.terminate()
    try:
        daemon.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        daemon.kill()


def stop_after(
    daemon: subprocess.Popen[bytes], reason: str, wait: Callable[..., None], *arguments: object
) -> None:
    """Begin a thread that stops the daemon when wait() returns, or fails."""

    def run() -> None:
        text = reason
        try:
            wait(*arguments)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        stop(daemon, text)

    threading.Thread(target=run, daemon=True).start()


def die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the keeper dies. Context: the child, before exec."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


_prctl = ctypes.CDLL(None).prctl


def main(words: list[str]) -> int:
    """Run the daemon. Return its exit code, or 128 and the number of the signal that killed it."""
    folder, program, *arguments = words
    lock = os.open(os.path.join(folder, "keeper.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    if not take(lock):
        return 0
    users = os.open(os.path.join(folder, "users.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    # The thread that starts zinfd lives as long as this process, as PR_SET_PDEATHSIG needs.
    daemon = subprocess.Popen(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - there is one thread yet
    )
    signal.signal(signal.SIGTERM, lambda *_: daemon.terminate())
    launchers = os.path.join(folder, "launchers")
    stop_after(daemon, "The script has ended", wait_for_end, users, launchers)
    stop_after(daemon, f"{folder} was removed", wait_for_removal, lock)
    code = daemon.wait()
    if code < 0:
        print(f"zinfd was killed by signal {-code}", file=sys.stderr, flush=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
