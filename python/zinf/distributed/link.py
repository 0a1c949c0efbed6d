# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLR0917
"""Link: the session that all process groups of a process share, and calls that go on by themselves.

A call that the program waits for is one call of libzinf, in the thread that makes it. A call with
async_op=True begins with a ticket, and its Work waits for the ticket. Where the program asks for a
Future (DDP does), the thread "zinf-collectives" completes it. The thread sleeps on
zinf_ticket_fd().
"""

from __future__ import annotations

import contextlib
import ctypes as c
import errno
import math
import os
import secrets
import select
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any, Callable

import torch

from ..config import Config, parse_bytes
from ..errors import (
    Interrupted,
    InvalidArgument,
    SessionClosed,
    Timeout,
    Unsupported,
    ZinfError,
)
from ..libzinf.structures import CollOptions, GroupOptions
from ..session import Session
from ..width import width_of
from .register import work_class

__all__ = ["Link", "configure", "current", "empty"]

_JOB_KEY = "zinf/job"
_NAME_BYTES = 31  # of a group
_LOOK_S = 0.01
_WORKS_MANY = 128  # calls under way, of libzinf's 1024, from which on dropped ones are looked for

_settings: dict[str, Any] = {}
_current: Link | None = None


def configure(arena: int | str | None = None, **settings: Any) -> None:
    """Set what init_process_group("zinf") uses from now on. Equal on all ranks.

    arena: bytes of each rank for zinf.distributed.empty(); without it $ZINF_ARENA, else 0.
    settings: of zinf.Config, such as private_dir or socket_path.
    """
    Config(**settings)  # Raises for a wrong one.
    if arena is not None:
        settings["arena"] = parse_bytes(arena, "arena")
    _settings.update(settings)


def current() -> Link:
    """Return the link of this process. Raises SessionClosed before init_process_group("zinf")."""
    if _current is None or _current.is_closed:
        raise SessionClosed('call torch.distributed.init_process_group("zinf") first')
    return _current


