"""Corpora are read as streams, from any place on, and say what is wrong with them and where."""

from __future__ import annotations

import gzip
import lzma
import tracemalloc
from pathlib import Path

import pytest

from bert_core.pretraining.corpus import MAX_DOCUMENT_SEGMENTS, MAX_LINE_BYTES, Corpus, CorpusError


def written(folder: Path, text: str, *, name: str = "text.txt", encoding: str = "utf-8") -> Path:
    path = folder / name
    data = text.encode(encoding)
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".xz":
        data = lzma.compress(data)
    path.write_bytes(data)
    return path


def segments(corpus: Corpus) -> list[list[str]]:
    return [document.segments for document in corpus.documents()]


@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz", "text.txt.xz"])
def test_blank_lines_separate_documents(tmp_path: Path, name: str) -> None:
    text = "\ufeffOne. Two.\r\nThree.\n\n \t\n\nFour.\nFive. Six."
    corpus = Corpus([written(tmp_path, text, name=name)])
    assert segments(corpus) == [["One.", "Two.", "Three."], ["Four.", "Five.", "Six."]]
    assert corpus.bytes_of_files == (len(text.encode()),)
    whole = Corpus(corpus.paths, split=False)
    assert segments(whole) == [["One. Two.", "Three."], ["Four.", "Five. Six."]]


def test_pairs_are_two_sentences_with_a_tab_between(tmp_path: Path) -> None:
    path = written(tmp_path, "One. More.\tTwo.\n\nThree.\t Four. \n")
    assert segments(Corpus([path], corpus_format="pairs")) == [["One. More.", "Two."], ["Three.", "Four."]]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("no tab", "line 2 has 0 tabs"),
        ("a\tb\tc", "line 2 has 2 tabs"),
        ("a\t", "line 2 has an empty second sentence"),
        ("\tb", "line 2 has an empty first sentence"),
    ],
)
def test_a_malformed_pair_is_told_by_its_line(tmp_path: Path, line: str, fault: str) -> None:
    corpus = Corpus([written(tmp_path, f"a\tb\n{line}\n")], corpus_format="pairs")
    with pytest.raises(CorpusError, match=f"text.txt: {fault}") as raised:
        segments(corpus)
    assert "no tab" not in str(raised.value)


@pytest.mark.parametrize("name", ["text.txt", "text.txt.xz"])
def test_reading_goes_on_from_any_place(tmp_path: Path, name: str) -> None:
    text = "\n\n".join(f"Äh {number}. Ja.\nNein." for number in range(20))
    corpus = Corpus([written(tmp_path, text, name=name), written(tmp_path, "Last.\n\nVery last.", name="other.txt")])
    documents = list(corpus.documents())
    assert len(documents) == 22
    for number, document in enumerate(documents):
        assert list(corpus.documents(document.end)) == documents[number + 1 :]
    shares = [corpus.share_read(document.end) for document in documents]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_other_encodings(tmp_path: Path) -> None:
    text = "今天下雨。我们在家。\n\n好。"
    corpus = Corpus([written(tmp_path, text, encoding="gb18030")], encoding="GB18030")
    assert segments(corpus) == [["今天下雨。", "我们在家。"], ["好。"]]
    with pytest.raises(CorpusError, match="text.txt: line 1 is not utf-8: byte 0xbd at column 1"):
        segments(Corpus(corpus.paths))


def test_utf_8_sig_is_utf_8(tmp_path: Path) -> None:
    path = written(tmp_path, "Ä.\n\nÖ.", encoding="utf-8-sig")
    assert segments(Corpus([path], encoding="utf-8-sig")) == [["Ä."], ["Ö."]]


@pytest.mark.parametrize(
    ("encoding", "fault"),
    [("klingon", "'klingon' is not known"), ("utf-16", "utf-16 does not write"), ("zlib", "zlib")],
)
def test_an_encoding_that_cannot_be_read_by_lines_is_refused(tmp_path: Path, encoding: str, fault: str) -> None:
    with pytest.raises(CorpusError, match=f"encoding: .*{fault}"):
        Corpus([written(tmp_path, "a")], encoding=encoding)


def test_all_files_that_cannot_be_used_are_named_at_once(tmp_path: Path) -> None:
    empty = written(tmp_path, "", name="empty.txt")
    with pytest.raises(CorpusError) as raised:
        Corpus([tmp_path / "missing.txt", empty, tmp_path])
    assert str(raised.value).splitlines() == [
        f"{tmp_path / 'missing.txt'}: there is no such file",
        f"{empty}: is empty",
        f"{tmp_path}: is not a regular file",
    ]


@pytest.mark.parametrize("name", ["text.gz", "text.xz"])
@pytest.mark.parametrize("cut", [False, True])
def test_a_broken_archive_is_an_error(tmp_path: Path, name: str, cut: bool) -> None:
    path = written(tmp_path, "".join(f"Number {number}.\n\n" for number in range(5000)), name=name)
    path.write_bytes(path.read_bytes()[:-20] if cut else b"not packed at all")
    with pytest.raises(CorpusError, match=f"{name}: cannot be read"):
        segments(Corpus([path]))
    with pytest.raises(CorpusError, match=f"{name}: cannot be read"):
        assert Corpus([path]).bytes_of_files


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    with path.open("wb") as file:
        file.write(b"a.\n\n")
        file.truncate(8 * MAX_LINE_BYTES)
    tracemalloc.start()
    with pytest.raises(CorpusError, match=f"line 3 is longer than {MAX_LINE_BYTES} bytes"):
        segments(Corpus([path]))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 3 * MAX_LINE_BYTES


def test_a_file_without_blank_lines_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, "One.\n" * (MAX_DOCUMENT_SEGMENTS + 3))
    assert [len(document) for document in segments(Corpus([path]))] == [MAX_DOCUMENT_SEGMENTS, 3]
    assert f"line {MAX_DOCUMENT_SEGMENTS}: a document of {MAX_DOCUMENT_SEGMENTS} sentences" in caplog.text
