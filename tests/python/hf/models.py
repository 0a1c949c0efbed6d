# SPDX-License-Identifier: Apache-2.0
"""Small models from configurations, and real text as training data. Nothing is downloaded."""

from __future__ import annotations

import glob
import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

VOCABULARY = 256  # bytes
LENGTH = 32


def gpt2(seed: int = 1, dropout: float = 0.0, **more: Any) -> transformers.GPT2LMHeadModel:
    torch.manual_seed(seed)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            **{
                "vocab_size": VOCABULARY,
                "n_positions": 64,
                "n_embd": 32,
                "n_layer": 2,
                "n_head": 2,
                "resid_pdrop": dropout,
                "embd_pdrop": dropout,
                "attn_pdrop": dropout,
                "use_cache": False,
                "bos_token_id": 0,
                "eos_token_id": 0,
                **more,
            }
        )
    )


def llama(seed: int = 1, **more: Any) -> transformers.LlamaForCausalLM:
    torch.manual_seed(seed)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            **{
                "vocab_size": VOCABULARY,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "max_position_embeddings": 64,
                "use_cache": False,
                "tie_word_embeddings": False,
                "bos_token_id": 0,
                "eos_token_id": 0,
                **more,
            }
        )
    )


def bert(seed: int = 1, **more: Any) -> transformers.BertForMaskedLM:
    torch.manual_seed(seed)
    return transformers.BertForMaskedLM(
        transformers.BertConfig(
            **{
                "vocab_size": VOCABULARY,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "max_position_embeddings": 64,
                "hidden_dropout_prob": 0.0,
                "attention_probs_dropout_prob": 0.0,
                "pad_token_id": 0,
                **more,
            }
        )
    )


MODELS = {"gpt2": gpt2, "llama": llama, "bert": bert}


def text() -> bytes:
    """Debian's licences, or this repository's documents where they are missing."""
    files = sorted(glob.glob("/usr/share/common-licenses/*"))
    if not files:
        files = sorted(glob.glob(os.path.join(os.path.dirname(__file__), "../../../docs/*.md")))
    return b"".join(open(file, "rb").read() for file in files)


class Text(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Pieces of the text. A dataset of masked=True hides every 7th byte and asks for it."""

    def __init__(self, count: int, first: int = 0, masked: bool = False) -> None:
        self.tokens = torch.frombuffer(bytearray(text()), dtype=torch.uint8).long()
        self.count, self.first, self.masked = count, first, masked

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        at = (self.first + index) * LENGTH
        tokens = self.tokens[at : at + LENGTH].clone()
        if not self.masked:
            return {"input_ids": tokens, "labels": tokens}
        hidden = torch.arange(LENGTH) % 7 == index % 7
        return {
            "input_ids": tokens.masked_fill(hidden, 1),
            "labels": tokens.masked_fill(~hidden, -100),
        }
