from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bert_core.tokenizer import BertTokenizer, TokenizerError
from tests.bert_core.tokenizer_folders import SPECIAL, pipeline, write_json, write_vocabulary

BIG_LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 231508\n"


def problems(folder: Path, *, lowercase: bool | None = None) -> tuple[str, ...]:
    with pytest.raises(TokenizerError) as caught:
        BertTokenizer.from_pretrained(folder, lowercase=lowercase)
    message = str(caught.value)
    assert str(folder) in message
    assert all(problem in message for problem in caught.value.problems)
    return caught.value.problems


def pieces(tokenizer: BertTokenizer, text: str) -> str:
    return " ".join(str(tokenizer.id_to_token(token_id)) for token_id in tokenizer.pieces(text))


def test_vocab_txt_alone_and_tokenizer_json_alone_agree(tmp_path: Path) -> None:
    words = ["hel", "##lo", "的", "##的", "e"]
    listed = BertTokenizer.from_pretrained(write_vocabulary(tmp_path / "listed", *words))
    described = BertTokenizer.from_pretrained(write_json(tmp_path / "described", "tokenizer.json", pipeline(*words)))
    for text in ("Hello 的的 é [MASK]", "[UNK] helloo"):
        assert listed.encode(text, max_length=20) == described.encode(text, max_length=20)
    assert pieces(listed, "Hello 的的 é") == "hel ##lo 的 的 e"


def test_truncation_and_padding_of_the_file_are_switched_off(tmp_path: Path) -> None:
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    padding: dict[str, object] = {"strategy": {"Fixed": 32}, "direction": "Right", "pad_to_multiple_of": None}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    write_json(tmp_path, "tokenizer.json", pipeline("a", truncation=truncation, padding=padding))
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    assert tokenizer.encode("a a a a a a", max_length=32).ids == [2, *[5] * 6, 3]


def test_another_template_in_the_file_changes_nothing(tmp_path: Path) -> None:
    template = {"type": "BertProcessing", "sep": ["[CLS]", 2], "cls": ["[SEP]", 3]}
    write_json(tmp_path, "tokenizer.json", pipeline("a", post_processor=template))
    assert BertTokenizer.from_pretrained(tmp_path).encode("a", max_length=9).ids == [2, 5, 3]


@pytest.mark.parametrize(
    ("files", "lowercase", "expected"),
    [
        ({}, None, "hello"),
        ({}, False, "Hello"),
        ({"tokenizer_config.json": {"do_lower_case": False}}, None, "Hello"),
        ({"tokenizer_config.json": {"do_lower_case": False}}, True, "hello"),
        ({"tokenizer_config.json": {"do_lower_case": None}}, None, "hello"),
        ({"sentence_bert_config.json": {"max_seq_length": 9, "do_lower_case": False}}, None, "hello"),
        (
            {
                "tokenizer_config.json": {"do_lower_case": False},
                "sentence_bert_config.json": {"max_seq_length": 9, "do_lower_case": True},
            },
            None,
            "Hello",
        ),
    ],
)
def test_what_says_whether_to_lower_case(
    tmp_path: Path, files: dict[str, Any], lowercase: bool | None, expected: str
) -> None:
    write_vocabulary(tmp_path, "Hello", "hello")
    for name, content in files.items():
        write_json(tmp_path, name, content)
    tokenizer = BertTokenizer.from_pretrained(tmp_path, lowercase=lowercase)
    assert pieces(tokenizer, "Hello") == expected
    assert tokenizer.lowercase is (expected == "hello")


@pytest.mark.parametrize(
    ("changes", "config", "text", "expected"),
    [
        ({"lowercase": False}, {}, "É", "É"),
        ({"lowercase": False}, {"do_lower_case": True}, "É", "e"),
        ({"strip_accents": False}, {}, "É", "é"),
        ({"strip_accents": False}, {"do_lower_case": True}, "É", "é"),
        ({"strip_accents": False}, {"strip_accents": None}, "É", "e"),
        ({"strip_accents": False}, {"strip_accents": True}, "É", "e"),
        ({"handle_chinese_chars": False}, {}, "的的", "的 ##的"),
        ({"handle_chinese_chars": False}, {"tokenize_chinese_chars": True}, "的的", "的 的"),
        ({"clean_text": False}, {}, "e\x00", "[UNK]"),
    ],
)
def test_flags_of_the_pipeline_and_of_the_config(
    tmp_path: Path, changes: dict[str, bool], config: dict[str, bool | None], text: str, expected: str
) -> None:
    normalizer = pipeline()["normalizer"] | changes
    write_json(tmp_path, "tokenizer.json", pipeline("É", "é", "e", "的", "##的", normalizer=normalizer))
    write_json(tmp_path, "tokenizer_config.json", config)
    assert pieces(BertTokenizer.from_pretrained(tmp_path), text) == expected


