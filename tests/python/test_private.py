# SPDX-License-Identifier: Apache-2.0
"""A private daemon for a script.

Goal: it starts, serves all ranks, outlives a rank that a launcher starts again, and ends with the
script however that ends; the next script finds its jobs. Method: scripts as processes, locks to
wait for the end of the daemon.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import unittest
from typing import Any
from unittest import mock

import house
import zinf
from test_session import make_model, one_step, write_first
from zinf import private
from zinf.libzinf import load

# ---- programs ----


def settings(directory: str, **others: Any) -> zinf.Config:
    start = {"private_dir": directory, "private_size": house.STORE, "private_set": house.SETS}
    return zinf.Config.load(optimizer="sgd", timeout=20, staging_bytes="12M", **start, **others)


def script(directory: str, end: str) -> None:
    """Train one step; then end, wait for a line, or die."""
    session = zinf.Session(settings(directory))
    make_model(session)
    if session.committed_step < 0:
        write_first(session)
    print(one_step(session, 1.0).step, flush=True)
    if end == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "wait":
        sys.stdin.readline()


def launcher(directory: str) -> None:
    """Start two ranks twice, as torchrun does after the death of a rank."""
    for restart in range(2):
        environment = {"TORCHELASTIC_RESTART_COUNT": str(restart), "WORLD_SIZE": "2"}
        ranks = []
        for rank in range(2):
            variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
            ranks.append(
                house.start_program(
                    "test_private.rank",
                    directory,
                    str(restart),
                    environment={**os.environ, **environment, **variables},
                )
            )
        for process in ranks:
            print(house.finish(process).strip(), flush=True)


def rank(directory: str, restart: str) -> None:
    # State in memory: only a daemon that stayed has it.
    session = zinf.Session(settings(directory, offload_optimizer="none", offload_param="none"))
    make_model(session)
    if session.committed_step < 0:
        write_first(session)
    step = one_step(session, 1.0).step
    session.barrier()
    print(f"start {restart}: step {step}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def waiting_launcher(directory: str) -> None:
    """Start two ranks that wait, print their processes, and wait for them."""
    variables = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = [
        house.start_program(
            "test_private.waiting_rank",
            directory,
            environment={**os.environ, **variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    for process in ranks:
        assert process.stdout is not None
        print(process.stdout.readline().strip(), flush=True)
    for process in ranks:
        process.wait()


def waiting_rank(directory: str) -> None:
    session = zinf.Session(settings(directory))
    make_model(session)
    print(os.getpid(), flush=True)
    try:
        while True:  # Other ranks are lost when they are killed: this one stays.
            signal.pause()
    finally:
        session.close()


def wait_for_death(pid: int, seconds: float = 60) -> None:
    """Return when a process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    is_dead = bool(poll.poll(seconds * 1000))
    os.close(descriptor)
    if not is_dead:
        os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"process {pid} has not ended within {seconds} s")


# ---- tests ----


