# SPDX-License-Identifier: Apache-2.0
"""Memory for units that a model needs, where the settings name none.

The daemon chooses three of the largest unit for parameters on NVMe, and two for gradients. An
embedding can be larger than many blocks. Then memory for the largest unit and a few of the next
size is enough: the daemon keeps the room of the largest one apart from that of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["grad_budget", "leaves_room", "param_budget"]

_PAGE = 2 << 20  # of the daemon's memory; it takes small pages for a small model
_WORTH = 16 << 20  # bytes below which the daemon's choice stays
_BUCKETS = 3  # units of the next size whose gradients wait for their update


def _sizes(counts: Sequence[int], width: int) -> list[int]:
    """Return the bytes of units in whole pages, the largest first."""
    return sorted((-(-count * width // _PAGE) * _PAGE for count in counts), reverse=True)


def _around(sizes: list[int], others: int) -> int:
    """Return the bytes of the largest unit, of `others` of the next size, and of all small ones."""
    largest, second = sizes[0], sizes[min(1, len(sizes) - 1)]
    small = sum(size for size in sizes if size <= second // 8)
    return largest + others * second + min(small, second)


def param_budget(counts: Sequence[int], width: int, ranks: int) -> int:
    """Return param_budget_bytes for parameters on NVMe; 0: the daemon's choice.

    counts: elements of each unit. width: bytes of an element. Each rank of the node uses one unit
    at a time. Units in use are not moved: with room for two for each rank one more always fits,
    wherever the others lie.
    """
    sizes = _sizes(counts, width)
    default = max(3 * sizes[0], sum(sizes) // 8)
    found = _around(sizes, 2 * ranks)
    return found if found + _WORTH <= min(default, sum(sizes)) else 0


def grad_budget(counts: Sequence[int], width: int, ranks: int) -> int:
    """Return grad_budget_bytes for steps that update early; 0: the daemon's choice.

    Such a step sums a unit where it updates it, and needs no memory for sums. The daemon takes more
    than two of the largest unit as memory for sums.
    """
    sizes = _sizes(counts, width)
    default = 2 * sizes[0] + sum(sizes) // ranks
    found = _around(sizes, _BUCKETS)
    is_less = found <= 2 * sizes[0] and found + _WORTH <= min(default, sum(sizes))
    return found if is_less else 0


def leaves_room(counts: Sequence[int], width: int, index: int, budget: int) -> bool:
    """Whether a unit may have its gradient in zinf while others are computed.

    index: of the unit. budget: grad_budget_bytes; 0: the daemon's choice, two of the largest unit.
    Two of any other unit fit beside it.
    """
    sizes = [_sizes([count], width)[0] for count in counts]
    others = [size for number, size in enumerate(sizes) if number != index]
    room = (budget or 2 * max(sizes)) - sizes[index]
    return not others or room >= 2 * max(others)
