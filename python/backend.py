# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel for pip (PEP 517, PEP 660), with the standard library only.

setuptools would do, but its releases before 70 need the package `wheel`, which a new virtual
environment lacks, so that `pip install` would need a network. The package is files of Python:
a wheel of them is a zip file with three lists.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import tarfile
import zipfile
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = "zinf"
_TIME = (1980, 1, 1, 0, 0, 0)  # the same files give the same wheel


def _project(key: str) -> str:
    """Return a text of the table [project]. Python 3.9 cannot read TOML."""
    with open(os.path.join(_HERE, "pyproject.toml"), encoding="utf-8") as file:
        match = re.search(rf'^{key} = "(.*)"$', file.read(), re.M)
    assert match is not None, f"pyproject.toml has no {key}"
    return match[1]


def _files() -> list[str]:
    """Return the files of the package, sorted, below this folder."""
    found: list[str] = []
    for folder, _, names in os.walk(os.path.join(_HERE, _PACKAGE)):
        for name in names:
            if name.endswith(".py") or name == "py.typed":
                found.append(os.path.relpath(os.path.join(folder, name), _HERE))
    return sorted(found)


def _metadata() -> str:
    return (
        "Metadata-Version: 2.1\n"
        f"Name: {_project('name')}\n"
        f"Version: {_project('version')}\n"
        f"Summary: {_project('description')}\n"
        f"Requires-Python: {_project('requires-python')}\n"
        "License: Apache-2.0\n"
    )


def _stem() -> str:
    return f"{_project('name')}-{_project('version')}"


def _write_wheel(folder: str, contents: dict[str, bytes]) -> str:
    info = f"{_stem()}.dist-info"
    contents = {
        **contents,
        f"{info}/METADATA": _metadata().encode(),
        f"{info}/WHEEL": (
            b"Wheel-Version: 1.0\nGenerator: zinf\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = ""
    for name, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    contents[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = f"{_stem()}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return wheel


def _read(path: str) -> bytes:
    with open(os.path.join(_HERE, path), "rb") as file:
        return file.read()


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Write the wheel. Return its name."""
    return _write_wheel(wheel_directory, {path: _read(path) for path in _files()})


def build_editable(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Write a wheel that leads to this folder (pip install --editable). Return its name."""
    return _write_wheel(wheel_directory, {f"{_PACKAGE}.pth": _HERE.encode() + b"\n"})


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Write the sources. Return the name of the archive."""
    name = f"{_stem()}.tar.gz"
    with tarfile.open(os.path.join(sdist_directory, name), "w:gz") as archive:
        for path in [*_files(), "pyproject.toml", "backend.py"]:
            archive.add(os.path.join(_HERE, path), f"{_stem()}/{path}")
        # PKG-INFO is what an index reads.
        data = _metadata().encode()
        info = tarfile.TarInfo(f"{_stem()}/PKG-INFO")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return name
