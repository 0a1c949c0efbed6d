# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of this folder. Prints what fails, each skip, and as the last line the sum.

run.py [NAME]...   names of files, without them all: test_config. TEST_VERBOSE=1: a line for each
test. ZINF_BUILD: folder of the build (build/release). Nothing is left behind: files lie in one
folder, which is removed with the daemon in it.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(os.path.dirname(HERE)), "python")]

import house  # noqa: E402 - it lies beside this file

_LIMIT_S = 1800


class Result(unittest.TextTestResult):
    """Keeps the times of tests."""

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - a name of unittest
        self._start = time.monotonic()
        super().startTest(test)

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - a name of unittest
        super().stopTest(test)
        if os.environ.get("TEST_VERBOSE"):
            print(f"{time.monotonic() - self._start:6.2f} s {test.id()}", flush=True)


def main(names: list[str]) -> int:
    faulthandler.dump_traceback_later(_LIMIT_S, exit=True)
    loader = unittest.TestLoader()
    if names:
        suite = loader.loadTestsFromNames([name.removesuffix(".py") for name in names])
    else:
        suite = loader.discover(HERE, top_level_dir=HERE)
    runner = unittest.TextTestRunner(
        stream=sys.stderr, verbosity=0, resultclass=Result, warnings="ignore"
    )
    with open(os.devnull, "w") as quiet:
        runner.stream = unittest.runner._WritelnDecorator(quiet)
        with house.open_house():
            result = runner.run(suite)
    for kind, pairs in (("ERROR", result.errors), ("FAIL", result.failures)):
        for test, text in pairs:
            print(f"[{kind}] {test}\n{text}")
    for test, reason in result.skipped:
        print(f"[SKIP] {test}: {reason}")
    # A test can fail twice: by itself and at its end.
    broken = [test for test, _ in result.errors + result.failures]
    failed = len({id(test) for test in broken + result.unexpectedSuccesses})
    passed = max(0, result.testsRun - failed - len(result.skipped))
    print(f"{passed} passed, {failed} failed, {len(result.skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
