# SPDX-License-Identifier: Apache-2.0
"""What zctl does for scripts.

Goal: jobs and snapshots are listed and removed, and zctl's sentence arrives as an exception.
Method: a job with a snapshot.
"""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

import house
import test_session
import zinf
from zinf import admin


class Admin(unittest.TestCase):
    def test_jobs_and_snapshots(self) -> None:
        path = house.socket_path()
        job = house.job_name()
        session = house.session(job=job, offload_optimizer="nvme")
        test_session.make_model(session)
        test_session.write_first(session)
        with self.assertRaisesRegex(zinf.Busy, f"job '{job}' is in use"):
            admin.delete_job(job, socket_path=path)
        session.close()
        self.assertEqual(admin.jobs(job, socket_path=path)[0]["name"], job)
        self.assertEqual(admin.take_snapshot(job, "one", socket_path=path)["step"], 0)
        with self.assertRaises(zinf.Exists):
            admin.take_snapshot(job, "one", socket_path=path)
        admin.restore_snapshot(f"{job}/one", other=f"{job}-b", socket_path=path)
        self.assertTrue(admin.delete_job(f"{job}-b", socket_path=path))
        self.assertTrue(admin.delete_job(job, socket_path=path))
        self.assertFalse(admin.delete_job(job, missing_ok=True, socket_path=path))
        with self.assertRaisesRegex(zinf.NotFound, f"no job '{job}'"):
            admin.delete_job(job, socket_path=path)
        self.assertEqual([s["name"] for s in admin.snapshots(job, socket_path=path)], ["one"])
        self.assertTrue(admin.delete_snapshot(f"{job}/one", socket_path=path))
        self.assertFalse(admin.delete_snapshot(f"{job}/one", missing_ok=True, socket_path=path))
        with self.assertRaises(zinf.NotFound):
            admin.delete_snapshot(f"{job}/one", socket_path=path)

    def test_delete_waits_for_the_work_of_the_job(self) -> None:
        """A double of run() stands for a daemon that is busy twice."""
        busy = zinf.Busy("job 'x' is still working (IDLE): try again")
        answers: list[Any] = [busy, busy, None]
        with mock.patch.object(admin, "run", side_effect=answers) as run:
            self.assertTrue(admin.delete_job("x"))
            self.assertEqual(run.call_count, 3)
        with mock.patch.object(admin, "run", side_effect=busy) as run:
            with self.assertRaisesRegex(zinf.Busy, "still working"):
                admin.delete_job("x", wait_s=0)
            self.assertEqual(run.call_count, 1)

    def test_no_daemon(self) -> None:
        with self.assertRaisesRegex(zinf.DaemonNotFound, "no zinfd listens at /nonexistent/s"):
            admin.delete_job("a", missing_ok=True, socket_path="/nonexistent/s")

    def test_names_that_zctl_would_take_for_options(self) -> None:
        with self.assertRaises(zinf.InvalidArgument):
            admin.delete_job("--help")


if __name__ == "__main__":
    unittest.main()
