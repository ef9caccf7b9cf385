"""`python -m bert_core.pretraining.mix TRAINED START --share X --output FOLDER`: an encoder between two.

Training on masked text takes an encoder away from the one that it began with, and with it the sentence embeddings. A
share of the old weights brings them back, for a small part of what was learned (Wortsman et al. 2021, "Robust
fine-tuning of zero-shot models").
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import torch

from bert_core.checkpoint import load_pretrained, save_pretrained
from bert_core.checkpoint_files import CheckpointError
from bert_core.model import BertModel
from bert_core.pretraining.instances import all_pieces
from bert_core.pretraining.starting_model import copy_companions
from bert_core.tokenizer import BertTokenizer

DTYPES = ("float32", "float16", "bfloat16")


@torch.no_grad()
def mix(trained: BertModel, start: BertModel, *, share: float) -> None:
    """Move the embeddings and the encoder of `trained` by `share` of the way to those of `start`, in float32.

    Pooler and heads are not touched, but that an MLM head's decoder is tied to the embeddings.

    Raises:
        ValueError: their weights have other names or shapes.
    """
    theirs = dict(start.named_parameters())
    ours = {name: parameter for name, parameter in trained.named_parameters() if not name.startswith("pooler.")}
    unlike = [name for name, parameter in ours.items() if name not in theirs or theirs[name].shape != parameter.shape]
    if unlike:
        raise ValueError(f"the two differ in {len(unlike)} weights, such as {unlike[0]}; they must have the same shape")
    for name, parameter in ours.items():
        parameter.copy_(torch.lerp(parameter.float(), theirs[name].float(), share))


def _pieces(folder: Path) -> list[str]:
    return all_pieces(BertTokenizer.from_pretrained(folder))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = ArgumentParser(
        prog="python -m bert_core.pretraining.mix",
        description="A checkpoint whose encoder stands between a trained one and the one that it began with.",
    )
    parser.add_argument("trained", type=Path, metavar="TRAINED", help="the trained checkpoint; its heads are kept")
    parser.add_argument("start", type=Path, metavar="START", help="the checkpoint whose embeddings are wanted")
    parser.add_argument("--share", type=float, required=True, metavar="X", help="of START's weights, from 0 to 1")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="where the new one is written")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of its weights (default: %(default)s)")
    given = parser.parse_args(arguments)
    try:
        if not 0 <= given.share <= 1:
            raise ValueError(f"--share: {given.share:g} is not allowed; it must be from 0 to 1")
        model, start = load_pretrained(given.trained), load_pretrained(given.start)
        if _pieces(given.trained) != _pieces(given.start):
            raise ValueError(f"{given.start}: its vocabulary is not that of {given.trained}; it must be the same")
        mix(model.bert, start.bert, share=given.share)
        save_pretrained(model.to(getattr(torch, given.dtype)), given.output)
        copy_companions(given.trained, given.output)
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1 if isinstance(error, CheckpointError | OSError) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
