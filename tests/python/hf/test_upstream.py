# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D205
"""Goal: upstream's own tests, as far as installed packages ship them, pass over zinf.
Method: scripts of Accelerate with its Accelerator replaced, and torch's distributed_test.py with
the backend zinf. Each skip, and each test that fails because zinf differs, has its reason here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HERE

NO_OPTIMIZER = "a model but no optimizer"
SKIPPED: dict[str, dict[str, str]] = {
    "test_distributed_data_loop": {
        # join_uneven_inputs() is DistributedDataParallel's, over a model without an optimizer.
        "test_can_join_uneven_inputs": NO_OPTIMIZER,
        "test_join_can_override_even_batches": NO_OPTIMIZER,
        "test_join_can_override_for_mixed_type_dataloaders": NO_OPTIMIZER,
        "test_join_raises_warning_for_iterable_when_overriding_even_batches": NO_OPTIMIZER,
        "test_data_loader": "needs data_loader, accelerator",
        "test_stateful_dataloader": "StatefulDataLoader is not available",
        "test_stateful_dataloader_save_state": "StatefulDataLoader is not available",
    },
    "test_script": {
        "test_split_between_processes_dataset": "needs datasets_Dataset",
        "test_reinstantiated_state": NO_OPTIMIZER,
    },
}
SAME = "Training yielded the same results on one CPU or distributed setup with"

# Files of upstream that were looked for, and where they are.
NOT_IN_THE_PACKAGE = {
    "torch": ("test_fully_shard_training.py", "test_fully_shard_state_dict.py",
              "checkpoint/test_state_dict.py", "test_zero_redundancy_optimizer.py"),
    "transformers": ("run_clm.py", "run_clm_no_trainer.py"),
    "deepspeed": ("runtime/test_lr_schedulers.py", "test_ds_config_dict.py"),
}  # fmt: skip
NOT_RUN = {
    "accelerate: test_ddp_comm_hook.py": "it gives DistributedDataParallel device_ids, which needs "
    "GPUs, and has no optimizer",
}

RANKS = 4
# Tests of distributed_test.py that upstream's own conditions skip: part of the reason, and what it
# means here.
TORCH_SKIPPED = {
    "GPU": "zinf computes on the CPU",
    "NCCL": "a test of NCCL alone",
    "Nccl": "a test of NCCL alone",
    "{'nccl'}": "a test of NCCL alone",
    "https://github.com/pytorch/pytorch": "torch skips it for every backend",
    "torchvision": "torchvision is not in the environment",
    "Requires file://": "of the words of gloo, as test_barrier_timeout_group",
}
WORDS = "expects the words of gloo; zinf names the ranks"
# Tests of distributed_test.py that fail: part of the exception, and why zinf differs.
TORCH_DIFFERS = {
    "test_barrier_timeout_full_group": ("rank 1 (pid", WORDS),
    "test_barrier_timeout_group": ("rank 2 (pid", WORDS),
    "test_monitored_barrier_failure_order": ("rank 2 (pid", WORDS),
    "test_monitored_barrier_gloo": ("did not come within", WORDS),
    "test_monitored_barrier_gloo_rank_0_timeout": ("rank 1 (pid", WORDS),
    "test_monitored_barrier_gloo_subgroup": ("rank 1 (pid", WORDS),
    "test_monitored_barrier_wait_all_ranks": ("rank 1 (pid", WORDS),
    "test_send_recv_any_source": ("give src", "recv needs src"),
    "test_send_recv_any_source_autograd_profiler": ("give src", "recv needs src"),
    "test_send_recv_any_source_torch_profiler": ("give src", "recv needs src"),
    "test_sparse_all_reduce_sum": ("use gloo", "zinf has no sparse tensors"),
}
TORCH_PASSED_MIN = 100  # of 285 in torch 2.15, 115 pass


@pytest.mark.parametrize("module", list(SKIPPED))
def test_scripts_of_accelerate(daemon: str, tmp_path: Path, module: str) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(HERE / "upstream_worker.py"), module, str(out)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
        timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    outcome = json.loads(out.read_text())
    skipped = SKIPPED[module]
    for name, reason in skipped.items():
        assert reason in outcome[name], (name, outcome[name])
    left = {name: text for name, text in outcome.items() if name not in skipped}
    assert len(left) >= 4
    assert set(left.values()) == {"passed"}, left
    if module == "test_script":  # training_check passed, and these are parts of it
        for part in ("no batch split", "batch split"):
            assert f"{SAME} {part}" in done.stdout


@pytest.mark.skipif(
    os.environ.get("CASES") != "all", reason="285 tests of torch take ten minutes: CASES=all"
)
def test_distributed_test_of_torch(daemon: str, tmp_path: Path) -> None:
    out, log = tmp_path / "out.json", tmp_path / "log"
    command = [sys.executable, str(HERE / "torch_worker.py"), str(RANKS), str(out)]
    with log.open("wb") as file:
        done = subprocess.run(
            command, stdout=file, stderr=subprocess.STDOUT, cwd=tmp_path, timeout=3600, check=False
        )
    assert done.returncode == 0, log.read_text(errors="replace")[-4000:]
    outcome: dict[str, str] = json.loads(out.read_text())
    for name, (words, _) in TORCH_DIFFERS.items():
        assert outcome[name].startswith("failed: "), (name, outcome[name])
        assert words in outcome[name], (name, outcome[name])
    left = {name: text for name, text in outcome.items() if name not in TORCH_DIFFERS}
    failed = {name: text for name, text in left.items() if text.startswith("failed")}
    assert not failed, "\n".join(f"{name} {text}" for name, text in failed.items())
    skipped = {name: text for name, text in left.items() if text.startswith("skipped")}
    for name, text in skipped.items():
        assert any(part in text for part in TORCH_SKIPPED), (name, text)
    passed = len(left) - len(skipped)
    assert passed >= TORCH_PASSED_MIN
    print(f"distributed_test.py: {passed} passed, {len(skipped)} skipped by torch's conditions, ")
    print(f"{len(TORCH_DIFFERS)} differ as listed")


@pytest.mark.parametrize("package", list(NOT_IN_THE_PACKAGE))
def test_what_a_package_does_not_have_is_listed(package: str) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(spec.submodule_search_locations[0])
    for name in NOT_IN_THE_PACKAGE[package]:
        found = list(root.rglob(Path(name).name))
        assert not found, f"{found[0]} is there now: run it"
        print(f"not run: {package}: {name}: not in the package")
    pytest.skip(f"not in the package: {', '.join(NOT_IN_THE_PACKAGE[package])}")


@pytest.mark.parametrize("name", list(NOT_RUN))
def test_what_does_not_apply_is_listed(name: str) -> None:
    pytest.skip(f"{name}: {NOT_RUN[name]}")