@pytest.mark.parametrize(
    ("words", "config", "lowercase", "warned"),
    [
        (["Hello", "World", "hello"], {}, None, True),
        (["hello", "é", "[unused1]", "一"], {}, None, False),
        (["Hello"], {"do_lower_case": True}, None, False),
        (["Hello"], {}, True, False),
    ],
)
def test_a_guess_that_wastes_pieces_is_logged(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    words: list[str],
    config: dict[str, bool],
    lowercase: bool | None,
    warned: bool,
) -> None:
    write_json(write_vocabulary(tmp_path, *words), "tokenizer_config.json", config)
    with caplog.at_level(logging.WARNING):
        BertTokenizer.from_pretrained(tmp_path, lowercase=lowercase)
    assert ("so 2 pieces with capitals are never used" in caplog.text) is warned
    assert bool(caplog.records) is warned


def test_another_pipeline_is_used_as_it_is(tmp_path: Path) -> None:
    changes = {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "WhitespaceSplit"}}
    write_json(tmp_path, "tokenizer.json", pipeline("é,", "a", **changes))
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    assert pieces(tokenizer, "É, A a,") == "é, a [UNK]"
    assert tokenizer.lowercase is None
    assert problems(tmp_path, lowercase=True) == (
        "tokenizer.json: normalizer.type is 'Lowercase'; lowercase cannot be set",
    )


def test_settings_of_the_word_piece_model(tmp_path: Path) -> None:
    content = pipeline("ab", "@@c", "@@cc", normalizer=None, pre_tokenizer=None)
    content["model"] |= {"continuing_subword_prefix": "@@", "max_input_chars_per_word": 4}
    del content["model"]["type"]
    write_json(tmp_path, "tokenizer.json", content)
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    assert pieces(tokenizer, "ABcc, abccc") == "ab @@cc [UNK] [UNK]"
    assert tokenizer.decode(tokenizer.pieces("abcc")) == "abcc"


def test_added_tokens(tmp_path: Path) -> None:
    """Matched before splitting, with the ids that the files give them, wherever they are listed."""
    write_vocabulary(tmp_path, "covid", "a", "19")
    entries = {"8": {"content": "<drug>", "special": True}, "9": {"content": "Covid19", "normalized": False}}
    config = {"added_tokens_decoder": entries, "additional_special_tokens": ["<drug>"], "eos_token": "[SEP]"}
    write_json(tmp_path, "tokenizer_config.json", config)
    write_json(tmp_path, "added_tokens.json", {"<drug>": 8, "new word": 10})
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    assert tokenizer.vocab_size == 11
    assert pieces(tokenizer, "a<drug>a Covid19 covid 19 NEW word <Drug>") == (
        "a <drug> a Covid19 covid 19 new word [UNK] [UNK] [UNK]"
    )


def test_names_of_extra_special_tokens(tmp_path: Path) -> None:
    write_json(
        write_vocabulary(tmp_path, "[e1]", "[e2]"),
        "tokenizer_config.json",
        {"extra_special_tokens": {"first": "[e1]", "second": {"content": "[e2]"}}},
    )
    assert pieces(BertTokenizer.from_pretrained(tmp_path), "[e1][e2]") == "[e1] [e2]"


def test_ids_are_line_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = ["\ufeff[PAD]", "[UNK]", "", "[CLS]", "[SEP]", "twice", "[MASK] ", "a\u2028b", "twice", "c", "", ""]
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(lines).encode())
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    found = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    assert found == (0, 1, 3, 4, 6)
    assert tokenizer.token_to_id("c") == 9
    assert tokenizer.vocab_size == 10
    assert tokenizer.token_to_id("twice") == 8
    assert tokenizer.id_to_token(5) == tokenizer.id_to_token(8) == "twice"
    assert "listed more than once, the last line counts: twice" in caplog.text


