# SPDX-License-Identifier: Apache-2.0
"""Exceptions of zinf.

Each exception carries the sentence of libzinf: what failed, with its figure, and what to do.
Subclasses exist where a program acts on the kind of error.
"""

from __future__ import annotations

import errno as _errno

__all__ = [
    "Busy",
    "Canceled",
    "DaemonNotFound",
    "Denied",
    "Exists",
    "ForkedChild",
    "GpuFailed",
    "Interrupted",
    "InvalidArgument",
    "LibraryNotFound",
    "MissingGradient",
    "NoSpace",
    "NotFinite",
    "NotFound",
    "PeerLost",
    "ReadOnlyParameter",
    "SessionClosed",
    "StaleSession",
    "StoreFailed",
    "Timeout",
    "Unsupported",
    "ZinfError",
    "error_for",
]


class ZinfError(RuntimeError):
    """A call of zinf failed. `errno` is a positive errno, or 0 where none fits."""

    errno: int = 0

    def __init__(self, text: str, errno: int | None = None) -> None:
        super().__init__(text)
        if errno is not None:
            self.errno = errno

    def __reduce__(self) -> tuple[type[ZinfError], tuple[str, int]]:
        return type(self), (str(self), self.errno)


class LibraryNotFound(ZinfError, ImportError):
    """libzinf.so.0 was not found, or does not fit this package."""

    errno = _errno.ENOENT


class DaemonNotFound(ZinfError):
    """No zinfd listens at the socket, or the daemon is stopping."""

    errno = _errno.ENOENT


class NotFound(ZinfError):
    """There is no such job or snapshot."""

    errno = _errno.ENOENT


class Exists(ZinfError):
    """The name is taken."""

    errno = _errno.EEXIST


class StaleSession(ZinfError):
    """The daemon went away, or a newer start of the job replaced this process: attach again."""

    errno = _errno.ESTALE


class PeerLost(ZinfError):
    """Another rank of the job died or left. The text names the rank."""

    errno = _errno.EPIPE


class Timeout(ZinfError):
    """The deadline passed. The text names the ranks that did not come. The call may be repeated."""

    errno = _errno.ETIMEDOUT


class NoSpace(ZinfError):
    """Memory, a store or a quota is too small. The text has the figures."""

    errno = _errno.ENOSPC


class InvalidArgument(ZinfError, ValueError):
    """An argument or a setting is wrong, or differs between ranks."""

    errno = _errno.EINVAL


class Busy(ZinfError):
    """The call does not fit the present moment. The text says what must end first."""

    errno = _errno.EBUSY


class MissingGradient(ZinfError):
    """Units or parameters have no gradient in this step. The text names them."""

    errno = _errno.ENODATA


class Denied(ZinfError):
    """The job belongs to another user, or this rank may not make the call."""

    errno = _errno.EPERM


class Unsupported(ZinfError):
    """The daemon or the library is of a release without this call, or does not support it."""

    errno = _errno.EOPNOTSUPP


class StoreFailed(ZinfError):
    """Stored data is damaged, or the store cannot be read or written."""

    errno = _errno.EIO


class GpuFailed(ZinfError):
    """A GPU or its driver failed, or there is none. The text has the driver's code, if it said."""

    errno = _errno.EIO


class NotFinite(ZinfError):
    """A gradient is not finite at the least loss scale."""

    errno = _errno.ERANGE


class Canceled(ZinfError):
    """Another rank discards the step, or the ticket was cancelled."""

    errno = _errno.ECANCELED


class Interrupted(ZinfError):
    """Ctrl-C ended a call that a thread other than the main thread was waiting in."""

    errno = _errno.EINTR


class SessionClosed(ZinfError):
    """The session was closed."""

    errno = _errno.EBADF


class ForkedChild(ZinfError):
    """A forked child used its parent's session. A child makes its own session, or none."""

    errno = _errno.EPERM


class ReadOnlyParameter(ZinfError):
    """A parameter was written outside zinf's own calls. Nothing was changed."""

    errno = _errno.EROFS


_CLASSES: dict[int, type[ZinfError]] = {
    _errno.ENOENT: NotFound,
    _errno.EEXIST: Exists,
    _errno.ESTALE: StaleSession,
    _errno.EPIPE: PeerLost,
    _errno.ETIMEDOUT: Timeout,
    _errno.ENOSPC: NoSpace,
    _errno.EDQUOT: NoSpace,
    _errno.EMFILE: NoSpace,
    _errno.EINVAL: InvalidArgument,
    _errno.EBUSY: Busy,
    _errno.ENODATA: MissingGradient,
    _errno.EACCES: Denied,
    _errno.EPERM: Denied,
    _errno.EOPNOTSUPP: Unsupported,
    _errno.EPROTONOSUPPORT: Unsupported,
    _errno.EIO: StoreFailed,
    _errno.EBADMSG: StoreFailed,
    _errno.EUCLEAN: StoreFailed,
    _errno.ENODEV: StoreFailed,
    _errno.ERANGE: NotFinite,
    _errno.ECANCELED: Canceled,
    _errno.ESHUTDOWN: DaemonNotFound,
}


def error_for(result: int, text: str, is_attach: bool = False) -> ZinfError:
    """Make the exception of a negative result of libzinf.

    is_attach: the result is of zinf_attach(), where ENOENT means that no daemon listens.
    """
    number = -result
    kind = _CLASSES.get(number, ZinfError)
    if is_attach and number in (_errno.ENOENT, _errno.ECONNREFUSED):
        kind = DaemonNotFound
    if not text:
        text = _errno.errorcode.get(number, str(number))
    return kind(text, number)
