# SPDX-License-Identifier: Apache-2.0
"""The one parameter of GPT-2 that differs from torch by more than rounding, and why.

A bias of the keys adds the same number to all scores of a query, which softmax takes away: its
true gradient is zero. The computed gradient is rounding, and AdamW divides it by its own size. Two
implementations of AdamW therefore differ there, torch's own two as well (docs/ARITHMETIC.md).
"""

from __future__ import annotations

import contextlib
from typing import Any

import models
import torch
import zinf

STEPS, LR = 6, 1e-3


def gradients(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    model = models.gpt2().to(dtype)
    ids = models.Text(1)[0]["input_ids"][None]
    model(input_ids=ids, labels=ids).loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def parts(tensors: dict[str, torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The key parts of c_attn.bias, and all other numbers."""
    keys, others = [], []
    for name, tensor in tensors.items():
        if name.endswith("c_attn.bias"):
            query, key, value = tensor.chunk(3)
            keys.append(key)
            others += [query, value]
        else:
            others.append(tensor)
    return keys, others


def largest(tensors: list[torch.Tensor]) -> float:
    return max(float(tensor.abs().max()) for tensor in tensors)


def trained(make: Any, use_zinf: bool = False) -> tuple[dict[str, torch.Tensor], list[float]]:
    model = models.gpt2()
    optimizer = make(model.parameters())
    with contextlib.ExitStack() as stack:
        if use_zinf:
            model, optimizer = zinf.prepare(model, optimizer, job="key-bias")
            engine = zinf.engine_of(model)
            assert engine is not None
            stack.callback(engine.close, delete_job=True)
        data, losses = models.Text(STEPS), []
        for number in range(STEPS):
            ids = data[number]["input_ids"][None]
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
        return {name: p.detach().clone() for name, p in model.named_parameters()}, losses


def plain(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=LR, foreach=False)


def fused(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=LR, fused=True)


def test_the_true_gradient_of_a_key_bias_is_zero() -> None:
    for dtype, bound in ((torch.float64, 1e-14), (torch.float32, 1e-6)):
        keys, others = parts(gradients(dtype))
        assert largest(keys) < bound * largest(others)


def test_key_biases_differ_between_torchs_own_optimizers_as_well(daemon: str) -> None:
    reference, losses = trained(plain)
    sizes = {}
    for name, (values, found) in {
        "torch, fused": trained(fused),
        "zinf": trained(plain, use_zinf=True),
    }.items():
        keys, others = parts({n: values[n] - reference[n] for n in reference})
        sizes[name] = largest(keys), largest(others)
        print(f"{name}: key biases {sizes[name][0]:.2g}, other parameters {sizes[name][1]:.2g}")
        assert largest(keys) > 3 * largest(others)
        assert max(abs(a - b) / b for a, b in zip(found, losses)) < 1e-5
    assert sizes["zinf"][0] < 10 * sizes["torch, fused"][0]
