# SPDX-License-Identifier: Apache-2.0
"""zinf.checkpoint without Hugging Face.

Goal: models in safetensors files are written and read unit by unit; DCP is there, or refused.
Method: a small model in zinf; tests/python/hf/test_dcp.py has DCP itself.
"""

from __future__ import annotations

import os
import unittest

import house
import torch
import torch_models as models
import zinf
import zinf.checkpoint

HAS_DCP = not torch.__version__.startswith("1.")


class Checkpoint(unittest.TestCase):
    def test_a_model_passes_through_safetensors(self) -> None:
        folder = house.folder("safetensors")
        module = models.model()
        wanted = {name: value.clone() for name, value in module.state_dict().items()}
        prepared, _ = zinf.prepare(module, models.adamw(module), house.config(optimizer="adamw"))
        engine = zinf.engine_of(prepared)
        try:
            zinf.checkpoint.save_model(prepared, folder, engine.named_tensors())
            with engine.writable(), torch.no_grad():
                for item in prepared.parameters():
                    item.zero_()
            zinf.checkpoint.load_model(prepared, folder)
            for name, value in prepared.state_dict().items():
                self.assertTrue(torch.equal(value, wanted[name]), name)
            with self.assertRaisesRegex(zinf.checkpoint.CheckpointError, "no such file"):
                zinf.checkpoint.load_model(prepared, os.path.join(folder, "none"))
        finally:
            engine.close(delete_job=True)

    def test_a_directory_without_a_snapshot_is_refused(self) -> None:
        with self.assertRaisesRegex(zinf.checkpoint.CheckpointError, "it names no snapshot"):
            zinf.checkpoint.snapshot_in(house.folder("no-snapshot"))

    @unittest.skipIf(HAS_DCP, "this torch has DCP")
    def test_a_torch_without_dcp_is_named(self) -> None:
        for name in ("Reader", "Writer", "state_dict"):
            with self.assertRaisesRegex(zinf.Unsupported, "has no torch.distributed.checkpoint"):
                getattr(zinf.checkpoint, name)
        with self.assertRaises(AttributeError):
            zinf.checkpoint.other  # noqa: B018 - the name is what is tested
