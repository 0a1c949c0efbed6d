# SPDX-License-Identifier: Apache-2.0
"""The package as pip and `make install` make it.

Goal: a wheel has all files and a right RECORD, versions agree, and public names resolve. Method:
the build backend is called as pip calls it.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import importlib.util
import os
import pickle
import re
import subprocess
import sys
import tarfile
import unittest
import zipfile
from typing import Any

import house
import zinf
from zinf import config, errors
from zinf.errors import error_for

_PYTHON = os.path.join(house.ROOT, "python")


def backend() -> Any:
    spec = importlib.util.spec_from_file_location("backend", os.path.join(_PYTHON, "backend.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Package(unittest.TestCase):
    def test_a_function_stays_one_after_the_module_of_its_name(self) -> None:
        code = "import zinf, zinf.prepare, zinf.module.init; assert callable(zinf.prepare)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        if b"No module named 'torch'" in done.stderr:
            self.skipTest("torch is not installed")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_wheel_is_whole_and_is_imported(self) -> None:
        folder = house.folder("wheel")
        path = os.path.join(folder, backend().build_wheel(folder))
        with zipfile.ZipFile(path) as wheel:
            names = set(wheel.namelist())
            record = wheel.read("zinf-0.1.0.dist-info/RECORD").decode().splitlines()
            for line in record:
                name, digest, size = line.split(",")
                names.remove(name)
                if digest:
                    data = wheel.read(name)
                    found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
                    self.assertEqual((digest, size), ("sha256=" + found.decode(), str(len(data))))
        self.assertEqual(names, set())
        for part in ("zinf/__init__.py", "zinf/py.typed", "zinf/libzinf/structures.py"):
            self.assertIn(part, "\n".join(record))
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                "-c",
                f"import sys; sys.path[:0] = [{path!r}]; import zinf; print(zinf.__version__)",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.stdout.strip(), zinf.__version__, done.stderr)

    def test_the_same_files_give_the_same_wheel(self) -> None:
        wheels = []
        for name in ("one", "two"):
            folder = house.folder(name)
            with open(os.path.join(folder, backend().build_wheel(folder)), "rb") as file:
                wheels.append(file.read())
        self.assertEqual(wheels[0], wheels[1])

    def test_editable_wheel_leads_to_the_tree(self) -> None:
        folder = house.folder("editable")
        with zipfile.ZipFile(os.path.join(folder, backend().build_editable(folder))) as wheel:
            self.assertEqual(wheel.read("zinf.pth").decode().strip(), _PYTHON)

    def test_sources_can_be_built(self) -> None:
        folder = house.folder("sources")
        with tarfile.open(os.path.join(folder, backend().build_sdist(folder))) as archive:
            names = archive.getnames()
        for part in ("pyproject.toml", "backend.py", "PKG-INFO", "zinf/session.py"):
            self.assertIn(f"zinf-0.1.0/{part}", names)

    def test_versions_agree(self) -> None:
        with open(os.path.join(house.ROOT, "Makefile")) as file:
            made = re.search(r"^VERSION := (.*)$", file.read(), re.M)
        assert made is not None
        self.assertEqual(zinf.__version__, made[1])
        self.assertEqual(backend()._project("version"), made[1])

    def test_public_names_resolve(self) -> None:
        for name in zinf.__all__:
            self.assertTrue(hasattr(zinf, name), name)
        with self.assertRaisesRegex(AttributeError, "no attribute 'nothing'"):
            _ = zinf.nothing

    def test_each_file_names_its_licence(self) -> None:
        for folder, _, names in os.walk(_PYTHON):
            for name in names:
                if name.endswith((".py", ".toml", ".mk")):
                    with open(os.path.join(folder, name)) as file:
                        self.assertIn("SPDX-License-Identifier: Apache-2.0", file.readline())


class Page(unittest.TestCase):
    """docs/PYTHON.md and the code."""

    def setUp(self) -> None:
        with open(os.path.join(house.ROOT, "docs", "PYTHON.md")) as file:
            self.text = file.read()

    def test_table_of_settings_has_each_setting_once(self) -> None:
        table = self.text.split("| setting | default |")[1].split("\n\n")[0]
        rows = [line.split("|")[1] for line in table.split("\n")[2:]]
        names = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row)]
        self.assertEqual(sorted(names), sorted(config.SETTINGS))

    def test_each_exception_is_explained(self) -> None:
        for name in errors.__all__:
            if name not in ("error_for", "ReadOnlyParameter"):  # Only torch's part raises it.
                self.assertIn(f"`{name}`" if name != "ZinfError" else "zinf.ZinfError", self.text)

    def test_example_runs(self) -> None:
        example = self.text.split("```python\n")[1].split("```")[0]
        done = subprocess.run(
            [sys.executable, "-c", example],
            env={**os.environ, "ZINF_SOCKET": house.socket_path()},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.stdout, "1\n", done.stderr)


class Errors(unittest.TestCase):
    def test_each_errno_has_its_class(self) -> None:

        pairs = {
            errno.EPIPE: zinf.PeerLost,
            errno.ESTALE: zinf.StaleSession,
            errno.EDQUOT: zinf.NoSpace,
            errno.EMFILE: zinf.NoSpace,
            errno.EBADMSG: zinf.StoreFailed,
            errno.ECANCELED: zinf.Canceled,
            errno.ENOENT: zinf.NotFound,
            errno.EPROTO: zinf.ZinfError,
        }
        for number, kind in pairs.items():
            error = error_for(-number, "words")
            self.assertIs(type(error), kind)
            self.assertEqual((str(error), error.errno), ("words", number))
        self.assertIs(type(error_for(-errno.ENOENT, "", is_attach=True)), zinf.DaemonNotFound)
        self.assertEqual(str(error_for(-errno.EIO, "")), "EIO")

    def test_errors_can_be_pickled(self) -> None:

        copy = pickle.loads(pickle.dumps(zinf.NoSpace("words", 122)))
        self.assertEqual((type(copy), str(copy), copy.errno), (zinf.NoSpace, "words", 122))
        self.assertIsInstance(zinf.LibraryNotFound("x"), ImportError)
        self.assertIsInstance(zinf.InvalidArgument("x"), ValueError)


if __name__ == "__main__":
    unittest.main()
