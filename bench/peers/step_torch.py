#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gloo and torch.optim as a peer of the suite `step`: one rank that does what bench/coll_order.h says ("step" alone).

A step is what data-parallel training does with its gradients: all_reduce of all of them through Gloo as one flat tensor, the
average, and AdamW over every parameter. bf16 keeps its master in f32, as torch's users do: the reduced gradient is widened (before
the sum where Gloo has none of bf16), and the parameter copied back. Of AdamW's implementations (fused, foreach, a loop) the one is taken that is fastest here.

`sharded` is ZeRO-1: reduce_scatter of the gradients, AdamW over the rank's own part, all_gather of the parameters.

usage: step_torch.py f32|bf16 GRADIENT_BYTES replicated|sharded
"""
import sys
import time

import rank as peer

UNIT = 2048 * 2048


class Rank:
    def __init__(self, rank, world, dtype, gradient_bytes, is_sharded):
        thread_count = peer.pin(rank, world)
        torch, self.dist = peer.join(rank, world)
        self.torch, self.world, self.is_sharded = torch, world, is_sharded
        torch.set_num_threads(thread_count)
        self.narrow = dtype == "bf16"
        count = gradient_bytes // (2 if self.narrow else 4)
        wide = torch.float32
        self.param = self.memory(count, torch.bfloat16) if self.narrow else None
        own = count // world if is_sharded else count  # elements that this rank updates
        self.master = self.memory(own, wide)
        self.whole = self.param if self.narrow else self.memory(count, wide) if is_sharded else self.master
        self.gradient = self.memory(count, torch.bfloat16 if self.narrow else wide).fill_(0.5)
        # AdamW reads its gradient in f32.
        self.reduced = self.memory(own, self.gradient.dtype) if is_sharded else self.gradient
        self.widened = self.memory(own, wide) if self.narrow else self.reduced
        self.parameters = [torch.nn.Parameter(piece) for piece in self.master.split(UNIT)]
        for parameter, piece in zip(self.parameters, self.widened.split(UNIT)):
            parameter.grad = piece
        self.sums_narrow = self.narrow and self.has_sum(torch.bfloat16)
        if is_sharded and self.narrow and not self.sums_narrow:
            raise RuntimeError("this Gloo has no sum of bf16")
        self.choose()

    def has_sum(self, dtype):
        try:
            self.dist.all_reduce(self.torch.zeros(1, dtype=dtype))
            return True
        except RuntimeError:
            return False

    def memory(self, count, dtype):
        return peer.memory(self.torch, count, dtype)

    def choose(self):
        """All ranks the same, by rank 0's clock."""
        times, makers = [], {}
        for name, words in {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}.items():
            try:
                optimizer = self.torch.optim.AdamW(self.parameters, lr=1e-3, weight_decay=0.0, **words)
                optimizer.step()  # moments come to life
                begin = time.perf_counter()
                optimizer.step()
                times.append((time.perf_counter() - begin, name))
                makers[name] = optimizer
            except (RuntimeError, TypeError, ValueError):
                times.append((float("inf"), name))
        best = [min(times)[1]]
        self.dist.broadcast_object_list(best, 0)
        self.kind, self.optimizer = best[0], makers[best[0]]
        self.step()

    def sharded_step(self):
        self.dist.reduce_scatter_tensor(self.reduced, self.gradient)
        if self.narrow:
            self.widened.copy_(self.reduced)
        self.widened.div_(self.world)
        self.optimizer.step()
        part = self.master.to(self.whole.dtype)
        self.dist.all_gather_into_tensor(self.whole, part)

    def step(self):
        if self.is_sharded:
            self.sharded_step()
            return
        if self.sums_narrow:
            self.dist.all_reduce(self.gradient)
        if self.narrow:
            self.widened.copy_(self.gradient)
        if not self.sums_narrow:
            self.dist.all_reduce(self.widened)
        self.widened.div_(self.world)
        self.optimizer.step()
        if self.narrow:
            self.param.copy_(self.master)

    def words(self):
        return f", AdamW by {self.kind}" + (", sums in f32" if self.narrow and not self.sums_narrow else "")

    def obey(self, _operation, _size, iterations):
        self.gradient.fill_(0.5)
        return peer.timed(self.dist, self.step, iterations)


if __name__ == "__main__":
    peer.serve(lambda rank, world: Rank(rank, world, sys.argv[1], int(sys.argv[2]), sys.argv[3] == "sharded"))
