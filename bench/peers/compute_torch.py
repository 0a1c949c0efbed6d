#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch as a peer of the suite `step`, part `compute`: one rank that does what bench/coll_order.h says ("step" alone).

A step is a forward and a backward of zinf-gpt's model, of GPT-2 small's shape: 12 blocks of 768 channels and 12 heads, one sequence of
256 tokens, a vocabulary of 256. Attention by torch's fused function. Gradients are added to those that are there.

usage: compute_torch.py f32|bf16
"""
import sys

import rank as peer

LAYERS, CHANNELS, HEADS, TOKENS, VOCABULARY = 12, 768, 12, 256, 256


def model(torch):
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS)
            self.qkv, self.att = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
            self.fc, self.mlp = nn.Linear(CHANNELS, 4 * CHANNELS), nn.Linear(4 * CHANNELS, CHANNELS)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
            heads = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.att(heads.transpose(1, 2).reshape(b, t, c))
            return x + self.mlp(functional.gelu(self.fc(self.ln2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(VOCABULARY, CHANNELS), nn.Embedding(TOKENS, CHANNELS)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.ln = nn.LayerNorm(CHANNELS)

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe.weight
            for block in self.blocks:
                x = block(x)
            logits = self.ln(x) @ self.wte.weight.T
            return functional.cross_entropy(logits.float().view(-1, VOCABULARY), targets.view(-1))

    return Model()


class Rank:
    def __init__(self, rank, world, dtype):
        thread_count = peer.pin(rank, world)
        torch, self.dist = peer.join(rank, world)
        self.torch = torch
        torch.set_num_threads(thread_count)
        torch.manual_seed(rank)
        self.model = model(torch).to({"f32": torch.float32, "bf16": torch.bfloat16}[dtype])
        self.tokens = torch.randint(0, VOCABULARY, (1, TOKENS))
        self.step()

    def step(self):
        self.model(self.tokens, self.tokens).backward()

    def words(self):
        return f", {self.torch.get_num_threads()} threads"

    def obey(self, _operation, _size, iterations):
        self.model.zero_grad(set_to_none=False)
        return peer.timed(self.dist, self.step, iterations)


if __name__ == "__main__":
    peer.serve(lambda rank, world: Rank(rank, world, sys.argv[1]))
