"""A report about a checkpoint as lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from service.checkpoints.report import CheckpointReport, ServingReport, TokenizerReport, WeightsReport

_CASING = {True: "lower-cased", False: "cased", None: "with a normaliser of its own"}


def report_lines(report: CheckpointReport) -> Iterator[str]:
    """A line a fact; what is unknown because of problems is left out."""
    config = report.config
    if config is not None:
        yield _line(
            "model",
            f"{config['num_hidden_layers']} layers, {config['hidden_size']} wide, "
            f"{config['num_attention_heads']} attention heads, feed-forward {config['intermediate_size']}, "
            f"{config['hidden_act']}",
        )
    if report.weights is not None:
        yield from _weights_lines(report.weights)
    yield _line("size", f"{report.size_bytes / 1e6:,.1f} MB: {_listed(report.files)}")
    if report.tokenizer is not None:
        yield _line("tokenizer", _tokenizer_text(report.tokenizer))
    if report.serving is not None:
        yield from _serving_lines(report.serving)
    yield _line("problems", str(len(report.problems) or "none"))
    yield from (f"  - {problem}" for problem in report.problems)


def _weights_lines(weights: WeightsReport) -> Iterator[str]:
    yield _line("parameters", f"{weights.parameters:,}, stored in {_listed(weights.stored_dtypes)}")
    missing = f" (missing: {_listed(weights.heads_missing)})" if weights.heads_missing else ""
    yield _line("heads", f"{_listed(weights.heads)}{missing}")


def _tokenizer_text(tokenizer: TokenizerReport) -> str:
    return f"{tokenizer.vocab_size:,} pieces, {_CASING[tokenizer.lowercase]}, mask token {tokenizer.mask_token}"


def _serving_lines(serving: ServingReport) -> Iterator[str]:
    absent = [name for name, able in serving.capabilities.items() if not able]
    able = _listed(name for name, able in serving.capabilities.items() if able)
    yield _line("serves", able + (f" (answers 501: {_listed(absent)})" if absent else ""))
    yield _line("pooling", serving.pooling)
    yield _line("limits", f"{serving.max_input_length} tokens, {serving.max_embed_length} for embeddings")
    default = "" if serving.default_prompt_name is None else f" (default: {serving.default_prompt_name})"
    yield _line("prompts", _listed(serving.prompts) + default)


def _line(name: str, value: str) -> str:
    return f"{name:<12}{value}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
