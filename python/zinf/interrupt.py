# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C reaches a call of libzinf that waits.

Python runs handlers of signals in the main thread, between two bytecodes: never during a call of C.
So the C part of a handler writes a byte into a descriptor (signal.set_wakeup_fd), a thread reads
it and calls zinf_interrupt(), the waiting call returns -EINTR, and Python runs the handler.

The descriptor is set before each waiting call of the main thread. A descriptor of somebody else
(asyncio, trio) is put back afterwards, and gets the bytes that arrived in between.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from typing import Any, Callable

__all__ = ["Watch", "watch"]

_RECENT_S = 1.0


class Watch:
    """The thread of this process, and the sessions whose calls it interrupts.

    add() and remove(): any thread. enter() and leave(): main thread, around a waiting call.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # guards _targets: a handle in it is attached
        self._targets: dict[int, tuple[Callable[[Any], None], Any]] = {}
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._fd = self._writer.fileno()
        self._former: tuple[int, tuple[int, int] | None] = (-1, None)
        self._sigint_at = float("-inf")
        threading.Thread(target=self._run, name="zinf-interrupt", daemon=True).start()

    def add(self, interrupt: Callable[[Any], None], handle: Any) -> None:
        """Interrupt calls on a handle from now on."""
        with self._lock:
            self._targets[handle.value] = (interrupt, handle)
        if is_main_thread():
            self.leave(self.enter())

    def remove(self, handle: Any) -> None:
        """Forget a handle, before it is detached. The last one gives the descriptor back."""
        with self._lock:
            self._targets.pop(handle.value, None)
            is_last = not self._targets
        if is_last and is_main_thread():
            current = signal.set_wakeup_fd(-1)
            if current != self._fd:
                signal.set_wakeup_fd(current, warn_on_full_buffer=False)

    def enter(self) -> int:
        """Set the descriptor. Return what leave() takes."""
        former = signal.set_wakeup_fd(self._fd, warn_on_full_buffer=False)
        if former not in (self._fd, -1):
            # It stays after leave(): the thread may read bytes of this call later.
            self._former = (former, _file(former))
        return former

    def leave(self, former: int) -> None:
        """Put back the descriptor that enter() found."""
        if former not in (self._fd, -1):
            signal.set_wakeup_fd(former, warn_on_full_buffer=False)

    def is_sigint_recent(self) -> bool:
        """Whether Ctrl-C was pressed a moment ago, and Python's own handler will raise for it."""
        is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        return is_default and time.monotonic() - self._sigint_at < _RECENT_S

    def after_fork(self) -> None:
        """Leave the parent's descriptors. Context: the forked child."""
        current = signal.set_wakeup_fd(-1)
        if current not in (self._fd, -1):
            signal.set_wakeup_fd(current, warn_on_full_buffer=False)
        self._reader.close()
        self._writer.close()

    def _run(self) -> None:
        while True:
            numbers = self._reader.recv(64)
            if not numbers:
                return
            former, file = self._former
            if signal.SIGINT in numbers:
                self._sigint_at = time.monotonic()
            with self._lock:
                for interrupt, handle in self._targets.values():
                    interrupt(handle)
            # The number of a closed descriptor may be that of another file by now.
            if file is not None and _file(former) == file:
                with contextlib.suppress(OSError):  # Its reader is gone, or reads too slowly.
                    os.write(former, numbers)


def _file(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor) if descriptor != -1 else None
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if status else None


def is_main_thread() -> bool:
    """Whether Python runs handlers of signals in this thread."""
    return threading.get_ident() == threading.main_thread().ident


_watch: Watch | None = None


def watch() -> Watch:
    """Return the watch of this process. The first call starts its thread."""
    global _watch  # noqa: PLW0603 - one thread for the process
    if _watch is None:
        _watch = Watch()
    return _watch


def _after_fork() -> None:
    global _watch  # noqa: PLW0603 - the child has no thread
    if _watch is not None:
        _watch.after_fork()
        _watch = None


os.register_at_fork(after_in_child=_after_fork)
