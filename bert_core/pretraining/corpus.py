"""Text files as documents or as sentence pairs, read line by line, so that they may be larger than memory.

Two formats. `documents`: each line a sentence or a paragraph, a blank line between documents, as in BERT's own
`create_pretraining_data.py`. `pairs`: each line a sentence and the one that follows it, with a tab between them. Files
that end in `.gz` or `.xz` are read through.
"""

from __future__ import annotations

import codecs
import gzip
import logging
import lzma
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import BinaryIO, Literal, cast, get_args

from bert_core.pretraining.sentences import split_sentences

logger = logging.getLogger(__name__)

CorpusFormat = Literal["documents", "pairs"]
CORPUS_FORMATS: tuple[CorpusFormat, ...] = get_args(CorpusFormat)

MAX_LINE_BYTES = 16 * 2**20
MAX_DOCUMENT_SEGMENTS = 5_000
COMPRESSED = (".gz", ".xz")
UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)


class CorpusError(ValueError):
    """A file that cannot be used; the message names it, and the line if there is one."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where reading goes on: which file, at which byte of its (uncompressed) text, and after which line."""

    file: int = 0
    byte: int = 0
    line: int = 0


BEGINNING = Place()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """segments: sentences or paragraphs in their order; of a pair, its two. end: where the next one is looked for."""

    segments: list[str]
    end: Place


class Corpus:
    """Files in one format, as a stream of documents that can begin at any `Place` where another one ended.

    Args:
        paths: read one after the other; a document does not go on in the next file.
        corpus_format: `documents` or `pairs`.
        encoding: any in which a line feed is one byte of its own.
        split: cut paragraphs into sentences (`documents` alone).

    Raises:
        CorpusError: a file that is missing or empty, or an encoding that is unknown or has another line feed.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        corpus_format: CorpusFormat = "documents",
        encoding: str = "utf-8",
        split: bool = True,
    ) -> None:
        self.paths = tuple(paths)
        self.format = corpus_format
        self._encoding = _usable_encoding(encoding)
        self._split = split
        if problems := [problem for path in paths if (problem := _problem(path)) is not None]:
            raise CorpusError("\n".join(problems))

    @cached_property
    def bytes_of_files(self) -> tuple[int, ...]:
        """Of each file, uncompressed; those that end in `.gz` or `.xz` are read through for it, once.

        Raises:
            CorpusError: a file that is not what its name says.
        """
        return tuple(map(_uncompressed_bytes, self.paths))

    def share_read(self, place: Place) -> float:
        """How much of all text lies before a place, from 0 to 1."""
        return min(1.0, (sum(self.bytes_of_files[: place.file]) + place.byte) / sum(self.bytes_of_files))

    def documents(self, start: Place = BEGINNING) -> Iterator[Document]:
        """The documents from a place on; of `pairs`, every pair is one.

        Raises:
            CorpusError: a line that is too long, not in the encoding, or no pair.
        """
        for number in range(start.file, len(self.paths)):
            begin = start if number == start.file else Place(file=number)
            lines = self._lines(begin)
            yield from self._pairs(lines) if self.format == "pairs" else self._blocks(lines)

    def _lines(self, start: Place) -> Iterator[tuple[str, Place]]:
        """Each line without its line feed, and the place after it."""
        path = self.paths[start.file]
        byte, number = start.byte, start.line
        with _opened(path) as file:
            try:
                file.seek(byte)
                while line := file.readline(MAX_LINE_BYTES + 1):
                    number += 1
                    byte += len(line)
                    if len(line) > MAX_LINE_BYTES:
                        raise CorpusError(f"{path.name}: line {number} is longer than {MAX_LINE_BYTES} bytes")
                    yield self._decoded(line, path=path, number=number), Place(start.file, byte, number)
            except UNREADABLE as error:
                raise CorpusError(f"{path.name}: cannot be read after line {number}: {error}") from None

    def _decoded(self, line: bytes, *, path: Path, number: int) -> str:
        try:
            # A byte-order mark belongs to the file, not to its first word.
            return line.decode(self._encoding).removeprefix("\ufeff").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{path.name}: line {number} is not {self._encoding}: byte {line[error.start]:#04x} "
                f"at column {error.start + 1}"
            ) from None

    def _blocks(self, lines: Iterator[tuple[str, Place]]) -> Iterator[Document]:
        segments: list[str] = []
        end: Place | None = None
        for line, place in lines:
            text = line.strip()
            if text:
                segments += split_sentences(text) if self._split else [text]
            end = place
            if segments and (not text or len(segments) >= MAX_DOCUMENT_SEGMENTS):
                if text:
                    logger.warning(
                        "%s: line %d: a document of %d sentences without a blank line is cut here",
                        self.paths[place.file].name,
                        place.line,
                        len(segments),
                    )
                yield Document(segments=segments, end=place)
                segments = []
        if segments and end is not None:
            yield Document(segments=segments, end=end)

    def _pairs(self, lines: Iterator[tuple[str, Place]]) -> Iterator[Document]:
        for line, place in lines:
            if not line.strip():
                continue
            halves = [half.strip() for half in line.split("\t")]
            where = f"{self.paths[place.file].name}: line {place.line}"
            if len(halves) != 2:
                raise CorpusError(f"{where} has {len(halves) - 1} tabs; a pair is two sentences with one tab between")
            if not all(halves):
                raise CorpusError(f"{where} has an empty {'second' if halves[0] else 'first'} sentence")
            yield Document(segments=halves, end=place)


def _usable_encoding(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
        if name == "utf-8-sig":  # one mark is taken from every line anyway
            return "utf-8"
        if "\n".encode(name) == b"\n":
            return name
    except (LookupError, UnicodeError):
        raise CorpusError(f"encoding: {encoding!r} is not known; utf-8 and gb18030 are") from None
    raise CorpusError(f"encoding: {name} does not write a line feed as one byte; convert the files to utf-8 first")


def _problem(path: Path) -> str | None:
    if not path.is_file():
        return f"{path}: is not a regular file" if path.exists() else f"{path}: there is no such file"
    return f"{path}: is empty" if path.stat().st_size == 0 else None


def _uncompressed_bytes(path: Path) -> int:
    if path.suffix not in COMPRESSED:
        return path.stat().st_size
    try:
        with _opened(path) as file:
            return sum(map(len, iter(partial(file.read, 2**20), b"")))
    except UNREADABLE as error:
        raise CorpusError(f"{path.name}: cannot be read: {error}") from None


def _opened(path: Path) -> BinaryIO:
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "rb"))
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")
