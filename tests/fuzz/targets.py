"""What is fuzzed: each target takes any bytes, and raises only where the library breaks a promise."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file

from bert_core.checkpoint import CheckpointError, load_pretrained
from bert_core.encoding import Encoding
from bert_core.tokenizer import BertTokenizer
from bert_core.truncation import MaskSpanError, SequenceTooLongError, TruncationSide
from tests.bert_core.folders import tensors_of, write_config, write_pickle
from tests.bert_core.tokenizer_folders import SHIPPED, pipeline, write_json
from tests.tiny import tiny_config, tiny_model, write_tiny_vocabulary

Target = Callable[[bytes], None]

SIDES: tuple[TruncationSide | None, ...] = (None, "left", "right")
LEAST_PAIR = 5


class _Bytes:
    """Numbers and text from bytes; zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self, below: int) -> int:
        """From 0; as few bytes as it takes."""
        size = 1 if below <= 256 else 2
        value = int.from_bytes(self._data[:size], "little")
        self._data = self._data[size:]
        return value % below

    def rest(self) -> bytes:
        data, self._data = self._data, b""
        return data

    def text(self) -> str:
        """Any text there can be, lone surrogates too."""
        data = self.rest()
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return data.decode("utf-8", "replace")


def tokenizer_target(folder: Path) -> Target:
    """Encoding, pairs and decoding with several tokenizers, whose files go into `folder`."""
    tokenizers = _tokenizers(folder)

    def target(data: bytes) -> None:
        source = _Bytes(data)
        tokenizer = tokenizers[source.number(len(tokenizers))]
        action = source.number(4)
        max_length = LEAST_PAIR + source.number(60)
        side = SIDES[source.number(len(SIDES))]
        if action == 0:
            ids = [source.number(tokenizer.vocab_size) for _ in range(source.number(50))]
            tokenizer.decode(ids, skip_special_tokens=bool(source.number(2)))
            return
        keep_masks = bool(source.number(2))
        text = source.text()
        try:
            if action == 1:
                half = len(text) // 2
                texts = text[:half], text[half:]
                encoding = tokenizer.encode_pair(*texts, max_length=max_length, truncate=side)
            else:
                texts = (text, text)
                encoding = tokenizer.encode(text, max_length=max_length, truncate=side, keep_masks=keep_masks)
        except (SequenceTooLongError, MaskSpanError):
            return
        except ValueError as error:
            if "surrogate" not in str(error) or not any("\ud800" <= character <= "\udfff" for character in text):
                raise
            return
        _check(encoding, tokenizer=tokenizer, texts=texts, max_length=max_length, is_pair=action == 1)
        if action == 3:
            _check_whole(tokenizer, text)

    return target


def _tokenizers(folder: Path) -> list[BertTokenizer]:
    kinds = {}
    for name in ("uncased", "cased", "pipeline"):
        kinds[name] = folder / name
        kinds[name].mkdir(parents=True)
    write_tiny_vocabulary(kinds["uncased"])
    write_tiny_vocabulary(kinds["cased"])
    write_json(kinds["cased"], "tokenizer_config.json", {"do_lower_case": False, "tokenize_chinese_chars": False})
    write_json(kinds["pipeline"], "tokenizer.json", pipeline("a", "b", "##a", "##b", "京", "!"))
    return [BertTokenizer.from_pretrained(kind) for kind in (*kinds.values(), SHIPPED)]


def _check(
    encoding: Encoding, *, tokenizer: BertTokenizer, texts: tuple[str, str], max_length: int, is_pair: bool
) -> None:
    ids = encoding.ids
    assert len(ids) == len(encoding.segment_ids) == len(encoding.offsets) <= max_length
    assert ids[0] == tokenizer.cls_id
    assert ids[-1] == tokenizer.sep_id
    assert all(0 <= token_id < tokenizer.vocab_size for token_id in ids)
    assert encoding.mask_positions == [place for place, token_id in enumerate(ids) if token_id == tokenizer.mask_id]
    for segment, (begin, end) in zip(encoding.segment_ids, encoding.offsets, strict=True):
        text = texts[segment] if is_pair else texts[0]
        assert 0 <= begin <= end <= len(text)
    if not is_pair and not encoding.truncated:
        begins = [begin for begin, _ in encoding.offsets[1:-1]]
        assert begins == sorted(begins)


