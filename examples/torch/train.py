# SPDX-License-Identifier: Apache-2.0
"""Trains a GPT-2 of Hugging Face on text files. zinf needs only the two lines marked "zinf".

    python train.py [--output-dir DIR] [--max-steps N] [other TrainingArguments]
    torchrun --nproc-per-node 2 train.py ...

The text is that of /usr/share/common-licenses, byte by byte, so that nothing is downloaded.
"""

import dataclasses
import glob
import pathlib

import torch
import transformers
import zinf.transformers  # zinf: line 1


@dataclasses.dataclass
class Arguments:
    """Arguments beside TrainingArguments."""

    text: str = "/usr/share/common-licenses/*"
    layers: int = 8
    width: int = 256
    length: int = 128


class Text(torch.utils.data.Dataset):
    """All bytes of the files, in pieces of equal length."""

    def __init__(self, pattern: str, length: int) -> None:
        data = b"".join(pathlib.Path(name).read_bytes() for name in sorted(glob.glob(pattern)))
        count = len(data) // length
        if not count:
            raise SystemExit(f"train.py: no text in {pattern}: give files with --text")
        self.tokens = torch.tensor(list(data[: count * length])).view(count, length)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main() -> None:
    """Train, and save the model."""
    parser = transformers.HfArgumentParser((Arguments, transformers.TrainingArguments))
    ours, args = parser.parse_args_into_dataclasses()
    transformers.set_seed(args.seed)
    config = transformers.GPT2Config(
        vocab_size=256,
        n_positions=ours.length,
        n_embd=ours.width,
        n_layer=ours.layers,
        n_head=max(1, ours.width // 64),
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config)
    data = Text(ours.text, ours.length)
    trainer = zinf.transformers.Trainer(  # zinf: line 2, was transformers.Trainer
        model=model, args=args, train_dataset=data
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    trainer.save_model()


if __name__ == "__main__":
    main()
