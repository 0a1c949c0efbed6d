# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415
"""A rank of a test: makes the trainings of a list one by one, and writes what they logged.

worker.py SPEC.json. SPEC has "out", the file for the results of rank 0, and "cases", a list of:
  name; trainer: "stock" or "zinf"; model and model_args: models.py; dtype; data, eval_data:
  arguments of models.Text; lora: options of peft.LoraConfig; args: TrainingArguments; resume;
  zinf: settings; is_fake: "cuda" is the fake GPU from this case on;
  kill: {rank: -1 for all, step, where}; actions: functions below that are called after train().
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import signal
import sys
from typing import Any
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, os.path.dirname(__file__))

import torch
import transformers
from models import MODELS, Text

transformers.utils.logging.set_verbosity_warning()
RANK = int(os.environ.get("RANK", "0"))


class Kill(transformers.TrainerCallback):
    """Kills its own process, or raises, at a step."""

    def __init__(self, rank: int, step: int, where: str) -> None:
        self.rank, self.step, self.where = rank, step, where

    def act(self, where: str, step: int) -> None:
        if where == self.where and step == self.step and self.rank in (RANK, -1):
            os.kill(os.getpid(), signal.SIGKILL)
        if (
            self.where == "raise"
            and where == "step"
            and step == self.step
            and self.rank in (RANK, -1)
        ):
            raise ZeroDivisionError("the test raises here")

    def on_step_end(self, args: Any, state: Any, control: Any, **unused: Any) -> None:
        self.act("step", state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **unused: Any) -> None:
        self.act("save", state.global_step)


class Seen(transformers.TrainerCallback):
    """Notes which events came, and that each has model, optimizer and scheduler."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def note(args: Any, state: Any, control: Any, **named: Any) -> None:
            self.events.append(name)
            if name == "on_pre_optimizer_step":
                assert named["model"] is not None
                assert named["optimizer"] is not None

        return note


def digest(model: torch.nn.Module) -> str:
    value = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        value.update(name.encode())
        value.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return value.hexdigest()


def adapted(model: Any, kind: str, **options: Any) -> Any:
    """Return a model of peft with LoRA in its attention."""
    import peft

    torch.manual_seed(7)
    return peft.get_peft_model(
        model,
        peft.LoraConfig(
            **{
                "r": 4,
                "init_lora_weights": "gaussian",
                "target_modules": {"gpt2": ["c_attn"], "llama": ["q_proj", "v_proj"]}[kind],
                "fan_in_fan_out": kind == "gpt2",
                "task_type": "CAUSAL_LM",
                **options,
            }
        ),
    )


def evaluate(trainer: Any, result: dict[str, Any]) -> None:
    result["evaluate"] = trainer.evaluate()


def predict(trainer: Any, result: dict[str, Any]) -> None:
    output = trainer.predict(trainer.eval_dataset)
    logits = output.predictions
    result["predict"] = [float(logits.sum()), float(abs(logits).sum()), output.metrics["test_loss"]]


def save_model(trainer: Any, result: dict[str, Any]) -> None:
    trainer.save_model()
    if RANK == 0:
        directory = trainer.args.output_dir
        result["saved"] = sorted(
            f for f in os.listdir(directory) if os.path.isfile(os.path.join(directory, f))
        )
        result["saved_digest"] = digest(type(trainer.model).from_pretrained(directory))


def resume_first(trainer: Any, result: dict[str, Any]) -> None:
    trainer.train(resume_from_checkpoint=os.path.join(trainer.args.output_dir, "checkpoint-3"))
    result["resumed_digest"] = digest(trainer.model)


def train_again(trainer: Any, result: dict[str, Any]) -> None:
    first = trainer.engine
    trainer.train()
    result["again"] = [line["step"] for line in trainer.state.log_history if "loss" in line]
    result["is_same_engine"] = trainer.engine is first


def snapshots(trainer: Any, result: dict[str, Any]) -> None:
    from zinf import admin

    session = trainer.engine.session
    found = admin.snapshots(session.job, socket_path=session.config.socket_path)
    result["snapshots"] = [snapshot["name"] for snapshot in found]


def save_without_copies(trainer: Any, result: dict[str, Any]) -> None:
    """Save, while a copy of all weights is an error."""
    from zinf.module import state

    with mock.patch.object(state, "plain", side_effect=AssertionError("weights were copied")):
        trainer.save_model()
    result["saved"] = sorted(
        name for name in os.listdir(trainer.args.output_dir) if name.startswith("adapter")
    )


ACTIONS = {
    f.__name__: f
    for f in (
        evaluate,
        predict,
        save_model,
        save_without_copies,
        resume_first,
        train_again,
        snapshots,
    )
}


def train(case: dict[str, Any]) -> dict[str, Any]:
    model = MODELS[case.get("model", "gpt2")](**case.get("model_args", {}))
    if "lora" in case:
        model = adapted(model, case["model"], **case["lora"])
    if "dtype" in case:
        model.to(getattr(torch, case["dtype"]))
    masked = case.get("model") == "bert"
    args = {
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 2,
        "max_steps": 6,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 3,
        "save_strategy": "no",
        "dataloader_pin_memory": False,
        **case.get("args", {}),
    }
    seen = Seen()
    callbacks: list[Any] = [seen]
    if "kill" in case:
        callbacks.append(Kill(**case["kill"]))
    kind: Any = transformers.Trainer
    more: dict[str, Any] = {}
    if case.get("is_fake"):
        sys.path.insert(1, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        import fake_cuda

        fake_cuda.install(stream_count=2)
    if case["trainer"] == "zinf":
        import zinf.transformers

        kind = zinf.transformers.Trainer
        if "zinf" in case:
            more["zinf"] = case["zinf"]
    trainer = kind(
        model=model,
        args=transformers.TrainingArguments(**args),
        train_dataset=Text(masked=masked, **case.get("data", {"count": 64})),
        eval_dataset=Text(masked=masked, first=200, **case.get("eval_data", {"count": 8})),
        callbacks=callbacks,
        **more,
    )
    result: dict[str, Any] = {"wrapper": None}
    output = trainer.train(resume_from_checkpoint=case.get("resume"))
    result["wrapper"] = type(trainer.model_wrapped).__name__
    result["train_loss"] = output.training_loss
    result["log"] = trainer.state.log_history
    result["events"] = seen.events
    result["best"] = trainer.state.best_model_checkpoint
    result["digest"] = digest(trainer.model)
    result["files"] = {}
    if os.path.isdir(args["output_dir"]):
        result["files"] = {
            name: sorted(os.listdir(os.path.join(args["output_dir"], name)))
            for name in sorted(os.listdir(args["output_dir"]))
            if name.startswith("checkpoint-")
        }
    for action in case.get("actions", ()):
        ACTIONS[action](trainer, result)
    if case["trainer"] == "zinf":
        trainer.engine.close()
    return result


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    results: dict[str, Any] = {}
    for case in spec["cases"]:
        if "error" in case:
            try:
                train(case)
            except Exception as error:
                results[case["name"]] = {"error": f"{type(error).__name__}: {error}"}
            else:
                results[case["name"]] = {"error": "none"}
        else:
            results[case["name"]] = train(case)
        gc.collect()
        if RANK == 0:
            with open(spec["out"], "w", encoding="utf-8") as file:
                json.dump(results, file)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


main()
