# SPDX-License-Identifier: Apache-2.0
"""zinf.stats().

Goal: waits are counted by unit and by step, bytes and memory are those of the daemon, and the text
can be read. Method: a small transformer on NVMe.
"""

from __future__ import annotations

import contextlib
import json
import unittest
from typing import Any

try:
    import torch
except ImportError as error:  # the package itself needs no torch
    raise unittest.SkipTest("torch is not installed") from error

import house
import torch_models as models
import zinf
from zinf import waits


@contextlib.contextmanager
def prepared(**settings: Any) -> Any:
    module = models.model()
    module, optimizer = zinf.prepare(module, models.adamw(module), house.config(**settings))
    engine = zinf.engine_of(module)
    try:
        yield module, optimizer, engine
    finally:
        engine.close(delete_job=True)


class Statistics(unittest.TestCase):
    def test_of_a_trained_model(self) -> None:
        with prepared(strategy="zero3", **models.NVME) as (module, optimizer, engine):
            empty = zinf.stats()
            self.assertEqual((empty.step_count, empty.steps), (0, ()))
            models.train(module, optimizer, steps=3, clip=1.0)
            engine.last_stats()
            found = zinf.stats()
            self.assertEqual((found.step_count, found.world_size), (3, 1))
            self.assertEqual(
                [unit.name for unit in found.units], [unit.name for unit in engine.units]
            )
            for row, unit in zip(found.units, engine.units):
                self.assertEqual(row.parameter_count, len(unit.slots))
                is_block = not unit.is_rest and not unit.is_outer
                self.assertGreaterEqual(row.unshard_count, 6 if is_block else 3)
                self.assertGreater(row.unshard_s, 0)
                self.assertLessEqual(row.unshard_longest_s, row.unshard_s)
                self.assertGreater(row.gradient_s, 0)
            self.assertEqual([step.number for step in found.steps], [1, 2, 3])
            for step in found.steps:
                self.assertLess(step.waits_s, step.wall_s)
                self.assertGreater(step.norm_s, 0)  # clip_grad_norm_() asked for it
                self.assertGreater(step.write_bytes or 0, 0)
                self.assertGreater(step.daemon_s or 0, 0)
                self.assertFalse(step.is_skipped)
            last = found.steps[-1]
            by_unit = sum(unit.last_step_s for unit in found.units)
            self.assertAlmostEqual(by_unit, last.unshard_s + last.gradient_s, 6)
            self.assertGreater(found.write_bytes, 0)
            self.assertGreater(found.memory.nvme["state"], 0)
            self.assertGreater(found.memory.anonymous, 0)
            self.assertIn("hits", found.pool)
            text = str(found)
            for word in ("waits by step, ms", "waits by unit, ms", "blocks.0", "<rest>", "on NVMe"):
                self.assertIn(word, text)
            self.assertEqual(json.loads(json.dumps(found.as_dict()))["step_count"], 3)

    def test_the_newest_steps_are_kept(self) -> None:
        kept = waits.Waits()
        for ticket in range(100):
            with kept.of("unshard", 3):
                pass
            kept.end_step(ticket)
        self.assertEqual((len(kept.steps), kept.step_count), (64, 100))
        self.assertEqual(kept.sum_of("unshard", 3).count, 100)
        self.assertEqual(kept.sum_of("unshard", 4).count, 0)

    def test_which_model(self) -> None:
        with self.assertRaisesRegex(zinf.InvalidArgument, "0 prepared models"):
            zinf.stats()
        with self.assertRaisesRegex(zinf.InvalidArgument, "is not prepared"):
            zinf.stats(torch.nn.Linear(2, 2))
        with self.assertRaisesRegex(zinf.InvalidArgument, "not int"):
            zinf.stats(3)
        with prepared() as (first, _, _), prepared() as (second, _, engine):
            with self.assertRaisesRegex(zinf.InvalidArgument, "2 prepared models: give one"):
                zinf.stats()
            self.assertNotEqual(zinf.stats(first).job, zinf.stats(second).job)
            self.assertEqual(zinf.stats(engine).job, zinf.stats(second).job)


if __name__ == "__main__":
    unittest.main()
