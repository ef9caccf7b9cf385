"""`python -m bert_core.pretraining.evaluate CHECKPOINT TEXT`: how well a checkpoint does both tasks on a text."""

from __future__ import annotations

import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bert_core.checkpoint import load_pretrained
from bert_core.checkpoint_files import CheckpointError
from bert_core.pretraining.batches import Collator
from bert_core.pretraining.corpus import CORPUS_FORMATS, Corpus
from bert_core.pretraining.evaluation import Evaluation, evaluate
from bert_core.pretraining.instances import LEAST_MAX_LENGTH, SegmentTokenizer
from bert_core.pretraining.starting_model import check_config
from bert_core.pretraining.stream import BatchStream, first_batches
from bert_core.tokenizer import BertTokenizer

HEAD = f"{'seed':>6} {'masked':>8} {'MLM accuracy':>13} {'MLM perplexity':>15} {'pairs':>7} {'NSP accuracy':>13}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = ArgumentParser(
        prog="python -m bert_core.pretraining.evaluate",
        description="Masked LM accuracy and perplexity, and next-sentence accuracy, of any BERT checkpoint on a text.",
        formatter_class=ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", help="a folder in Hugging Face layout")
    add("text", nargs="+", type=Path, metavar="TEXT", help="files, read in this order; .gz and .xz too")
    add("--format", choices=CORPUS_FORMATS, default="documents", help="as for training")
    add("--encoding", default="utf-8", help="of the files")
    add("--keep-paragraphs", action="store_true", help="do not cut lines into sentences")
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N", help="of pairs and masks; a line for each")
    add("--pairs", type=int, default=512, metavar="N", help="of sentences, if the text has so many")
    add("--max-length", type=int, default=128, metavar="N", help="tokens of a pair")
    add("--batch-tokens", type=int, default=4096, metavar="N", help="tokens of a batch")
    add("--whole-words", action="store_true", help="mask whole words")
    add("--device", default="cpu", help="cpu or cuda")
    given = parser.parse_args(arguments)
    try:
        _check(given)
        corpus = Corpus(
            given.text, corpus_format=given.format, encoding=given.encoding, split=not given.keep_paragraphs
        )
        model = load_pretrained(given.checkpoint, device=given.device)
        check_config(model.config, max_length=given.max_length)
        tokenizer = BertTokenizer.from_pretrained(given.checkpoint, pair_segment_ids=model.config.pair_segment_ids)
        if not (model.heads.mlm or model.heads.nsp):
            raise ValueError(f"{given.checkpoint}: has neither an mlm nor an nsp head, so there is nothing to evaluate")
        stream = BatchStream(
            corpus=corpus,
            tokenize=SegmentTokenizer(tokenizer),
            collate=Collator(tokenizer, config=model.config, whole_words=given.whole_words),
            max_length=given.max_length,
            batch_tokens=given.batch_tokens,
            seed=0,
        )
        for number, seed in enumerate(given.seeds):
            found = evaluate(model, first_batches(replace(stream, seed=seed), pairs=given.pairs))
            if not number:
                print(HEAD)
            print(_line(seed, found), flush=True)
    except ValueError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1 if isinstance(error, CheckpointError) else 2
    except OSError as error:
        print(f"{parser.prog}: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if model.heads.missing:
        print(f"The checkpoint has no {' and no '.join(model.heads.missing)}.")
    return 0


def _check(given: Namespace) -> None:
    least = {"max_length": LEAST_MAX_LENGTH, "batch_tokens": 1, "pairs": 1}
    values = [(name, getattr(given, name), at_least) for name, at_least in least.items()]
    for name, value, at_least in [*values, *(("seeds", seed, 0) for seed in given.seeds)]:
        if value < at_least:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag}: {value} is not allowed; it must be at least {at_least}")


def _line(seed: int, found: Evaluation) -> str:
    def figure(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    return (
        f"{seed:>6} {found.masked:>8} {figure(found.mlm_accuracy, '.4f'):>13} "
        f"{figure(found.mlm_perplexity, '.2f'):>15} {found.pairs:>7} {figure(found.nsp_accuracy, '.4f'):>13}"
    )


if __name__ == "__main__":
    sys.exit(main())