class Private(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = house.folder("private")
        self.addCleanup(self.wait_for_end)

    def wait_for_end(self) -> None:
        """Return when no keeper has the directory."""
        lock = os.open(os.path.join(self.directory, "keeper.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.lockf(lock, fcntl.LOCK_EX)
        os.close(lock)

    def run_script(self, end: str) -> str:
        process = house.start_program("test_private.script", self.directory, end)
        output = house.finish(process)
        self.assertEqual(process.returncode, -signal.SIGKILL if end == "die" else 0, output)
        return output.strip()

    def log(self, name: str = "zinfd.log") -> str:
        with open(os.path.join(self.directory, name)) as file:
            return file.read()

    def test_script_after_script(self) -> None:
        self.assertEqual(self.run_script("end"), "1")
        self.wait_for_end()
        self.assertRegex(self.log(), "stopping, [01] sessions")  # It may notice the end first.
        mode = stat.S_IMODE(os.stat(os.path.join(self.directory, "store")).st_mode)
        self.assertEqual(mode & 0o077, 0)
        # Also at once, while the daemon of a killed script stops.
        self.assertEqual(self.run_script("die"), "2")
        self.assertEqual(self.run_script("end"), "3")
        self.assertIn("listens at", self.log("zinfd.log.old"))

    def command(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "zinf.private", self.directory, *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    def test_a_command_after_the_script_removes_its_job(self) -> None:
        code, text = self.command()
        self.assertEqual((code, "has no store of a private daemon" in text), (1, True), text)
        self.run_script("end")
        self.wait_for_end()
        code, text = self.command()  # zctl jobs
        self.assertEqual((code, "default" in text), (0, True), text)
        code, text = self.command("zctl", "delete", "default", "--yes")
        self.assertEqual((code, "deleted job default" in text), (0, True), text)
        self.wait_for_end()
        self.assertEqual(self.command("zctl", "--json", "jobs"), (0, "[]\n"))
        self.assertEqual(self.command("sh", "-c", "exit 7")[0], 7)
        self.assertEqual(self.command("no-such-command")[0], 1)
        self.wait_for_end()

    def test_two_scripts_share_a_daemon(self) -> None:
        first = house.start_program("test_private.script", self.directory, "wait")
        self.addCleanup(house.kill, first)
        assert first.stdout is not None
        self.assertEqual(first.stdout.readline(), "1\n")
        second = house.start_program(
            "test_private.script",
            self.directory,
            "wait",
            environment={**os.environ, "ZINF_JOB": "other"},
        )
        self.addCleanup(house.kill, second)
        assert second.stdout is not None
        self.assertEqual(second.stdout.readline(), "1\n")
        house.finish(first)  # Its standard input ends.
        self.assertTrue(private._answers(os.path.join(self.directory, "zinfd.sock")))
        house.finish(second)
        self.wait_for_end()
        self.assertFalse(private._answers(os.path.join(self.directory, "zinfd.sock")))

    def test_daemon_outlives_ranks_that_a_launcher_starts_again(self) -> None:
        process = house.start_program("test_private.launcher", self.directory)
        lines = house.finish(process).strip().split("\n")
        self.assertEqual(sorted(lines), ["start 0: step 1"] * 2 + ["start 1: step 2"] * 2)
        self.wait_for_end()
        self.assertEqual(os.listdir(os.path.join(self.directory, "launchers")), [])

    def daemon_and_keeper(self) -> tuple[int, int]:
        """Return the processes of the daemon that runs in the directory, and of its keeper."""
        path = os.path.join(self.directory, "zinfd.sock")
        daemon = zinf.admin.run("status", socket_path=path)["pid"]
        with open(f"/proc/{daemon}/stat") as file:
            return daemon, int(file.read().rpartition(")")[2].split()[1])

    def start_waiting_ranks(self) -> tuple[Any, list[int]]:
        """Return a launcher and the processes of its two ranks, which are attached."""
        process = house.start_program("test_private.waiting_launcher", self.directory)
        self.addCleanup(house.kill, process)
        ranks = [int(process.stdout.readline()) for _ in range(2)]
        return process, ranks

    def kill_all(self, launcher: Any, ranks: list[int]) -> None:
        for pid in (launcher.pid, *ranks):
            os.kill(pid, signal.SIGKILL)
        launcher.wait()

    def test_daemon_ends_after_kill_of_launcher_and_ranks(self) -> None:
        launcher, ranks = self.start_waiting_ranks()
        daemon, its_keeper = self.daemon_and_keeper()
        self.kill_all(launcher, ranks)
        wait_for_death(daemon)
        wait_for_death(its_keeper)
        self.assertEqual(os.listdir(os.path.join(self.directory, "launchers")), [])

    def test_daemon_ends_after_kill_and_removal_of_the_directory(self) -> None:
        launcher, ranks = self.start_waiting_ranks()
        daemon, its_keeper = self.daemon_and_keeper()
        # The keeper looks after the ranks' death, and finds nothing.
        os.kill(its_keeper, signal.SIGSTOP)
        self.kill_all(launcher, ranks)
        shutil.rmtree(self.directory)
        os.kill(its_keeper, signal.SIGCONT)
        wait_for_death(daemon)
        wait_for_death(its_keeper)
        os.mkdir(self.directory)

    def test_daemon_ends_when_its_directory_is_removed(self) -> None:
        process = house.start_program("test_private.script", self.directory, "wait")
        self.addCleanup(house.kill, process)
        assert process.stdout is not None
        self.assertEqual(process.stdout.readline(), "1\n")
        daemon, its_keeper = self.daemon_and_keeper()
        shutil.rmtree(self.directory)
        wait_for_death(daemon)
        wait_for_death(its_keeper)
        os.mkdir(self.directory)
        self.assertEqual(process.poll(), None)  # The script itself goes on.

    def test_directory_that_was_removed_is_made_anew(self) -> None:
        self.addCleanup(self.release)
        with zinf.Session(settings(self.directory)):
            _, its_keeper = self.daemon_and_keeper()
        shutil.rmtree(self.directory)
        wait_for_death(its_keeper)
        with zinf.Session(settings(self.directory)) as session:
            session.ping()

    def test_daemon_ends_when_its_keeper_is_killed(self) -> None:
        process = house.start_program("test_private.script", self.directory, "wait")
        self.addCleanup(house.kill, process)
        assert process.stdout is not None
        self.assertEqual(process.stdout.readline(), "1\n")
        daemon, its_keeper = self.daemon_and_keeper()
        os.kill(its_keeper, signal.SIGKILL)
        wait_for_death(daemon)
        self.assertIn("SIGTERM: stopping", self.log())

    def test_refused_setting_shows_the_log(self) -> None:
        config = settings(self.directory).replace(private_set="tier.cpu.capacityy=1M")
        with self.assertRaises(zinf.DaemonNotFound) as raised:
            zinf.Session(config)
        text = str(raised.exception)
        self.assertRegex(text, r"ended with code \d+\. The end of .*/zinfd\.log:")
        self.assertIn("capacityy", text)
        self.release()

    def test_daemon_that_cannot_start_is_named_to_other_ranks(self) -> None:
        config = settings(self.directory).replace(rank=1, world_size=2)
        former, private._QUIET_S = private._QUIET_S, 0.1
        try:
            with self.assertRaisesRegex(zinf.DaemonNotFound, "no private zinfd came up .*is empty"):
                zinf.Session(config)
        finally:
            private._QUIET_S = former
        self.release()

    def release(self) -> None:
        """Give up what this process has in the directory, as its end would."""
        os.close(private._used.pop(self.directory).lease)

    def test_directories_that_cannot_be_used(self) -> None:
        with self.assertRaisesRegex(zinf.InvalidArgument, "at most 107"):
            zinf.Session(settings("/tmp/" + "d" * 100))
        with self.assertRaisesRegex(zinf.InvalidArgument, "cannot be made"):
            zinf.Session(settings("/proc/nobody"))

    def test_full_store_names_the_setting(self) -> None:
        self.addCleanup(self.release)
        session = zinf.Session(settings(self.directory))
        session.add_unit("u")
        session.add_param("p", (1 << 23,))
        with self.assertRaises(zinf.NoSpace) as raised:
            session.materialize()
        self.assertRegex(
            str(raised.exception),
            r"needs .* enlarge the store.*has a store of 64 MiB: set private_size=\"128M\"",
        )
        session.close()
        # The next start takes the figure, or the need of the model that prepare() knows.
        private._used[self.directory].need_bytes = 300 << 20
        self.assertIn('private_size="300M"', private.hint_for(session.config, "on nvme:disk, "))
        self.assertEqual(private.hint_for(session.config, "raise tier.cpu.capacity"), "")
        self.assertEqual(private.hint_for(zinf.Config(), "on nvme:disk, "), "")

    def test_store_that_is_too_small_grows_at_the_next_start(self) -> None:
        self.assertEqual(self.run_script("end"), "1")
        self.wait_for_end()
        config = settings(self.directory).replace(private_size=None)
        private.ensure(config, load(), need_bytes=100 << 20)
        self.assertEqual(os.stat(os.path.join(self.directory, "store")).st_size, 100 << 20)
        self.assertEqual(self.run_script("end"), "2")  # The job is there.
        self.release()

    def test_store_larger_than_the_disk(self) -> None:
        with self.assertRaisesRegex(zinf.NoSpace, r"needs \d+ MiB, and \d+ MiB are free"):
            zinf.Session(settings(self.directory).replace(private_size=1 << 60))
        self.release()


class Sizes(unittest.TestCase):
    def test_size_of_the_store(self) -> None:
        directory = house.folder("sizes")
        config = zinf.Config(private_dir=directory)
        words = private._store_words(config, directory)
        self.assertLessEqual(int(words[1]), 8 << 30)
        with open(os.path.join(directory, "store"), "wb") as store:
            store.truncate(128 << 20)
        self.assertEqual(private._store_words(config, directory), [])
        smaller = config.replace(private_size="100M")
        self.assertEqual(private._store_words(smaller, directory), [])
        larger = config.replace(private_size="200M")
        self.assertEqual(private._store_words(larger, directory), ["--size", str(200 << 20)])

    def words_for(self, need: int, *, present: int = 0, free: int = 1 << 40, **given: Any) -> Any:
        """Return the size that zinfd is started with, as the disk has `free` bytes."""
        directory = house.folder("room")
        if present:
            with open(os.path.join(directory, "store"), "wb") as store:
                store.truncate(present)
        config = zinf.Config(private_dir=directory, **given)
        with mock.patch.object(private.shutil, "disk_usage") as usage:
            usage.return_value.free = free
            words = private._store_words(config, directory, need)
        return int(words[1]) if words else None

    def test_a_model_that_needs_more_gets_a_larger_store(self) -> None:
        self.assertEqual(self.words_for(1 << 20), 8 << 30)
        self.assertEqual(self.words_for(20 << 30), 20 << 30)
        self.assertEqual(self.words_for(20 << 30, present=1 << 30), 20 << 30)
        self.assertIsNone(self.words_for(1 << 30, present=1 << 30))
        # What the user says stands.
        self.assertEqual(self.words_for(20 << 30, private_size="100M"), 100 << 20)
        self.assertIsNone(self.words_for(20 << 30, present=1 << 30, private_size="100M"))

    def test_a_disk_that_is_small_for_a_model(self) -> None:
        # Without room for a snapshot.
        self.assertEqual(self.words_for(30 << 30, free=25 << 30), (25 << 30) // 10 * 9)
        for present in (0, 1 << 30):
            with self.assertRaisesRegex(zinf.NoSpace, "store of 30720 MiB .* 1024 MiB are free"):
                self.words_for(30 << 30, present=present, free=1 << 30)

    def test_need_of_a_model(self) -> None:
        config = zinf.Config(private_dir="/nvme")
        self.assertEqual(private.need_for(config, 1000, 4), private.size_for(1000, 4))
        config = config.replace(offload_param="cpu")
        self.assertEqual(private.need_for(config, 1000, 4), private.size_for(1000, 4))
        config = config.replace(offload_optimizer="none")
        self.assertEqual(private.need_for(config, 1000, 4), 0)

    def test_size_for_a_model(self) -> None:
        self.assertGreater(private.size_for(1000000), 2 * 14 * 1000000)
        self.assertGreaterEqual(private.size_for(1), 64 << 20)


if __name__ == "__main__":
    unittest.main()
