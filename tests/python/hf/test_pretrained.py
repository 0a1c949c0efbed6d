# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D205, RUF043
"""Goal: from_pretrained() inside zinf.init() leaves the weights in their files until prepare().
Method: models are saved by transformers, loaded both ways, and compared; memory is measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import zinf
from conftest import HERE
from models import bert, gpt2, llama
from zinf.module.init import is_pending
from zinf.weights import CheckpointError


@pytest.mark.parametrize(
    ("make", "auto"),
    [
        (gpt2, transformers.AutoModelForCausalLM),
        (llama, transformers.AutoModelForCausalLM),
        (bert, transformers.AutoModelForMaskedLM),
    ],
)
@pytest.mark.parametrize("size", ["5GB", "40KB"])
def test_values_and_outputs_are_those_of_an_ordinary_load(
    make: Any, auto: Any, size: str, tmp_path: Path
) -> None:
    model = make().eval()
    model.save_pretrained(tmp_path, max_shard_size=size)
    with zinf.init():
        lazy = auto.from_pretrained(tmp_path)
    assert type(lazy) is type(model)
    # Tying pads BERT's bias of the output, which ends its waiting.
    assert sum(p.numel() for p in lazy.parameters() if not is_pending(p)) <= 256
    assert not lazy.training
    theirs = lazy.state_dict()
    assert theirs.keys() == model.state_dict().keys()
    assert all(torch.equal(theirs[name], value) for name, value in model.state_dict().items())
    tokens = torch.arange(8)[None]
    assert torch.equal(lazy(tokens).logits, model(tokens).logits)
    assert lazy.config.name_or_path == str(tmp_path)


def test_types(tmp_path: Path) -> None:
    model = llama().to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    for given, wanted in (({}, torch.bfloat16), ({"dtype": torch.float32}, torch.float32)):
        with zinf.init():
            lazy = transformers.LlamaForCausalLM.from_pretrained(tmp_path, **given)
        ordinary = transformers.LlamaForCausalLM.from_pretrained(tmp_path, **given)
        assert lazy.dtype == ordinary.dtype == wanted
        assert torch.equal(lazy.lm_head.weight.detach(), ordinary.lm_head.weight)
    assert torch.get_default_dtype() == torch.float32


def test_tensors_that_are_missing_get_first_values(tmp_path: Path) -> None:
    bert().save_pretrained(tmp_path)
    with zinf.init():
        lazy = transformers.BertForSequenceClassification.from_pretrained(tmp_path, num_labels=5)
    assert lazy.classifier.weight.shape[0] == 5
    deviation = float(lazy.bert.pooler.dense.weight.detach().std())
    assert deviation == pytest.approx(0.02, rel=0.2)
    ordinary = transformers.BertForMaskedLM.from_pretrained(tmp_path)
    name = "bert.encoder.layer.0.attention.self.query.weight"
    assert torch.equal(lazy.state_dict()[name], ordinary.state_dict()[name])


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    gpt2().save_pretrained(tmp_path)
    with zinf.init():
        with pytest.raises(zinf.InvalidArgument, match="'gpt2'.*reads local directories"):
            transformers.GPT2LMHeadModel.from_pretrained("gpt2")
        with pytest.raises(zinf.Unsupported, match="does not support quantization_config"):
            transformers.GPT2LMHeadModel.from_pretrained(tmp_path, quantization_config={"a": 1})
        with pytest.raises(CheckpointError, match="has shape .256, 32., but the model wants"):
            transformers.GPT2LMHeadModel.from_pretrained(tmp_path, vocab_size=300)
        (tmp_path / "model.safetensors").unlink()
        with pytest.raises(CheckpointError, match="has neither model.safetensors nor"):
            transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    # Outside the block from_pretrained() is the stock one again.
    with pytest.raises(OSError, match="model.safetensors"):
        transformers.GPT2LMHeadModel.from_pretrained(tmp_path)


SCRIPT = """
import json, re, sys
sys.path.insert(0, sys.argv[1])
import torch, transformers, zinf
from models import gpt2
from zinf.weights import Reader

def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10

directory = sys.argv[2]
model = gpt2(n_embd=384, n_layer=12)
model.save_pretrained(directory)
total = sum(p.numel() * 4 for p in model.parameters()) >> 20
first = model.state_dict()["transformer.h.7.mlp.c_fc.weight"].clone()
del model
peak = 0
stock = Reader.read_into
def read_into(self, name, target):
    global peak
    stock(self, name, target)
    peak = max(peak, anonymous())
Reader.read_into = read_into
before = anonymous()
with zinf.init():
    model = transformers.GPT2LMHeadModel.from_pretrained(directory)
optimizer = torch.optim.AdamW(model.parameters())
built = anonymous() - before
settings = dict(strategy="zero3", offload_param="nvme", offload_optimizer="nvme")
model, optimizer = zinf.prepare(model, optimizer, job="large", param_budget_bytes="32M", **settings)
assert torch.equal(model.state_dict()["transformer.h.7.mlp.c_fc.weight"], first)
zinf.engine_of(model).close()
print(json.dumps([total, built, peak - before]))
"""


def test_memory_holds_one_unit(daemon: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(HERE), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    total, built, peak = json.loads(done.stdout.splitlines()[-1])
    assert total > 80  # a unit has 7 MiB
    assert built < 12
    assert peak < 24
