# SPDX-License-Identifier: Apache-2.0
"""The loop of docs/PYTORCH.md does what the page says.

Goal: the program runs as it stands, and a killed run continues with the same figures. Method: the
text of the page, once undisturbed, and once killed after step 121 and started again.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import unittest

import house

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("torch is not installed")

_SUICIDE = "; step == 120 and __import__('os').kill(__import__('os').getpid(), 9)"


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in Python on the daemon of the tests."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ZINF_SOCKET": house.socket_path(), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


class Page(unittest.TestCase):
    def test_loop_continues_after_a_kill_with_the_same_figures(self) -> None:
        with open(os.path.join(house.ROOT, "docs", "PYTORCH.md")) as file:
            text = file.read()
        program = next(
            part.split("```")[0]
            for part in text.split("```python\n")[1:]
            if 'job="sum"' in part.split("```")[0]
        )
        whole = run(program)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        lines = whole.stdout.splitlines()
        self.assertEqual(len(lines), 4, whole.stdout)
        self.assertTrue(lines[-1].startswith("rank 0: step 200, loss 0."), lines[-1])

        other = program.replace('job="sum"', 'job="other"')
        clear = "    optimizer.zero_grad()\n"
        self.assertIn(clear, other)
        killed = run(other.replace(clear, clear.rstrip("\n") + _SUICIDE + "\n"))
        self.assertEqual(killed.returncode, -signal.SIGKILL, killed.stderr)
        again = run(other)
        self.assertEqual(again.returncode, 0, again.stderr)
        # The first run prints nothing before it dies: its output is in a buffer.
        self.assertEqual(again.stdout.splitlines(), lines[2:])
