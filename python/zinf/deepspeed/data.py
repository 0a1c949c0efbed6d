# SPDX-License-Identifier: Apache-2.0
"""Data loaders in DeepSpeed's shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.utils.data

__all__ = ["DeepSpeedDataLoader", "RepeatingLoader"]


class RepeatingLoader:
    """Begins its loader anew whenever it ends."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.data_iter = iter(loader)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return next(self.data_iter)
        except StopIteration:
            self.data_iter = iter(self.loader)
            return next(self.data_iter)


class DeepSpeedDataLoader:
    """The micro-batches of a rank, in the order of DeepSpeed's loader.

    A dataset with a length is divided over ranks by DistributedSampler, whose order is shuffled
    with the seed 0; set_epoch() of `data_sampler` gives another order. An IterableDataset divides
    its data itself.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        rank: int,
        world_size: int,
        collate_fn: Any = None,
        data_sampler: Any = None,
        drop_last: bool = False,
        worker_count: int = 0,
        is_shuffled: bool = True,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        is_iterable = isinstance(dataset, torch.utils.data.IterableDataset)
        if data_sampler is None and not is_iterable:
            data_sampler = torch.utils.data.DistributedSampler(
                dataset, num_replicas=world_size, rank=rank, shuffle=is_shuffled
            )
        self.data_sampler = data_sampler
        self.dataloader: Any = torch.utils.data.DataLoader(
            dataset,
            batch_size=batch_size,
            sampler=data_sampler,
            collate_fn=collate_fn,
            num_workers=worker_count,
            drop_last=drop_last,
        )
        self.data: Any = None

    def __len__(self) -> int:
        return len(self.dataloader)

    def __iter__(self) -> Iterator[Any]:
        self.data = iter(self.dataloader)
        return self

    def __next__(self) -> Any:
        if self.data is None:
            self.data = iter(self.dataloader)
        return next(self.data)
