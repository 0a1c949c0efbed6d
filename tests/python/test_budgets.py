# SPDX-License-Identifier: Apache-2.0
"""Memory for units that the package asks for where the settings name none.

Goal: a model whose embedding is larger than its blocks takes less than the daemon's defaults, any
other model takes these, and the smaller memory changes no bits. Method: arithmetic; a model with an
large embedding, with and without the budgets.
"""

from __future__ import annotations

import unittest
from unittest import mock

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("torch is not installed") from error

import torch_models as models
import zinf
from test_training import prepared
from torch import nn
from zinf.module import budgets

MIB = 1 << 20
GPT2 = [7087872] * 12 + [38597376, 787968]


class Budgets(unittest.TestCase):
    def test_of_an_embedding_larger_than_blocks(self) -> None:
        # The embedding takes 74 MiB, a block 14, the rest 2.
        self.assertEqual(budgets.param_budget(GPT2, 2, 2), (74 + 4 * 14) * MIB)
        self.assertEqual(budgets.grad_budget(GPT2, 2, 2), (74 + 3 * 14) * MIB)
        # Eight ranks use as many blocks at once: the daemon's choice is less.
        self.assertEqual(budgets.param_budget(GPT2, 2, 16), 0)

    def test_of_other_models_are_the_daemons(self) -> None:
        for counts in ([7 * MIB] * 12, [7 * MIB] * 12 + [4096], [50 * MIB], [1000] * 3 + [50000]):
            self.assertEqual(budgets.param_budget(counts, 2, 2), 0)
            self.assertEqual(budgets.grad_budget(counts, 2, 2), 0)


class Wide(nn.Module):
    """A transformer with a vocabulary larger than all its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1 << 15, models.WIDTH)
        self.blocks = nn.ModuleList(models.Block(models.WIDTH, 0.0) for _ in range(6))
        self.head = nn.Linear(models.WIDTH, models.VOCAB, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)  # type: ignore[no-any-return]


class Training(unittest.TestCase):
    def test_has_the_same_bits_in_less_memory(self) -> None:
        found = []
        settings = {"strategy": "zero3", "update_early": True, **models.NVME}
        for is_small in (True, False):
            torch.manual_seed(1)
            with (
                mock.patch.object(budgets, "_WORTH", 0 if is_small else 1 << 60),
                mock.patch.object(budgets, "_PAGE", 4096),
                prepared(Wide(), **settings) as (module, optimizer, engine),
            ):
                config = engine.session.config
                self.assertEqual(config.param_budget_bytes > 0, is_small)
                self.assertEqual(config.grad_budget_bytes > 0, is_small)
                losses = models.train(module, optimizer, steps=3)
                held = zinf.stats(module).memory.cpu
                found.append((losses, held["param"] + held["grad"], models.values(module)))
        self.assertEqual(found[0][0], found[1][0])
        self.assertTrue(models.is_same(found[0][2], found[1][2]))
        self.assertLess(found[0][1], found[1][1])


class Room(unittest.TestCase):
    def test_beside_a_gradient_is_for_two_of_any_other_unit(self) -> None:
        page = 1 << 20  # elements of two bytes
        self.assertTrue(budgets.leaves_room([6 * page, page, page], 2, 0, 0))
        self.assertFalse(budgets.leaves_room([6 * page, page, page], 2, 1, 0))
        self.assertTrue(budgets.leaves_room([6 * page, page, page], 2, 0, 16 << 20))
        self.assertFalse(budgets.leaves_room([6 * page, page, page], 2, 0, (16 << 20) - 1))
        self.assertTrue(budgets.leaves_room([6 * page], 2, 0, 0))


if __name__ == "__main__":
    unittest.main()
