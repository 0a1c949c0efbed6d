# SPDX-License-Identifier: Apache-2.0
"""A rank of a test: functions of a script of Accelerate, with its Accelerator replaced by zinf's.

upstream_worker.py MODULE OUT: runs every function `test_*` and `*_check` of accelerate.test_utils.
scripts.MODULE that needs no arguments, or an accelerator. OUT: outcome by name, of rank 0.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import traceback
from typing import Any

import accelerate
import accelerate.accelerator
import torch
import zinf.accelerate


class Accelerator(zinf.accelerate.Accelerator):
    """zinf's, with everything on NVMe."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        settings = {"strategy": "zero3", "offload_param": "nvme", "offload_optimizer": "nvme"}
        super().__init__(*positional, cpu=True, zinf=settings, **named)


accelerate.Accelerator = accelerate.accelerator.Accelerator = Accelerator
script = importlib.import_module(f"accelerate.test_utils.scripts.{sys.argv[1]}")
outcome: dict[str, str] = {}
for name, function in list(vars(script).items()):
    is_test = name.startswith("test_") or name.endswith("_check")
    if not is_test or not inspect.isfunction(function) or function.__module__ != script.__name__:
        continue
    names = [
        p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty
    ]
    if names not in ([], ["accelerator"], ["state"]):
        outcome[name] = f"needs {', '.join(names)}"
        continue
    accelerate.state.AcceleratorState._reset_state()
    try:
        accelerator = Accelerator()
        made = [accelerator] if names else []
        if names == ["state"]:
            made = [accelerate.PartialState()]
        function(*made)
        outcome[name] = "passed"
    except BaseException as error:
        traceback.print_exc()
        outcome[name] = f"{type(error).__name__}: {error}"
    accelerate.PartialState().wait_for_everyone()
if accelerate.PartialState().is_main_process:
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(outcome, file, indent=1)
accelerate.PartialState().wait_for_everyone()
torch.distributed.destroy_process_group()
