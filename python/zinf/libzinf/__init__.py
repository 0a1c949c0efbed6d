# SPDX-License-Identifier: Apache-2.0
"""libzinf, loaded once for the process and checked against this package's structures."""

from __future__ import annotations

import ctypes as c
import threading
from typing import Any

from ..errors import LibraryNotFound
from . import layout
from .find import find_program, loaded_path, open_library
from .functions import FUNCTIONS, OPTIONAL

__all__ = ["Library", "find_program", "load"]


class Library:
    """The functions of libzinf, as attributes: library.zinf_attach(...).

    Raises LibraryNotFound if a function is missing, or a structure has another layout than here.
    """

    path: str

    def __init__(self, handle: c.CDLL, path: str = "") -> None:
        self._handle = handle
        self._names = set(FUNCTIONS)
        missing: list[str] = []
        for name, (kind, arguments) in {**FUNCTIONS, **OPTIONAL}.items():
            try:
                function = getattr(handle, name)
            except AttributeError:
                if name in FUNCTIONS:
                    missing.append(name)
                continue
            function.restype, function.argtypes = kind, arguments
            self._names.add(name)
            setattr(self, name, function)
        where = path or "the library"
        if missing:
            raise LibraryNotFound(
                f"{where} lacks {', '.join(missing[:4])}: it is older than this package"
            )
        self.path = loaded_path(handle) or path
        if self.has("zinf_layout"):
            check_table(layout.read_table(self.zinf_layout), where)

    def has(self, name: str) -> bool:
        """Whether the library has a function."""
        return name in self._names

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"libzinf at {self.__dict__.get('path')} has no function '{name}'")


def check_table(table: list[layout.Entry], where: str) -> None:
    """Compare the table of zinf_layout() with this package. Raises LibraryNotFound."""
    found = layout.differences(table)
    if found:
        more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
        raise LibraryNotFound(
            f"{where} does not fit this package: {'; '.join(found[:3])}{more}. Install the package "
            "of the same release as libzinf"
        )


_lock = threading.Lock()
_loaded: Library | None = None


def load() -> Library:
    """Return libzinf, which the first call loads. Raises LibraryNotFound."""
    global _loaded  # noqa: PLW0603 - one library for the process
    with _lock:
        if _loaded is None:
            handle, path = open_library()
            _loaded = Library(handle, path)
        return _loaded