def test_a_vocabulary_with_unused_ids(tmp_path: Path) -> None:
    content = pipeline("a")
    content["model"]["vocab"]["b"] = 40
    tokenizer = BertTokenizer.from_pretrained(write_json(tmp_path, "tokenizer.json", content))
    assert tokenizer.pieces("a b") == [5, 40]
    assert tokenizer.vocab_size == 41
    assert tokenizer.id_to_token(39) is None


def test_vocab_txt_that_contradicts_tokenizer_json(tmp_path: Path) -> None:
    write_json(tmp_path, "tokenizer.json", pipeline("a", "b", "c"))
    write_vocabulary(tmp_path, "b", "a", "c", "d")
    assert problems(tmp_path) == (
        "vocab.txt: the id of 'b' is 5; in tokenizer.json it is 6",
        "vocab.txt: the id of 'a' is 6; in tokenizer.json it is 5",
    )


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[sep]\na\n")
    config = {
        "do_lower_case": "yes",
        "tokenizer_class": "BertJapaneseTokenizer",
        "unk_token": "<unk>",
        "additional_special_tokens": ["<none>"],
        "added_tokens_decoder": {"4": {"content": "b"}, "x": {"content": "c"}, "9": {"content": "a"}, "10": {}},
    }
    write_json(tmp_path, "tokenizer_config.json", config)
    (tmp_path / "special_tokens_map.json").write_text("{")
    found = problems(tmp_path)
    for expected in (
        "special_tokens_map.json: is not JSON",
        "tokenizer_config.json: tokenizer_class is BertJapaneseTokenizer",
        "tokenizer_config.json: an added token has no content",
        "tokenizer_config.json: id 4 is 'b'; elsewhere it is 'a'",
        "tokenizer_config.json: the id of 'c' is 'x'; it must be a whole number from 0",
        "tokenizer_config.json: the id of 'a' is 9; elsewhere it is 4",
        "tokenizer_config.json: special token '<none>' is not in the vocabulary",
        "tokenizer_config.json: do_lower_case is 'yes'; it must be true or false",
        "sep_token is '[SEP]', which is not in the vocabulary",
        "mask_token is '[MASK]', which is not in the vocabulary",
        "unk_token is '<unk>', which is not in the vocabulary",
    ):
        assert any(problem.startswith(expected) for problem in found), expected
    assert len(found) == 11


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("vocab.txt", BIG_LFS, "vocab.txt: is a Git LFS pointer"),
        ("vocab.txt", "", "vocab.txt: is empty"),
        ("vocab.txt", b"[PAD]\n[UNK]\n\xff\xfe\n", "vocab.txt: line 3 is not UTF-8: byte 0xff"),
        ("vocab.txt", "[PAD]\n[UNK]\n".encode("utf-16"), "vocab.txt: line 1 is not UTF-8: byte 0xff"),
        ("tokenizer.json", BIG_LFS, "tokenizer.json: is a Git LFS pointer"),
        ("tokenizer.json", "[]", "tokenizer.json: must hold a JSON object"),
        ("tokenizer.json", "{", "tokenizer.json: is not JSON"),
        ("tokenizer.json", {"model": []}, "tokenizer.json: model must be an object"),
        ("tokenizer.json", {"model": {"type": "BPE", "vocab": {}}}, "tokenizer.json: model.type is 'BPE'; BERT's is"),
        ("tokenizer.json", {"model": {"type": "WordPiece", "vocab": {}}}, "mask_token is '[MASK]', which is not in"),
        ("tokenizer.json", {"model": {"vocab": {"a": 1}}}, "tokenizer.json: model.type is None; BERT's is"),
        ("tokenizer.json", pipeline(pre_tokenizer={"type": "Odd"}), "tokenizer.json: "),
        ("tokenizer.json", pipeline(pre_tokenizer="Odd"), "tokenizer.json: pre_tokenizer must be an object"),
        ("tokenizer.json", pipeline(added_tokens=["x"]), "tokenizer.json: the id of 'x' is None"),
    ],
)
def test_unusable_files(tmp_path: Path, name: str, content: object, problem: str) -> None:
    data = content if isinstance(content, str | bytes) else json.dumps(content)
    (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    assert any(found.startswith(problem) for found in problems(tmp_path))


@pytest.mark.parametrize(
    ("token_id", "shown"), [(-1, "-1"), (True, "True"), ("7", "'7'"), (2**32, "4294967296"), (None, "None")]
)
def test_ids_that_are_none(tmp_path: Path, token_id: object, shown: str) -> None:
    content = pipeline("a")
    content["model"]["vocab"]["a"] = token_id
    write_json(tmp_path, "tokenizer.json", content)
    assert problems(tmp_path) == (f"tokenizer.json: the id of 'a' is {shown}; it must be a whole number from 0",)


@pytest.mark.parametrize("token_id", [10_006, 2**32 - 1])
def test_an_id_far_above_the_number_of_tokens(tmp_path: Path, token_id: int) -> None:
    rule = "no more than 10000 ids below it may be unused"
    fault = f"the id of '[FAR]' is {token_id}, of 6 tokens; {rule}"
    content = pipeline()
    content["added_tokens"].append({"id": token_id, "content": "[FAR]"})
    assert problems(write_json(tmp_path / "pipeline", "tokenizer.json", content)) == (fault,)
    folder = write_vocabulary(tmp_path / "list")
    write_json(folder, "tokenizer_config.json", {"added_tokens_decoder": {str(token_id): {"content": "[FAR]"}}})
    assert problems(folder) == (fault,)


def test_a_gap_of_ids_that_is_allowed(tmp_path: Path) -> None:
    write_json(write_vocabulary(tmp_path), "added_tokens.json", {"[FAR]": 10_005})
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    assert tokenizer.pieces("[FAR]") == [10_005]
    assert tokenizer.unused_ids == list(range(5, 10_005))


def test_an_id_of_thousands_of_digits(tmp_path: Path) -> None:
    decoder = {"9" * 5000: {"content": "[FAR]"}}
    write_json(write_vocabulary(tmp_path), "tokenizer_config.json", {"added_tokens_decoder": decoder})
    (problem,) = problems(tmp_path)
    assert problem.startswith("tokenizer_config.json: the id of '[FAR]' is '9999999999")
    assert len(problem) < 250


def test_tokens_and_values_of_any_size_give_short_problems(tmp_path: Path) -> None:
    long = "x" * 10_000
    config: dict[str, Any] = {"do_lower_case": long, "tokenizer_class": long, "unk_token": long, "mask_token": long}
    config |= {"additional_special_tokens": [f"{number}{long}" for number in range(99)]}
    config |= {"added_tokens_decoder": {"4": {"content": long}, "z": {"content": long}}}
    write_json(write_vocabulary(tmp_path), "tokenizer_config.json", config)
    found = problems(tmp_path)
    assert len(found) == 12
    assert max(map(len, found)) < 500


def test_a_normalizer_on_which_the_library_panics(tmp_path: Path) -> None:
    normalizer = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    write_json(tmp_path, "tokenizer.json", pipeline(normalizer=normalizer))
    (problem,) = problems(tmp_path)
    assert problem.startswith("tokenizer.json: ")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_no_fault_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    def interrupt(_: str) -> None:
        raise kind

    monkeypatch.setattr("bert_core.tokenizer_description.Tokenizer", SimpleNamespace(from_str=interrupt))
    with pytest.raises(kind):
        BertTokenizer.from_pretrained(write_vocabulary(tmp_path))


def test_many_problems_of_a_kind_are_counted(tmp_path: Path) -> None:
    letters = "abcdefghij"
    write_json(tmp_path, "tokenizer.json", pipeline(*letters))
    write_vocabulary(tmp_path, *reversed(letters))
    found = problems(tmp_path)
    assert len(found) == 6
    assert found[-1] == "vocab.txt: 5 more of that kind"


def test_a_mask_that_is_another_special_token(tmp_path: Path) -> None:
    write_json(write_vocabulary(tmp_path, "a"), "tokenizer_config.json", {"mask_token": "[UNK]"})
    assert problems(tmp_path) == ("unk_token and mask_token are both '[UNK]'",)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    assert problems(tmp_path) == ("tokenizer.json and vocab.txt are missing; one of them must be there",)
    assert problems(tmp_path / "none") == ("no such folder",)


def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    stored = write_vocabulary(tmp_path / "stored", "a")
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "vocab.txt").symlink_to(stored / "vocab.txt")
    assert BertTokenizer.from_pretrained(folder).vocab_size == len(SPECIAL) + 1
    (stored / "vocab.txt").unlink()
    assert len(problems(folder)) == 1
    assert problems(folder)[0].startswith("vocab.txt: is a symbolic link to a file that is missing")
