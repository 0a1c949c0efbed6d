# SPDX-License-Identifier: Apache-2.0
"""How many bytes an element of a tensor has."""

from __future__ import annotations

import torch

__all__ = ["width_of"]


def width_of(dtype: torch.dtype) -> int:
    """Return the bytes of an element. torch 1.13 has no dtype.itemsize."""
    return torch.empty((), dtype=dtype).element_size()
