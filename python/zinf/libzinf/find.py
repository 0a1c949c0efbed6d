# SPDX-License-Identifier: Apache-2.0
"""Finds libzinf.so.0, zinfd and zctl."""

from __future__ import annotations

import ctypes as c
import os
import shutil

from ..errors import LibraryNotFound

LIBRARY_NAME = "libzinf.so.0"


def installed_prefix() -> str | None:
    """Return PREFIX if this package lies in PREFIX/lib/python3/dist-packages, else None."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    parts = package.split(os.sep)
    for index in range(len(parts) - 1, 0, -1):
        if parts[index] in ("lib", "lib64") and parts[index + 1].startswith("python3"):
            return os.sep.join(parts[:index]) or os.sep
    return None


def _candidates() -> list[str]:
    prefixes = [os.environ.get("ZINF_PREFIX"), installed_prefix()]
    return [os.path.join(prefix, "lib", LIBRARY_NAME) for prefix in prefixes if prefix]


def open_library() -> tuple[c.CDLL, str]:
    """Load libzinf. Return it with its path.

    The order is $ZINF_LIBRARY, lib/ of $ZINF_PREFIX, lib/ of the prefix of this package, and the
    dynamic loader. Raises LibraryNotFound, which names these places.
    """
    named = os.environ.get("ZINF_LIBRARY")
    if named:
        try:
            return c.CDLL(named), named
        except OSError as error:
            raise LibraryNotFound(
                f"$ZINF_LIBRARY: {error}. Set it to the path of {LIBRARY_NAME}, or unset it"
            ) from error
    looked: list[str] = []
    for path in _candidates():
        if os.path.exists(path):
            try:
                return c.CDLL(path), path
            except OSError as error:
                raise LibraryNotFound(f"{LIBRARY_NAME} cannot be loaded: {error}") from error
        looked.append(path)
    try:
        return c.CDLL(LIBRARY_NAME), LIBRARY_NAME
    except OSError as error:
        places = ", ".join(["$ZINF_LIBRARY (not set)", *looked, f"the dynamic loader ({error})"])
        raise LibraryNotFound(
            f"{LIBRARY_NAME} was not found. Looked in: {places}. Install zinf (make install, "
            "then ldconfig), or set ZINF_PREFIX to a folder with lib/, such as build/release"
        ) from error


def loaded_path(library: c.CDLL) -> str:
    """Return the file of a loaded library."""
    address = c.cast(library.zinf_version, c.c_void_p).value

    class Info(c.Structure):
        _fields_ = [
            ("file", c.c_char_p),
            ("base", c.c_void_p),
            ("symbol", c.c_char_p),
            ("at", c.c_void_p),
        ]

    info = Info()
    dladdr = getattr(c.CDLL(None), "dladdr", None)
    if dladdr is None or not dladdr(c.c_void_p(address), c.byref(info)) or not info.file:
        return ""
    return os.path.realpath(os.fsdecode(info.file))


def find_program(name: str, library_path: str = "") -> str:
    """Return the path of zinfd or zctl.

    The order is bin/ and sbin/ beside the library's lib/, the same below $ZINF_PREFIX and below
    the prefix of this package, and $PATH. Raises LibraryNotFound.
    """
    prefixes: list[str] = []
    if os.sep in library_path:
        prefixes.append(os.path.dirname(os.path.dirname(library_path)))
    prefixes += [prefix for prefix in (os.environ.get("ZINF_PREFIX"), installed_prefix()) if prefix]
    looked: list[str] = []
    for prefix in prefixes:
        for folder in ("sbin", "bin"):
            path = os.path.join(prefix, folder, name)
            if os.access(path, os.X_OK):
                return path
            looked.append(path)
    in_path = shutil.which(name)
    if in_path:
        return in_path
    raise LibraryNotFound(
        f"{name} was not found. Looked in: {', '.join([*looked, '$PATH'])}. Install zinf "
        f"(make install), or set ZINF_PREFIX to the folder that has bin/{name}"
    )