def _check_whole(tokenizer: BertTokenizer, text: str) -> None:
    """However long texts are cut up for the library, the ids are what it gives for the whole."""
    assert tokenizer.pieces(text) == tokenizer._tokenizer.encode(text, add_special_tokens=False).ids


def checkpoint_target(folder: Path) -> Target:
    """A checkpoint folder with one file that holds anything, or a piece of anything."""
    good = {path: path.read_bytes() for path in _good_files(folder)}
    paths = sorted(good)

    def target(data: bytes) -> None:
        source = _Bytes(data)
        path = paths[source.number(len(paths))]
        content = good[path]
        if source.number(2):
            begin = source.number(len(content) + 1)
            inserted, removed = source.rest(), source.number(64)
            content = content[:begin] + inserted + content[begin + max(removed, len(inserted)) :]
        else:
            content = source.rest()
        path.write_bytes(content)
        try:
            with contextlib.suppress(CheckpointError):
                model = load_pretrained(path.parent)
                assert not any(parameter.is_meta for parameter in model.parameters())
            with contextlib.suppress(CheckpointError):
                BertTokenizer.from_pretrained(path.parent)
        finally:
            path.write_bytes(good[path])

    return target


def _good_files(folder: Path) -> list[Path]:
    """Three folders, one of each kind of weight file, all with a tokenizer."""
    config = tiny_config(num_hidden_layers=1, hidden_size=8, intermediate_size=6, max_position_embeddings=9)
    tensors = tensors_of(tiny_model(config))
    for kind in ("safetensors", "pickle", "old_pickle"):
        (folder / kind).mkdir(parents=True)
        write_config(folder / kind, config)
        write_tiny_vocabulary(folder / kind)
        write_json(folder / kind, "tokenizer_config.json", {"do_lower_case": True, "model_max_length": 9})
    save_file(tensors, folder / "safetensors" / "model.safetensors")
    write_json(folder / "safetensors", "tokenizer.json", pipeline("a", "##a"))
    (folder / "safetensors" / "vocab.txt").unlink()
    write_pickle(folder / "pickle", tensors, config)
    write_pickle(folder / "old_pickle", tensors, config, zipped=False)
    return [path for path in folder.rglob("*") if path.is_file()]


TARGETS: dict[str, Callable[[Path], Target]] = {"tokenizer": tokenizer_target, "checkpoint": checkpoint_target}


def seeds(name: str, folder: Path) -> list[bytes]:
    """Inputs to begin with: every tokenizer and action with some text, or every file of a checkpoint whole and in part.

    Args:
        name: of the target. folder: that of its files.
    """
    if name == "tokenizer":
        texts = ("", "hello, [MASK] café 北京\u0301\ud800", "a" * 300, "[CLS][SEP] \t\x00\u2028ß " * 9)
        return [
            bytes((tokenizer, action, length, side, masks)) + text.encode("utf-8", "surrogatepass")
            for tokenizer, action, length, side, masks in itertools.product(
                range(4), range(4), (0, 50), range(3), (0, 1)
            )
            for text in texts
        ]
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    whole = [bytes((number, 0)) + path.read_bytes()[:4000] for number, path in enumerate(paths)]
    return whole + [
        bytes((number, 1, begin, 0)) + b"{}[]" for number in range(len(paths)) for begin in range(0, 256, 16)
    ]


def use_one_thread() -> None:
    """What is fuzzed is small."""
    torch.set_num_threads(1)
