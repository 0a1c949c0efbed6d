#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of PyTorch's DistributedDataParallel (gloo, f32) on zinf-gpt's model: from the values and batches of two files
to a line "STEP RANK LOSS" for each step. RANK and WORLD_SIZE come in the environment.

usage: torch_ddp.py --dump FILE --batches FILE --store FILE --layers N --heads N --d-model N --seq-len N --batch-size N
                    --grad-accum N --steps N --lr X --weight-decay X --clip X
"""
import argparse
import contextlib
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F

VOCAB = 256


class Values:
    """A dump of zinf-gpt: 8 bytes of step, then all parameters, in the order in which they are asked for."""

    def __init__(self, path):
        with open(path, "rb") as file:
            step, self.bytes = int.from_bytes(file.read(8), "little"), bytearray(file.read())
        if step != 0:
            raise SystemExit(f"{path} is of step {step}, not of the start")
        self.used = 0

    def take(self, *shape):
        count = math.prod(shape)
        values = torch.frombuffer(self.bytes, dtype=torch.float32, count=count, offset=self.used)
        self.used += 4 * count
        return torch.nn.Parameter(values.clone().view(*shape))


class Norm(torch.nn.Module):
    def __init__(self, values, c):
        super().__init__()
        self.weight, self.bias = values.take(c), values.take(c)

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-5)


class Linear(torch.nn.Module):
    def __init__(self, values, inputs, outputs):
        super().__init__()
        self.weight, self.bias = values.take(outputs, inputs), values.take(outputs)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class Block(torch.nn.Module):
    def __init__(self, values, c, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.qkv, self.att = Norm(values, c), Linear(values, c, 3 * c), Linear(values, c, c)
        self.ln2, self.fc, self.mlp = Norm(values, c), Linear(values, c, 4 * c), Linear(values, 4 * c, c)

    def attention(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        scores = q @ k.transpose(2, 3) / math.sqrt(c // self.heads)
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(3)
        return self.att((weights @ v).transpose(1, 2).reshape(b, t, c))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self, values, args):
        super().__init__()
        self.wte, self.wpe = values.take(VOCAB, args.d_model), values.take(args.seq_len, args.d_model)
        self.blocks = torch.nn.ModuleList(Block(values, args.d_model, args.heads) for _ in range(args.layers))
        self.final = Norm(values, args.d_model)

    def forward(self, inputs, targets):
        x = self.wte[inputs] + self.wpe
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy((self.final(x) @ self.wte.t()).flatten(0, 1), targets.flatten())


def read_options():
    parser = argparse.ArgumentParser()
    for name in ("dump", "batches", "store"):
        parser.add_argument("--" + name, required=True)
    for name in ("layers", "heads", "d-model", "seq-len", "batch-size", "grad-accum", "steps"):
        parser.add_argument("--" + name, type=int, required=True)
    for name in ("lr", "weight-decay", "clip"):
        parser.add_argument("--" + name, type=float, required=True)
    return parser.parse_args()


def train(args, rank, world):
    values = Values(args.dump)
    model = torch.nn.parallel.DistributedDataParallel(Gpt(values, args))
    if values.used != len(values.bytes):
        raise SystemExit(f"{args.dump} holds {len(values.bytes)} bytes of parameters, the model has {values.used}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=args.weight_decay)
    with open(args.batches, "rb") as file:
        tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    tokens = tokens.view(args.steps, args.grad_accum, world, 2, args.batch_size, args.seq_len)
    for step in range(args.steps):
        total = 0.0
        for micro in range(args.grad_accum):
            is_last = micro + 1 == args.grad_accum
            with contextlib.nullcontext() if is_last else model.no_sync():
                loss = model(*tokens[step, micro, rank])
                (loss / args.grad_accum).backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        optimizer.zero_grad()
        print(step + 1, rank, repr(total / args.grad_accum), flush=True)


def main():
    args = read_options()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method="file://" + args.store, rank=rank, world_size=world)
    train(args, rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
