# SPDX-License-Identifier: Apache-2.0
"""Loading libzinf.

Goal: it is found, or the message says where it was looked for; structures that differ from the
library's are refused. Method: processes with other variables, and tables with one change.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import unittest

import house
from zinf.errors import LibraryNotFound
from zinf.libzinf import check_table, find, layout, load
from zinf.libzinf.structures import STRUCTURES


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    environment = {name: value for name, value in environment.items() if value}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def own_table() -> list[layout.Entry]:
    """Return the table that a library with this package's structures would have."""
    table: list[layout.Entry] = []
    for name, structure in STRUCTURES.items():
        table.append((name, "", 0, ctypes.sizeof(structure)))
        for field, *_ in structure._fields_:
            descriptor = getattr(structure, field)
            table.append((name, field, descriptor.offset, descriptor.size))
    return table


class Finding(unittest.TestCase):
    def test_import_needs_neither_torch_nor_libzinf(self) -> None:
        done = python(
            "import zinf, sys; print([m for m in ('torch', 'json', 'socket') if m in sys.modules"
            " and m == 'torch'], zinf.Config().strategy)",
            ZINF_LIBRARY="/nonexistent/libzinf.so.0",
        )
        self.assertEqual(done.stdout.strip(), "[] ddp", done.stderr)

    def test_named_library_that_is_missing(self) -> None:
        done = python(
            "import zinf\n"
            "try: zinf.Session(zinf.Config())\n"
            "except ImportError as error: print(type(error).__name__, error)",
            ZINF_LIBRARY="/nonexistent/libzinf.so.0",
        )
        self.assertIn("LibraryNotFound $ZINF_LIBRARY: /nonexistent/libzinf.so.0", done.stdout)

    def test_library_that_is_nowhere(self) -> None:
        done = python(
            "from zinf.libzinf import find\n"
            "find.LIBRARY_NAME = 'libzinf-of-nobody.so.0'\n"
            "try: find.open_library()\n"
            "except find.LibraryNotFound as error: print(error)",
            ZINF_LIBRARY="",
            ZINF_PREFIX="/opt/nobody",
        )
        for word in ("$ZINF_LIBRARY (not set)", "/opt/nobody/lib/libzinf-of", "dynamic loader"):
            self.assertIn(word, done.stdout)

    def test_library_of_a_prefix(self) -> None:
        done = python(
            "from zinf.libzinf import load; print(load().path)",
            ZINF_LIBRARY="",
            ZINF_PREFIX=house.BUILD,
        )
        self.assertEqual(done.stdout.strip(), os.path.realpath(house.LIBRARY), done.stderr)

    def test_another_library_lacks_functions(self) -> None:
        done = python(
            "import zinf\n"
            "try: zinf.Session(zinf.Config())\n"
            "except zinf.LibraryNotFound as error: print(error)",
            ZINF_LIBRARY="libc.so.6",
        )
        self.assertIn("lacks zinf_version", done.stdout, done.stderr)

    def test_programs_lie_beside_the_library(self) -> None:
        self.assertEqual(find.find_program("zinfd", load().path), os.path.realpath(house.ZINFD))
        with self.assertRaisesRegex(LibraryNotFound, r"zinf-nobody was not found.*\$PATH"):
            find.find_program("zinf-nobody", load().path)


class Layout(unittest.TestCase):
    def changed(self, name: str, field: str, offset: int, size: int) -> list[str]:
        table = [entry for entry in own_table() if entry[:2] != (name, field)]
        return layout.differences([*table, (name, field, offset, size)])

    def test_equal_structures_pass(self) -> None:
        self.assertEqual(layout.differences(own_table()), [])

    def test_structures_of_the_library_are_these(self) -> None:
        library = load()
        if not library.has("zinf_layout"):
            self.skipTest("this libzinf has no zinf_layout()")
        table = layout.read_table(library.zinf_layout)
        self.assertEqual(layout.differences(table), [])
        self.assertGreater(len(table), 100)

    def test_moved_field_is_refused(self) -> None:
        offset = STRUCTURES["zinf_options"].strategy.offset
        found = self.changed("zinf_options", "strategy", offset + 4, 4)
        self.assertEqual(
            found, [f"zinf_options.strategy has 4 bytes at {offset + 4}, expected 4 at {offset}"]
        )

    def test_field_of_another_width_is_refused(self) -> None:
        self.assertIn("has 8 bytes", self.changed("zinf_step_stats", "nonfinite_rank", 128, 8)[0])

    def test_missing_field_is_refused(self) -> None:
        table = [entry for entry in own_table() if entry[:2] != ("zinf_scaler", "scale")]
        self.assertEqual(layout.differences(table), ["zinf_scaler.scale is missing"])

    def test_missing_structure_is_refused(self) -> None:
        table = [entry for entry in own_table() if entry[0] != "zinf_lr_value"]
        self.assertIn("struct zinf_lr_value is not in", layout.differences(table)[0])

    def test_structure_with_bytes_may_grow(self) -> None:
        size = ctypes.sizeof(STRUCTURES["zinf_options"])
        self.assertEqual(self.changed("zinf_options", "", 0, size + 8), [])
        self.assertEqual(len(self.changed("zinf_options", "", 0, size - 8)), 1)
        size = ctypes.sizeof(STRUCTURES["zinf_scaler"])  # It has no `bytes`.
        self.assertEqual(len(self.changed("zinf_scaler", "", 0, size + 8)), 1)

    def test_unknown_structures_are_ignored(self) -> None:
        self.assertEqual(layout.differences([*own_table(), ("zinf_later", "", 0, 8)]), [])

    def test_refusal_names_the_differences(self) -> None:
        doctored = [
            (name, field, offset + 8, size) if name == "zinf_plateau" and field else entry
            for entry in own_table()
            for name, field, offset, size in [entry]
        ]
        with self.assertRaisesRegex(
            LibraryNotFound, r"/x/libzinf.so.0 does not fit.*zinf_plateau.lr has.*and 1 more"
        ):
            check_table(doctored, "/x/libzinf.so.0")


if __name__ == "__main__":
    unittest.main()
