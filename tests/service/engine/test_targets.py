from __future__ import annotations

import pytest

from bert_core import BertTokenizer
from service.engine.targets import Target, look_up_targets
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
        (("paris", "king"), [Target(ids("paris"), "paris"), Target(ids("king"), "king")]),
        (("Paris",), [Target(ids("paris"), "paris")]),
        (("paris", "PARIS", "paris"), [Target(ids("paris"), "paris")]),
        (("##s",), [Target(ids("##s"), "##s")]),
        (("xqz",), [Target(ids("x", "##q", "##z"), "xqz")]),
        (("paris france",), [Target(ids("paris", "france"), "paris france")]),
        (("中国",), [Target(ids("中", "国"), "中国")]),
    ],
)
def test_targets_are_spelled_in_pieces(tokenizer: BertTokenizer, words: tuple[str, ...], targets: list[Target]) -> None:
    assert list(look_up_targets(words, tokenizer=tokenizer, masks=1)) == targets


@pytest.mark.parametrize("word", ["日", "a日", "😃"])
def test_a_target_that_cannot_be_spelled_is_refused_by_its_place(tokenizer: BertTokenizer, word: str) -> None:
    with pytest.raises(InvalidInput, match=r"^parameters\.targets\[1\]: ") as caught:
        look_up_targets(("paris", word), tokenizer=tokenizer, masks=1)
    assert word not in str(caught.value)


@pytest.mark.parametrize("word", ["[MASK]", "[SEP]", "a [CLS]", "[PAD]"])
def test_special_tokens_are_no_targets(tokenizer: BertTokenizer, word: str) -> None:
    with pytest.raises(InvalidInput, match=r"^parameters\.targets\[0\]: a special token"):
        look_up_targets((word,), tokenizer=tokenizer, masks=1)


@pytest.mark.parametrize(("words", "place"), [((), "targets"), (("",), r"targets\[0\]"), (("a", " "), r"targets\[1\]")])
def test_nothing_is_no_target(tokenizer: BertTokenizer, words: tuple[str, ...], place: str) -> None:
    with pytest.raises(EmptyInput, match=rf"^parameters\.{place}: "):
        look_up_targets(words, tokenizer=tokenizer, masks=1)


def test_a_target_of_several_pieces_needs_a_text_with_one_mask(tokenizer: BertTokenizer) -> None:
    with pytest.raises(InvalidInput, match=r"targets\[1\]: has 3 pieces, .* it has 2$"):
        look_up_targets(("paris", "xqz"), tokenizer=tokenizer, masks=2)


def test_a_lone_surrogate_is_refused(tokenizer: BertTokenizer) -> None:
    with pytest.raises(InvalidInput, match=r"^parameters\.targets\[0\]: .*surrogate"):
        look_up_targets(("\ud800",), tokenizer=tokenizer, masks=1)
