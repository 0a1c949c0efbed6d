# SPDX-License-Identifier: Apache-2.0
"""python -m zinf.doctor.

Goal: it says what is missing and what to do, and its exit code tells it. Method: the command, with
a daemon, without one, and with wrong variables.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unittest
from typing import Any
from unittest import mock

import house
from zinf import doctor


def run(*words: str, **variables: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "zinf.doctor", *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.stderr:
        raise AssertionError(done.stderr)
    return done.returncode, done.stdout


class Doctor(unittest.TestCase):
    def rows(self, *words: str, **variables: str) -> tuple[int, dict[str, Any]]:
        code, output = run("--json", *words, **variables)
        return code, {row["subject"]: row for row in json.loads(output)}

    def test_with_a_daemon_zinf_can_train(self) -> None:
        code, output = run(ZINF_SOCKET=house.socket_path())
        self.assertEqual(code, 0, output)
        self.assertEqual(output.splitlines()[-1], "zinf can train here")
        for word in ("libzinf", "layout", "zinfd", "io_uring", "lockable memory", "nvme:"):
            self.assertIn(word, output)

    def test_without_a_daemon_it_says_what_to_do(self) -> None:
        place = house.folder("doctor")
        path = os.path.join(place, "none.sock")
        code, rows = self.rows(ZINF_SOCKET=path)
        self.assertEqual((code, rows["daemon"]["verdict"]), (1, "missing"))
        self.assertIn("ZINF_PRIVATE=DIRECTORY", rows["daemon"]["advice"])
        code, rows = self.rows(ZINF_PRIVATE=place)  # the script starts one
        self.assertEqual((code, rows["daemon"]["verdict"]), (0, "ok"))
        self.assertIn(place, rows["private store"]["found"])

    def test_a_library_that_is_missing(self) -> None:
        code, rows = self.rows(ZINF_LIBRARY="/nonexistent/libzinf.so.0", PATH="/nonexistent")
        self.assertEqual((code, rows["libzinf"]["verdict"]), (1, "missing"))
        self.assertIn("/nonexistent/libzinf.so.0", rows["libzinf"]["found"])

    def test_wrong_variables(self) -> None:
        socket_path = house.socket_path()
        code, rows = self.rows(ZINF_SOCKET=socket_path, ZINF_STRATEGI="zero3")
        self.assertEqual((code, rows["variables"]["verdict"]), (0, "could be better"))
        self.assertIn("ZINF_STRATEGY", rows["variables"]["found"])
        code, rows = self.rows(ZINF_SOCKET=socket_path, ZINF_RANK="many")
        self.assertEqual((code, rows["variables"]["verdict"]), (1, "missing"))

    def test_stores(self) -> None:
        tier = {"name": "nvme:disk", "capacity_bytes": 100 << 30, "used_bytes": 99 << 30}
        self.assertEqual(doctor._tier(tier).verdict, doctor.BETTER)
        member = {"path": "/nvme", "state": "failed", "reason": "EIO"}
        found = doctor._tier({**tier, "used_bytes": 0, "members": [member]})
        self.assertEqual(found.verdict, doctor.BETTER)
        self.assertIn("/nvme is failed", found.found)
        place = house.folder("room")
        with mock.patch("shutil.disk_usage", return_value=mock.Mock(free=1 << 30)):
            self.assertEqual(doctor._room(place).verdict, doctor.BETTER)

    def test_torch(self) -> None:
        with mock.patch.dict(sys.modules, {"torch": None}):
            (found,) = doctor._torch()
            self.assertEqual(found.verdict, doctor.BETTER)
            self.assertIn("cannot be imported", found.found)


if __name__ == "__main__":
    unittest.main()