def empty(*shape: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor in the arena of this rank, which collectives use without a copy.

    shape: as of torch.empty(). The memory is free again when the last view of it is gone. Raises
    NoSpace if the arena (configure(), $ZINF_ARENA) has no room.
    """
    if len(shape) == 1 and isinstance(shape[0], (tuple, list, torch.Size)):
        shape = tuple(shape[0])
    dtype = torch.get_default_dtype() if dtype is None else dtype
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return current().allocate(count, dtype).view(shape)


_WORK: Any = work_class()


class Work(_WORK):  # type: ignore[misc]
    """A call of a group, for the program to wait for.

    The thread that calls wait() waits in libzinf. get_future() hands the call to the thread
    "zinf-collectives", which completes the Future. Errors are exceptions of zinf.
    """

    def __init__(
        self,
        link: Link | None,
        ticket: int,
        group: int,
        result: Any,
        keep: Any = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._link, self._ticket, self._group = link, ticket, group
        self._value, self._keep, self._after = result, keep, after
        self._failure: Exception | None = None
        self._future: Any = None

    def _finish(self, error: Exception | None) -> None:
        """Note the end of the call. Context: under the session's lock."""
        link, self._link = self._link, None
        after, self._after = self._after, None
        self._keep = None
        if link is not None:
            link._works.pop(self._ticket, None)
        if error is None and after is not None:
            try:
                with torch.no_grad():
                    after()
            except Exception as problem:  # wait() raises it
                error = problem
        self._failure = error
        if self._future is not None:
            self._future.set_result(error if error is not None else self._value)

    def wait(self, timeout: Any = None) -> bool:
        """Wait until the call is over. timeout: a timedelta; the call goes on after it."""
        link = self._link
        if link is not None:
            seconds = timeout.total_seconds() if timeout is not None else 0.0
            link._await(self, seconds)
        if self._failure is not None:
            raise self._failure
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        link = self._link
        return link is None or link._look(self)

    def is_success(self) -> bool:
        return self.is_completed() and self._failure is None

    def exception(self) -> Exception | None:
        return self._failure

    def result(self) -> Any:
        self.wait()
        return self._value

    def source_rank(self) -> int:
        return 0

    def get_future(self) -> Any:
        link = self._link
        if link is not None:
            return link._future_of(self)
        if self._future is None:
            self._future = torch.futures.Future()
            self._future.set_result(self._failure if self._failure is not None else self._value)
        return self._future.then(_value)


class Link:
    """A session without a model: collectives of one start of a program.

    Threads: any. Calls of several threads run one after the other.
    """

    def __init__(self, store: Any, rank: int, world_size: int, timeout: float) -> None:
        self._users = 0
        self._works: dict[int, Work] = {}  # calls under way, by ticket; guarded by _lock
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._wake = (-1, -1)
        self._settings = dict(_settings)
        arena = self._settings.pop("arena", None)
        if arena is None:
            arena = parse_bytes(os.environ.get("ZINF_ARENA", "0"), "ZINF_ARENA")
        self.session = Session(self._config(store, rank, world_size, timeout))
        self._library = self.session._library
        self._lock = self.session._lock
        self.rank, self.world_size = rank, world_size
        try:
            self.session._wait_call(self._library.zinf_coll_open, arena)
        except BaseException:
            self.session.close()
            raise

    def _config(self, store: Any, rank: int, world_size: int, timeout: float) -> Config:
        """Return the settings: a job of its own, which rank 0 names in the store."""
        name = self._settings.pop("job", None)
        if name is None:
            if rank == 0:
                store.set(_JOB_KEY, f"torch.{os.getpid()}.{secrets.token_hex(6)}")
            _await_key(store, timeout)
            name = store.get(_JOB_KEY).decode()
        settings = {**self._settings, "offload_optimizer": "none", "offload_param": "none"}
        return Config.load(
            None, job=name, rank=rank, world_size=world_size, timeout=timeout, **settings
        )

    # ---- groups ----

    def join(self, name: str, ranks: Sequence[int], timeout_ms: int) -> int:
        """Make a group with its other members. Return its number."""
        if not self._library.has("zinf_coll_group_named"):
            raise Unsupported(
                f"libzinf at {self._library.path} has no zinf_coll_group_named(), "
                "which new_group() needs: use a newer one"
            )
        members = (c.c_uint32 * len(ranks))(*ranks)
        options = GroupOptions(bytes=c.sizeof(GroupOptions), timeout_ms=timeout_ms)
        number = c.c_uint32()
        self.session._wait_call(
            self._library.zinf_coll_group_named,
            name.encode()[:_NAME_BYTES],
            members,
            len(ranks),
            c.byref(options),
            c.byref(number),
        )
        return number.value

    def hold(self) -> None:
        """Count one more group that uses the link."""
        self._users += 1

    def leave(self, number: int) -> None:
        """Leave a group. The last one closes the session."""
        self._users -= 1
        if self.is_closed:
            return
        try:
            if number:
                self._settle(number)
                self.session._wait_call(self._library.zinf_coll_group_free, number)
        except ZinfError:  # A broken session ends below, or with the process.
            pass
        finally:
            if self._users <= 0:
                self.close()

    def abort(self, number: int, reason: str) -> None:
        """End the calls of a group on all of its members."""
        if not self.is_closed:
            self.session._call(self._library.zinf_coll_abort, number, reason.encode()[:127])

    @property
    def is_closed(self) -> bool:
        """Whether the session has ended."""
        return self.session.is_closed

    def close(self) -> None:
        """Leave the job. Calls under way end with an error."""
        global _current  # noqa: PLW0603 - one link for the process
        with self._lock:
            self.session.close()
            for work in list(self._works.values()):
                work._finish(SessionClosed("the process group was destroyed"))
            if self._thread is not None and os.getpid() == self._pid:
                os.write(self._wake[1], b"x")
        if _current is self:
            _current = None

    # ---- calls ----

    def wait(self, function: Any, *arguments: Any) -> None:
        """Make a call and wait for it."""
        self.session._wait_call(function, *arguments)

    def begin(
        self,
        function: Any,
        arguments: tuple[Any, ...],
        group: int,
        timeout_ms: int,
        result: Any,
        keep: Any = None,
        after: Callable[[], None] | None = None,
    ) -> Work:
        """Begin a call that goes on by itself. keep: what it uses until it is over.

        after: is called when the call has succeeded, by the thread that notices it.
        """
        ticket = c.c_uint64()
        options = CollOptions(
            bytes=c.sizeof(CollOptions),
            group=group,
            timeout_ms=timeout_ms,
            ret_ticket=c.pointer(ticket),
        )
        with self._lock:
            if len(self._works) >= _WORKS_MANY:  # Works that the program has dropped.
                self._reap()
            self.session._call(function, *arguments, c.byref(options))
            work = Work(self, ticket.value, group, result, keep, after)
            self._works[ticket.value] = work
        return work

    def _await(self, work: Work, seconds: float) -> None:
        """Wait for a call. Raises Timeout after `seconds`, if they are not 0: it goes on then."""
        library = self._library
        try:
            with self._lock:
                if work._link is None:
                    return
                if seconds > 0 and not self._look(work):
                    milliseconds = max(1, min(int(seconds * 1000), 0xFFFFFFFF))
                    self.session._wait_call(library.zinf_wait_for, work._ticket, milliseconds, None)
                elif work._link is not None:
                    self.session._wait_call(library.zinf_wait, work._ticket, None)
                if work._link is not None:
                    work._finish(None)
        except Timeout as error:
            with self._lock:
                if work._link is not None and not (seconds > 0 and self._is_known(work)):
                    work._finish(error)
            raise
        except Interrupted:
            raise
        except ZinfError as error:
            with self._lock:
                if work._link is not None:
                    work._finish(error)

    def _is_known(self, work: Work) -> bool:
        """Whether the ticket still exists: only the waiting ended, not the call."""
        done = c.c_bool()
        return not self._library.zinf_test(self.session._use(), work._ticket, c.byref(done))

    def _look(self, work: Work) -> bool:
        """Whether a call is over. Never waits in libzinf."""
        with self._lock:
            if work._link is None:
                return True
            handle, library = self.session._use(), self._library
            done = c.c_bool()
            result = library.zinf_test(handle, work._ticket, c.byref(done))
            if not result and not done.value:
                return False
            result = result or library.zinf_wait(handle, work._ticket, None)
            if result == -errno.EINTR:  # An interrupt was pending: the next look ends the call.
                return False
            work._finish(self.session._error(result) if result else None)
            return True

    def _reap(self) -> None:
        """Take note of calls that are over."""
        with self._lock:
            if not self.is_closed:
                for work in list(self._works.values()):
                    self._look(work)

    def _settle(self, group: int) -> None:
        """Wait until no call of a group is under way."""
        for work in [work for work in self._works.values() if work._group == group]:
            with contextlib.suppress(ZinfError):
                self._await(work, 0.0)

    # ---- futures ----

    def _future_of(self, work: Work) -> Any:
        with self._lock:
            if work._link is None:
                return work.get_future()
            if self._thread is None:
                self._start()
            if work._future is None:
                work._future = torch.futures.Future()
            future = work._future
        # A call that ended before has rung already, or rings no more: the thread looks once.
        os.write(self._wake[1], b"x")
        return future.then(_value)

    def _start(self) -> None:
        descriptor = self.session._function("zinf_ticket_fd")(self.session._use())
        if descriptor < 0:
            raise self.session._error(descriptor)
        self._wake = os.pipe()
        self._pid = os.getpid()
        self._thread = threading.Thread(
            target=_complete,
            args=(weakref.ref(self), descriptor, self._wake[0]),
            name="zinf-collectives",
            daemon=True,
        )
        self._thread.start()

    # ---- memory ----

    def allocate(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Return (count,) of dtype in the arena."""
        bytes_ = count * width_of(dtype)
        address = c.c_void_p()
        self.session._call(self._library.zinf_coll_alloc, bytes_, c.byref(address))
        memory = (c.c_char * bytes_).from_address(address.value or 0)
        weakref.finalize(memory, _free, weakref.ref(self), address.value or 0).atexit = False
        return torch.frombuffer(memory, dtype=dtype, count=count)


def _await_key(store: Any, timeout: float) -> None:
    """Wait until rank 0 has named the job. Ctrl-C ends this; it does not end a wait of the store.

    torch 1 has no check(): there the store waits.
    """
    deadline = time.monotonic() + timeout
    while hasattr(store, "check") and not store.check([_JOB_KEY]):
        if time.monotonic() >= deadline:
            raise Timeout(f"rank 0 has not named the job within {timeout:.4g} s")
        time.sleep(_LOOK_S)


def _free(link: weakref.ref[Link], address: int) -> None:
    target = link()
    if target is not None and not target.is_closed and not target.session._is_forked:
        target.session._call(target._library.zinf_coll_free, c.c_void_p(address))


def _value(future: Any) -> Any:
    """Raise the error of a call, or return its result."""
    value = future.value()
    if isinstance(value, ZinfError):
        raise value
    return value


def _complete(link: weakref.ref[Link], descriptor: int, wake: int) -> None:
    """Notice calls that are over, until the link is closed."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        for number, _ in poll.poll():
            if number == wake:
                os.read(wake, 4096)
        target = link()
        if target is None or target.is_closed:
            return
        with target._lock:
            if target.is_closed:
                return
            target._library.zinf_ticket_clear(target.session._use())
            target._reap()
        del target


def open_link(store: Any, rank: int, world_size: int, timeout: float) -> Link:
    """Return the link of the process, opened by the group of all ranks."""
    global _current  # noqa: PLW0603 - one link for the process
    if _current is not None and not _current.is_closed:
        raise InvalidArgument(
            "this process has a group of all ranks already: destroy_process_group() ends it"
        )
    _current = Link(store, rank, world_size, timeout)
    return _current
