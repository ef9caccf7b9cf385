"""`python -m bert_core.pretraining TEXT --output FOLDER`: from a text corpus to a checkpoint."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from tqdm import tqdm

from bert_core.checkpoint_files import CheckpointError
from bert_core.config import BertConfig
from bert_core.pretraining.corpus import CORPUS_FORMATS, Corpus
from bert_core.pretraining.optimization import Optimization
from bert_core.pretraining.options import Precision, TrainingOptions
from bert_core.pretraining.ranks import Ranks, joined_ranks
from bert_core.pretraining.signals import stops_on_signals
from bert_core.pretraining.starting_model import (
    StartingModel,
    check_config,
    check_vocabulary_size,
    from_checkpoint,
    from_config,
    train_vocabulary,
    with_teacher,
)
from bert_core.pretraining.trainer import Trainer
from bert_core.pretraining.training_files import TrainingError, latest_checkpoint

EXIT_SUCCESS, EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    parser = make_parser()
    given = parser.parse_args(arguments)
    try:
        options = _options(given)
        _check(given, options)
        with joined_ranks(given.device) as ranks:
            return _train(given, options, ranks)
    except (TrainingError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, ValueError) and not isinstance(error, CheckpointError) else EXIT_FAILURE
    except OSError as error:
        print(f"{parser.prog}: {error.filename or given.output}: {error.strerror}", file=sys.stderr)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        print(f"{parser.prog}: ended at once; --resume goes on from the last checkpoint", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (RuntimeError, MemoryError) as error:
        if not _is_lack_of_memory(error):
            raise
        less = f"a --batch-tokens below {given.batch_tokens} (with --accumulate for it) or a smaller model needs less"
        print(f"{parser.prog}: memory ran out; {less}", file=sys.stderr)
        return EXIT_FAILURE


def _is_lack_of_memory(error: Exception) -> bool:
    # PyTorch has a class for that of a GPU, and for that of the machine only words.
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def make_parser() -> ArgumentParser:
    """All flags, with their defaults in the help."""
    defaults = {name: field.default for name, field in TrainingOptions.__dataclass_fields__.items()}
    rates = Optimization()
    parser = ArgumentParser(
        prog="python -m bert_core.pretraining",
        description="Train BERT by masked LM and next sentence, and write a checkpoint folder to serve.",
        formatter_class=ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument_group("text").add_argument
    add("corpus", nargs="+", type=Path, metavar="TEXT", help="files, read in this order; .gz and .xz too")
    add("--validation", nargs="+", type=Path, default=[], metavar="TEXT", help="held-out files, in the same format")
    add(
        "--format",
        choices=CORPUS_FORMATS,
        default=defaults["corpus_format"],
        help="documents: a sentence or a paragraph a line, a blank line between documents; "
        "pairs: two consecutive sentences a line, with a tab between",
    )
    add("--encoding", default=defaults["encoding"], help="of the files, such as utf-8 or gb18030")
    add("--keep-paragraphs", action="store_true", help="do not cut lines into sentences")
    add = parser.add_argument_group("model").add_argument
    add("--init-from", type=Path, metavar="FOLDER", help="a checkpoint to go on from; heads that it lacks are new")
    add("--config", type=Path, metavar="FILE", help="config.json of a new model")
    add("--vocabulary", type=Path, metavar="FOLDER", help="the folder whose tokenizer a new model takes")
    add("--vocabulary-size", type=int, metavar="N", help="train a WordPiece vocabulary of N pieces on the text instead")
    add("--keep-case", action="store_true", help="of a trained vocabulary: do not lower-case")
    add = parser.add_argument_group("how long: one is needed, the first that is reached counts").add_argument
    add("--max-steps", type=int, metavar="N", help="steps of the optimizer")
    add("--epochs", type=float, metavar="N", help="times that the text is read")
    add("--max-minutes", type=float, metavar="N", help="minutes, those before a --resume counted")
    add = parser.add_argument_group("training").add_argument
    add("--max-length", type=int, default=defaults["max_length"], metavar="N", help="tokens of a pair")
    add("--batch-tokens", type=int, default=defaults["batch_tokens"], metavar="N", help="tokens of a batch")
    add("--accumulate", type=int, default=defaults["accumulate"], metavar="N", help="batches of a step, each process")
    add("--whole-words", action="store_true", help="mask whole words; Chinese ones stand between spaces")
    add("--learning-rate", type=float, default=rates.learning_rate, metavar="X", help="the highest")
    add("--head-learning-rate", type=float, metavar="X", help="that of pooler and heads, if it is another")
    add("--warm-up", type=float, default=rates.warm_up, metavar="X", help="share of the run over which rates rise")
    add("--betas", type=float, nargs=2, default=rates.betas, metavar=("X", "Y"), help="of AdamW")
    add("--weight-decay", type=float, default=rates.weight_decay, metavar="X", help="not of biases and LayerNorms")
    add("--clip", type=float, default=rates.clip, metavar="X", help="most that the gradient's norm may be; 0: any")
    add("--dropout", type=float, metavar="X", help="of states and attention, in place of the config's; saved with it")
    add(
        "--keep-embeddings",
        type=float,
        default=defaults["keep_embeddings"],
        metavar="W",
        help="add W times (1 - cosine) between mean states on masked text and those of --init-from on clean text",
    )
    add(
        "--keep-embeddings-of",
        type=Path,
        metavar="FOLDER",
        help="those of this checkpoint in place of --init-from's; it has the same vocabulary and width",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute")
    add("--precision", choices=get_args(Precision), default=defaults["precision"], help="bfloat16 is autocast")
    add("--seed", type=int, default=defaults["seed"], metavar="N", help="of everything random")
    add = parser.add_argument_group("output").add_argument
    add("--output", type=Path, required=True, metavar="FOLDER", help="for checkpoints, log and picture")
    add("--resume", action="store_true", help="go on from the newest checkpoint in the output folder")
    add("--evaluate-every", type=int, default=defaults["evaluate_every"], metavar="N", help="steps; 0: at the end")
    add("--evaluation-pairs", type=int, default=defaults["evaluation_pairs"], metavar="N", help="of held-out text")
    add("--save-every", type=int, default=defaults["save_every"], metavar="N", help="steps; 0: at the end")
    add("--keep-checkpoints", type=int, default=defaults["keep_checkpoints"], metavar="N", help="older ones that stay")
    add("--log-every", type=int, default=defaults["log_every"], metavar="N", help="steps")
    return parser


def _options(given: Namespace) -> TrainingOptions:
    return TrainingOptions(
        corpus=tuple(given.corpus),
        validation=tuple(given.validation),
        output=given.output,
        corpus_format=given.format,
        encoding=given.encoding,
        split_sentences=not given.keep_paragraphs,
        max_length=given.max_length,
        batch_tokens=given.batch_tokens,
        accumulate=given.accumulate,
        whole_words=given.whole_words,
        optimization=Optimization(
            learning_rate=given.learning_rate,
            head_learning_rate=given.head_learning_rate,
            betas=tuple(given.betas),
            weight_decay=given.weight_decay,
            warm_up=given.warm_up,
            clip=given.clip,
        ),
        dropout=given.dropout,
        max_steps=given.max_steps,
        epochs=given.epochs,
        max_minutes=given.max_minutes,
        keep_embeddings=given.keep_embeddings,
        precision=given.precision,
        seed=given.seed,
        evaluate_every=given.evaluate_every,
        evaluation_pairs=given.evaluation_pairs,
        save_every=given.save_every,
        keep_checkpoints=given.keep_checkpoints,
        log_every=given.log_every,
    )


def _check(given: Namespace, options: TrainingOptions) -> None:
    """What can be told before anything is read or written: flags that do not go together, and missing files."""
    if given.keep_embeddings and given.init_from is None and given.keep_embeddings_of is None:
        raise ValueError("--keep-embeddings: there are none to keep without --init-from or --keep-embeddings-of")
    if given.keep_embeddings_of is not None and not given.keep_embeddings:
        raise ValueError("--keep-embeddings-of: say with --keep-embeddings how much they weigh")
    if given.init_from is not None:
        others = ("config", "vocabulary", "vocabulary_size")
        if extra := [f"--{name.replace('_', '-')}" for name in others if getattr(given, name) is not None]:
            raise ValueError(f"{', '.join(extra)}: not with --init-from, which has a shape and a vocabulary")
    elif given.config is None or (given.vocabulary is None) == (given.vocabulary_size is None):
        raise ValueError("a new model needs --config and one of --vocabulary and --vocabulary-size; else --init-from")
    if latest_checkpoint(given.output) is not None and not given.resume:
        raise ValueError(f"--output: {given.output} holds a run already; --resume goes on with it")
    if latest_checkpoint(given.output) is None and (given.output / "config.json").exists():
        raise ValueError(f"--output: {given.output} holds a model that is not of a run; take another folder")
    if given.vocabulary_size is not None:
        check_vocabulary_size(given.vocabulary_size)
    for paths in filter(None, (options.corpus, options.validation)):
        options.text(paths)
    try:
        given.output.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ValueError(f"--output: {given.output} is a file; it must be a folder, or nothing yet") from None


def _train(given: Namespace, options: TrainingOptions, ranks: Ranks) -> int:
    start = _starting_model(given, options, ranks)
    if given.keep_embeddings_of is not None:
        start = with_teacher(start, given.keep_embeddings_of, max_length=options.max_length)
    if ranks.is_first and start.new_heads and given.init_from is not None:
        print(f"new, at random: {', '.join(start.new_heads)}", file=sys.stderr)
    if ranks.is_first and given.resume and latest_checkpoint(options.output) is None:
        print(f"{options.output}: no checkpoint to go on from yet; this begins at step 0", file=sys.stderr)
    with tqdm(total=100, unit="%", disable=not ranks.is_first, bar_format=_BAR) as bar:

        def progress(*, share: float, step: int, loss: float, tokens_per_second: float) -> None:
            bar.n = 100 * share
            bar.set_postfix_str(f"step {step}, loss {loss:.3f}, {tokens_per_second:,.0f} tokens/s", refresh=True)

        trainer = Trainer(start, options, ranks=ranks, progress=progress)
        if given.resume:
            trainer.resume()
        with stops_on_signals(trainer.stop):
            last = trainer.run()
    if ranks.is_first:
        print(f"{options.output}: {trainer.step} steps; {_told(last)}")
    return EXIT_INTERRUPTED if trainer.was_stopped else EXIT_SUCCESS


_BAR = "{percentage:5.1f}% [{bar:30}] {elapsed}<{remaining} {postfix}"


def _told(entry: Mapping[str, Any]) -> str:
    values = entry.get("validation", entry)
    names = {"mlm_accuracy": "masked LM accuracy", "nsp_accuracy": "next sentence accuracy"}
    found = [f"{title} {values[name]:.3f}" for name, title in names.items() if values.get(name) is not None]
    if not found:
        return "there was no step left to do"
    return ", ".join(found) + (" on held-out text" if "masked" in values else " in training")


def _starting_model(given: Namespace, options: TrainingOptions, ranks: Ranks) -> StartingModel:
    if given.init_from is not None:
        return from_checkpoint(given.init_from, device=ranks.device, seed=options.seed, dropout=options.dropout)
    try:
        config = BertConfig.from_json_file(given.config)
        check_config(config, max_length=options.max_length)
    except ValueError as error:
        raise ValueError(f"{given.config}: {error}") from None
    folder = given.vocabulary
    if folder is None:
        folder = options.output
        if ranks.is_first and latest_checkpoint(folder) is None:
            texts = _texts(options.text(options.corpus))
            train_vocabulary(texts, folder, size=given.vocabulary_size, lowercase=not given.keep_case)
        ranks.wait()
    return from_config(config, folder, device=ranks.device, seed=options.seed, dropout=options.dropout)


def _texts(corpus: Corpus) -> Iterator[str]:
    for document in corpus.documents():
        yield from document.segments


if __name__ == "__main__":
    sys.exit(main())
