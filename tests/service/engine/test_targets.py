from __future__ import annotations

import pytest

from bert_core import BertTokenizer
from service.engine.targets import LONGEST_CHARACTERS, MOST_PIECES, Target, TargetLookup, look_up_targets
from service.errors import EmptyInput, InvalidInput
from tests.tiny import TINY_VOCABULARY, write_tiny_vocabulary


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> BertTokenizer:
    folder = tmp_path_factory.mktemp("vocabulary")
    write_tiny_vocabulary(folder)
    return BertTokenizer.from_pretrained(folder)


def ids(*pieces: str) -> tuple[int, ...]:
    return tuple(TINY_VOCABULARY.index(piece) for piece in pieces)


@pytest.mark.parametrize(
    ("words", "targets"),
    [
        (
            ("paris", "king"),
            [
                Target(ids("paris"), "paris", "parameters.targets[0]"),
                Target(ids("king"), "king", "parameters.targets[1]"),
            ],
        ),
        (("Paris",), [Target(ids("paris"), "paris", "parameters.targets[0]")]),
        (("paris", "PARIS", "paris"), [Target(ids("paris"), "paris", "parameters.targets[0]")]),
        (("##s",), [Target(ids("##s"), "##s", "parameters.targets[0]")]),
        (("xqz",), [Target(ids("x", "##q", "##z"), "xqz", "parameters.targets[0]")]),
        (("paris france",), [Target(ids("paris", "france"), "paris france", "parameters.targets[0]")]),
        (("中国",), [Target(ids("中", "国"), "中国", "parameters.targets[0]")]),
    ],
)
def test_targets_are_spelled_in_pieces(tokenizer: BertTokenizer, words: tuple[str, ...], targets: list[Target]) -> None:
    assert list(look_up_targets(words, tokenizer=tokenizer)) == targets


@pytest.mark.parametrize("word", ["日", "a日", "😃"])
def test_a_target_that_cannot_be_spelled_is_refused_by_its_place(tokenizer: BertTokenizer, word: str) -> None:
    with pytest.raises(InvalidInput, match=r"^parameters\.targets\[1\]: ") as caught:
        look_up_targets(("paris", word), tokenizer=tokenizer)
    assert word not in str(caught.value)


@pytest.mark.parametrize("word", ["[MASK]", "[SEP]", "a [CLS]", "[PAD]"])
def test_special_tokens_are_no_targets(tokenizer: BertTokenizer, word: str) -> None:
    with pytest.raises(InvalidInput, match=r"^parameters\.targets\[0\]: a special token"):
        look_up_targets((word,), tokenizer=tokenizer)


@pytest.mark.parametrize(("words", "place"), [((), "targets"), (("",), r"targets\[0\]"), (("a", " "), r"targets\[1\]")])
def test_nothing_is_no_target(tokenizer: BertTokenizer, words: tuple[str, ...], place: str) -> None:
    with pytest.raises(EmptyInput, match=rf"^parameters\.{place}: "):
        look_up_targets(words, tokenizer=tokenizer)


def test_a_target_of_several_pieces_needs_a_text_with_one_mask(tokenizer: BertTokenizer) -> None:
    with pytest.raises(InvalidInput, match=r"targets\[1\]: has 3 pieces, .* it has 2$"):
        TargetLookup(tokenizer).find(("paris", "xqz"), masks=2)


def test_a_lone_surrogate_is_refused(tokenizer: BertTokenizer) -> None:
    with pytest.raises(InvalidInput, match=r"^parameters\.targets\[0\]: .*surrogate"):
        look_up_targets(("\ud800",), tokenizer=tokenizer)


def test_a_target_keeps_the_place_of_its_first_mention(tokenizer: BertTokenizer) -> None:
    found = look_up_targets(("paris", "Paris", "king"), tokenizer=tokenizer)
    assert [target.place for target in found] == ["parameters.targets[0]", "parameters.targets[2]"]


def test_a_target_may_be_so_long_and_no_longer(tokenizer: BertTokenizer) -> None:
    widest = "x" + " " * (LONGEST_CHARACTERS - 2) + "z"
    most = "xq" * (MOST_PIECES // 2)
    assert [len(target.ids) for target in look_up_targets((widest, most), tokenizer=tokenizer)] == [2, MOST_PIECES]
    with pytest.raises(InvalidInput, match=r"^parameters\.targets\[1\]: has 101 characters; at most 100$"):
        look_up_targets(("paris", widest + "z"), tokenizer=tokenizer)
    with pytest.raises(InvalidInput, match=r"^parameters\.targets\[1\]: has 17 pieces; at most 16$"):
        look_up_targets(("paris", most + "x"), tokenizer=tokenizer)


@pytest.mark.parametrize("words", [("paris", "xqz"), ("paris", "[SEP]")])
def test_texts_that_share_targets_look_them_up_once(
    tokenizer: BertTokenizer, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    pieces = tokenizer.pieces

    def counted(word: str) -> list[int]:
        asked.append(word)
        return pieces(word)

    monkeypatch.setattr(tokenizer, "pieces", counted)
    lookup = TargetLookup(tokenizer)

    def outcome(targets: tuple[str, ...]) -> object:
        try:
            return lookup.find(targets, masks=1)
        except InvalidInput as error:
            return str(error)

    first = outcome(words)
    before = list(asked)
    assert outcome(words) == first
    assert asked == before
    assert outcome(("king",)) != first
    assert outcome(words) == first
