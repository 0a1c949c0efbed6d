# SPDX-License-Identifier: Apache-2.0
"""Compares the structures of this package with the table of the loaded library."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterable, Mapping
from typing import Any

from .structures import STRUCTURES, LayoutField, Structure

Entry = tuple[str, str, int, int]  # structure, field ("" is the whole structure), offset, bytes


def read_table(zinf_layout: Any) -> list[Entry]:
    """Return the table of zinf_layout() as tuples."""
    count = c.c_uint32()
    first = zinf_layout(c.byref(count))
    entries: list[LayoutField] = [first[index] for index in range(count.value)]
    return [
        (_text(entry.structure), _text(entry.field), entry.offset_bytes, entry.bytes)
        for entry in entries
    ]


def differences(
    table: Iterable[Entry], structures: Mapping[str, type[Structure]] = STRUCTURES
) -> list[str]:
    """Compare a table with `structures`. Return a sentence for each difference.

    A structure that this package does not use is ignored. A structure with `bytes` may have more
    fields at its end in the library. Every other difference counts.
    """
    theirs: dict[str, dict[str, tuple[int, int]]] = {}
    for name, field, offset, size in table:
        theirs.setdefault(name, {})[field] = (offset, size)
    found: list[str] = []
    for name, structure in structures.items():
        if name not in theirs:
            found.append(f"struct {name} is not in the library's table")
        else:
            found += _compare(name, structure, theirs[name])
    return found


def _compare(
    name: str, structure: type[Structure], theirs: Mapping[str, tuple[int, int]]
) -> list[str]:
    found: list[str] = []
    own_bytes, their_bytes = c.sizeof(structure), theirs.get("", (0, 0))[1]
    grows = structure._fields_[0][0] == "bytes"
    if own_bytes != their_bytes and not (grows and own_bytes < their_bytes):
        found.append(f"struct {name} has {their_bytes} bytes, expected {own_bytes}")
    for field, *_ in structure._fields_:
        descriptor = getattr(structure, field)
        own = (descriptor.offset, descriptor.size)
        if field.startswith(("reserved", "unused")) and field != "unused_count":
            continue  # A later release may give such a place a name.
        if field not in theirs:
            found.append(f"{name}.{field} is missing")
        elif theirs[field] != own:
            offset, size = theirs[field]
            found.append(
                f"{name}.{field} has {size} bytes at {offset}, expected {own[1]} at {own[0]}"
            )
    return found


def _text(value: Any) -> str:
    return value.decode() if value else ""
