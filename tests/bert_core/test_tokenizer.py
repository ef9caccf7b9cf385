from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bert_core.tokenizer import BertTokenizer, Encoding, MaskSpanError, SequenceTooLongError, TruncationSide
from tests.bert_core.tokenizer_folders import SHIPPED, write_json, write_vocabulary

PAD, UNK, CLS, SEP, MASK, THE = 0, 100, 101, 102, 103, 1996


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    return BertTokenizer.from_pretrained(SHIPPED)


def ids(tokenizer: BertTokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, max_length=512).ids


def pieces(tokenizer: BertTokenizer, text: str) -> str:
    return " ".join(str(tokenizer.id_to_token(token_id)) for token_id in tokenizer.pieces(text))


def covered(text: str, encoding: Encoding) -> list[str]:
    return [text[start:end] for start, end in encoding.offsets]


def test_what_the_shipped_tokenizer_is(tokenizer: BertTokenizer) -> None:
    assert tokenizer.vocab_size == 30522
    found = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    assert found == (PAD, UNK, CLS, SEP, MASK)
    assert tokenizer.mask_token == "[MASK]"
    assert repr(tokenizer) == "BertTokenizer(vocab_size=30522, lowercase=True)"


def test_looking_up_pieces_and_ids(tokenizer: BertTokenizer) -> None:
    assert tokenizer.token_to_id("the") == THE
    assert tokenizer.token_to_id("##ing") == 2075
    assert tokenizer.token_to_id("The") is None
    assert tokenizer.id_to_token(THE) == "the"
    assert tokenizer.id_to_token(30522) is None
    assert tokenizer.id_to_token(-1) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i am going to [MASK] to study math", [101, 1045, 2572, 2183, 2000, 103, 2000, 2817, 8785, 102]),
        ("A, [MASK] AllenNLP sentence.", [101, 1037, 1010, 103, 5297, 20554, 2361, 6251, 1012, 102]),
        (
            "The quick brown [MASK] jumps over the lazy dog.",
            [101, 1996, 4248, 2829, 103, 14523, 2058, 1996, 13971, 3899, 1012, 102],
        ),
    ],
)
def test_lower_casing_leaves_the_mask_whole(tokenizer: BertTokenizer, text: str, expected: list[int]) -> None:
    encoding = tokenizer.encode(text, max_length=512)
    assert encoding.ids == expected
    assert encoding.mask_positions == [expected.index(MASK)]


@pytest.mark.parametrize(
    ("text", "masks"),
    [
        ("Hello~[MASK][MASK]", [3, 4]),
        ("un[MASK]able", [2]),
        ("[MASK].", [1]),
        ("[[MASK]]", [2]),
        ("[MASK", []),
        ("Hello-[mask]", []),
        ("[Mask]", []),
        ("[ MASK ]", []),
        ("[MA\u200dSK]", []),
        ("［MASK］", []),
        ("<mask>", []),
    ],
)
def test_only_the_exact_mask_token_is_a_mask(tokenizer: BertTokenizer, text: str, masks: list[int]) -> None:
    encoding = tokenizer.encode(text, max_length=512)
    assert encoding.mask_positions == masks
    assert [covered(text, encoding)[place] for place in masks] == ["[MASK]"] * len(masks)
    assert pieces(tokenizer, "Hello-[unk]") == "hello - [ un ##k ]"


def test_special_tokens_in_a_text_are_special_but_change_no_segment(tokenizer: BertTokenizer) -> None:
    pair = tokenizer.encode_pair("a [SEP] b", "c", max_length=512)
    assert pair.ids == [CLS, 1037, SEP, 1038, SEP, 1039, SEP]
    assert pair.segment_ids == [0, 0, 0, 0, 0, 1, 1]
    assert ids(tokenizer, "hello [PAD] [PAD]") == [CLS, 7592, PAD, PAD, SEP]
    single = tokenizer.encode("[CLS] the [MASK] [SEP]", max_length=512)
    assert single.ids == [CLS, CLS, THE, MASK, SEP, SEP]
    assert single.mask_positions == [3]
    assert single.segment_ids == [0] * 6


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" 😃 hello how are you", "[UNK] hello how are you"),
        ("glad😊", "[UNK]"),
        ("💩💩💩", "[UNK]"),
        ("🥱 📷🤏 🦾", "[UNK] [UNK] [UNK]"),
        ("a \U0001fae9 b", "a [UNK] b"),
        ("a \u0378 b", "a [UNK] b"),  # unassigned is no control character for the library, whatever Python's table says
        ("a\ue000b\u00adc", "abc"),
        ("a+b=c", "a + b = c"),
        ("cost $5 ~ 10%", "cost $ 5 ~ 10 %"),
        ("<a>^`|", "< a > ^ ` |"),
        ("What is the capital of France?", "what is the capital of france ?"),
        ("£10 5°c", "£10 5 ##° ##c"),
        ("अपने", "अ ##प ##न"),
        ("में", "म"),
        ("パンダ", "ハ ##ン ##タ"),
        ("йод", "и ##о ##д"),
        ("한국어", "ᄒ ##ᅡ ##ᆫ ##ᄀ ##ᅮ ##ᆨ ##ᄋ ##ᅥ"),
        ("\u0e38", ""),
        ("naïve", "naive"),
        ("cafè", "cafe"),
        ("a" * 100, "aaa ##aa" + " ##aa" * 47 + " ##a"),
        ("a" * 101, "[UNK]"),
    ],
)
def test_uncased_pieces(tokenizer: BertTokenizer, text: str, expected: str) -> None:
    assert pieces(tokenizer, text) == expected


@pytest.mark.parametrize("text", ["", " ", "\t\n", "\u200b", "\u0e38", "\x00\x07", "\ufffd"])
def test_nothing_left_is_two_special_tokens(tokenizer: BertTokenizer, text: str) -> None:
    encoding = tokenizer.encode(text, max_length=2)
    assert encoding == Encoding(
        ids=[CLS, SEP], segment_ids=[0, 0], offsets=[(0, 0), (0, 0)], mask_positions=[], truncated=False
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Café naïve!", ["", "Café", "naïve", "!", ""]),
        ("e\u0301a b", ["", "e\u0301a", "b", ""]),
        ("Paris 的人 😃x [MASK].", ["", "Paris", "的", "人", "😃x", "[MASK]", ".", ""]),
        ("\ufeffhello", ["", "hello", ""]),
        ("a\x00b c", ["", "a\x00b", "c", ""]),
        ("un[MASK]able", ["", "un", "[MASK]", "able", ""]),
        ("tokenization\u2028x", ["", "token", "ization", "x", ""]),
        ("한 x", ["", "한", "한", "한", "x", ""]),
        ("İstanbul", ["", "İstanbul", ""]),
    ],
)
def test_offsets_cut_the_callers_own_text(tokenizer: BertTokenizer, text: str, expected: list[str]) -> None:
    assert covered(text, tokenizer.encode(text, max_length=64)) == expected


def test_offsets_of_a_pair_count_in_each_half(tokenizer: BertTokenizer) -> None:
    first, second = "é [MASK]", "😃 the b"
    pair = tokenizer.encode_pair(first, second, max_length=64)
    assert pair.offsets == [(0, 0), (0, 1), (2, 8), (0, 0), (0, 1), (2, 5), (6, 7), (0, 0)]
    assert pair.mask_positions == [2]
    assert pair.segment_ids == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_mask_at_the_limit_and_over_it(tokenizer: BertTokenizer) -> None:
    assert tokenizer.encode("the " * 509 + "[MASK]", max_length=512).mask_positions == [510]
    with pytest.raises(SequenceTooLongError, match=r"513 tokens.*at most 512") as caught:
        tokenizer.encode("the " * 510 + "[MASK]", max_length=512)
    assert (caught.value.length, caught.value.limit) == (513, 512)
    with pytest.raises(SequenceTooLongError) as caught:
        tokenizer.encode("the " * 100_000, max_length=512)
    assert caught.value.length == 100_002


@pytest.mark.parametrize(
    ("text", "side", "masks", "first"),
    [
        ("the " * 600 + "[MASK]", "right", [510], (364, 367)),
        ("the " * 600 + "[MASK]", "left", [510], (364, 367)),
        ("[MASK] " + "the " * 600, "right", [1], (0, 6)),
        ("[MASK] " + "the " * 600, "left", [1], (0, 6)),
        ("the " * 20 + "[MASK] " + "the " * 508 + "[MASK]", "right", [1, 510], (80, 86)),
        ("the " * 50_000 + "[MASK]" + " the" * 50_000, "right", [510], (4 * 49_491, 4 * 49_491 + 3)),
        ("the " * 50_000 + "[MASK]" + " the" * 50_000, "left", [1], (200_000, 200_006)),
    ],
)
def test_the_window_moves_to_hold_every_mask(
    tokenizer: BertTokenizer, text: str, side: TruncationSide, masks: list[int], first: tuple[int, int]
) -> None:
    encoding = tokenizer.encode(text, max_length=512, truncate=side, keep_masks=True)
    assert len(encoding.ids) == len(encoding.segment_ids) == len(encoding.offsets) == 512
    assert (encoding.ids[0], encoding.ids[-1]) == (CLS, SEP)
    assert encoding.mask_positions == masks
    assert encoding.offsets[1] == first
    assert encoding.truncated
    assert [covered(text, encoding)[place] for place in masks] == ["[MASK]"] * len(masks)


def test_masks_too_far_apart(tokenizer: BertTokenizer) -> None:
    with pytest.raises(MaskSpanError, match="span 602 tokens; a window of at most 510"):
        tokenizer.encode("[MASK] " + "the " * 600 + "[MASK]", max_length=512, truncate="right", keep_masks=True)


def test_without_keep_masks_the_named_end_is_cut(tokenizer: BertTokenizer) -> None:
    text = "a [MASK] the b"
    right = tokenizer.encode(text, max_length=4, truncate="right")
    left = tokenizer.encode(text, max_length=4, truncate="left")
    assert (right.ids, right.mask_positions) == ([CLS, 1037, MASK, SEP], [2])
    assert (left.ids, left.mask_positions) == ([CLS, THE, 1038, SEP], [])
    assert left.offsets == [(0, 0), (9, 12), (13, 14), (0, 0)]
    assert tokenizer.encode(text, max_length=2, truncate="left").ids == [CLS, SEP]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("first", "second", "max_length", "kept"),
    [
        ("", "the " * 510, 512, (0, 509)),
        ("the " * 600, "", 512, (509, 0)),
        ("the " * 400, "the " * 300, 512, (255, 254)),
        ("the " * 300, "the " * 400, 512, (255, 254)),
        ("the " * 300, "the " * 300, 512, (255, 254)),
        ("," * 125, "." * 130, 128, (63, 62)),
        ("the " * 20_000, "the " * 7, 99, (89, 7)),
    ],
)
def test_pairs_are_cut_longest_first(
    tokenizer: BertTokenizer, first: str, second: str, max_length: int, kept: tuple[int, int], side: TruncationSide
) -> None:
    with pytest.raises(SequenceTooLongError):
        tokenizer.encode_pair(first, second, max_length=max_length)
    pair = tokenizer.encode_pair(first, second, max_length=max_length, truncate=side)
    assert len(pair.ids) == len(pair.offsets) == max_length
    assert pair.segment_ids == [0] * (kept[0] + 2) + [1] * (kept[1] + 1)
    assert [place for place, token_id in enumerate(pair.ids) if token_id == SEP] == [kept[0] + 1, max_length - 1]
    assert pair.truncated


@pytest.mark.parametrize("side", ["left", "right", None])
@pytest.mark.parametrize("text", ["", "a [MASK] é", "the " * 300, "the end. " * 9_000])
def test_a_half_of_many_pairs_may_be_given_tokenized(
    tokenizer: BertTokenizer, text: str, side: TruncationSide | None
) -> None:
    limit = 512 if side else 40_000
    half = tokenizer.pair_half(text, max_length=limit, truncate=side)
    assert len(half.ids) == len(half.offsets) <= limit - 3
    for other in ("", "b c", "the " * 400):
        for ours, theirs in (((half, other), (text, other)), ((other, half), (other, text))):
            found = tokenizer.encode_pair(*ours, max_length=limit, truncate=side)
            assert found == tokenizer.encode_pair(*theirs, max_length=limit, truncate=side)


@pytest.mark.parametrize(("max_length", "side"), [(8, "left"), (9, "right"), (8, None)])
def test_a_half_of_other_pairs_is_refused(
    tokenizer: BertTokenizer, max_length: int, side: TruncationSide | None
) -> None:
    half = tokenizer.pair_half("a", max_length=8, truncate="right")
    with pytest.raises(ValueError, match=f"max_length 8 and truncate right; the pair has {max_length} and {side}$"):
        tokenizer.encode_pair("b", half, max_length=max_length, truncate=side)


def test_a_half_without_offsets_makes_pairs_without(tokenizer: BertTokenizer) -> None:
    half = tokenizer.pair_half("a b", max_length=8, offsets=False)
    pair = tokenizer.encode_pair(half, "the", max_length=8, offsets=False)
    assert (pair.ids, pair.offsets) == ([CLS, 1037, 1038, SEP, THE, SEP], [])
    with pytest.raises(ValueError, match="without offsets"):
        tokenizer.encode_pair(half, "the", max_length=8)


def test_each_half_of_a_pair_is_cut_at_the_named_end(tokenizer: BertTokenizer) -> None:
    first, second = "a b the", "the c d"
    right = tokenizer.encode_pair(first, second, max_length=7, truncate="right")
    left = tokenizer.encode_pair(first, second, max_length=7, truncate="left")
    assert right.ids == [CLS, 1037, 1038, SEP, THE, 1039, SEP]
    assert left.ids == [CLS, 1038, THE, SEP, 1039, 1040, SEP]
    assert left.offsets == [(0, 0), (2, 3), (4, 7), (0, 0), (4, 5), (6, 7), (0, 0)]


@pytest.mark.parametrize(
    ("first", "second", "expected", "segments"),
    [
        ("a b c", "", [CLS, 1037, 1038, 1039, SEP, SEP], [0, 0, 0, 0, 0, 1]),
        ("", "a", [CLS, SEP, 1037, SEP], [0, 0, 1, 1]),
        ("", "", [CLS, SEP, SEP], [0, 0, 1]),
    ],
)
def test_an_empty_half_is_still_a_half(
    tokenizer: BertTokenizer, first: str, second: str, expected: list[int], segments: list[int]
) -> None:
    pair = tokenizer.encode_pair(first, second, max_length=512)
    assert (pair.ids, pair.segment_ids, pair.truncated) == (expected, segments, False)


def test_a_pair_of_a_cased_vocabulary(tmp_path: Path) -> None:
    folder = write_vocabulary(tmp_path, "I", "like", "cookies", "!", "Do", "you", "them", "?", "i", "do")
    write_json(folder, "tokenizer_config.json", {"do_lower_case": False})
    tokenizer = BertTokenizer.from_pretrained(folder)
    pair = tokenizer.encode_pair("I like cookies !", "Do you like them ?", max_length=512)
    assert pair.ids == [2, 5, 6, 7, 8, 3, 9, 10, 6, 11, 12, 3]
    assert pair.segment_ids == [0] * 6 + [1] * 6


def test_segment_ids_of_a_model_of_its_own() -> None:
    tokenizer = BertTokenizer.from_pretrained(SHIPPED, pair_segment_ids=(1, 2))
    assert tokenizer.encode_pair("a", "b c", max_length=9).segment_ids == [1, 1, 1, 2, 2, 2]
    assert tokenizer.encode("a", max_length=9).segment_ids == [1, 1, 1]


def test_no_room_for_the_special_tokens(tokenizer: BertTokenizer) -> None:
    with pytest.raises(ValueError, match="max_length is 1; the special tokens alone take 2"):
        tokenizer.encode("a", max_length=1, truncate="right")
    with pytest.raises(ValueError, match="max_length is 2; the special tokens alone take 3"):
        tokenizer.encode_pair("a", "b", max_length=2, truncate="right")


@pytest.mark.parametrize(
    ("text", "place"),
    [("a\ud800b", 1), ("the " * 9_000 + "\udfff", 36_000), ("the " * 40 + "\udfff", 160), ("\ud83d \ude00", 0)],
)
def test_a_lone_surrogate_is_a_value_error(tokenizer: BertTokenizer, text: str, place: int) -> None:
    message = f"lone surrogate .U.{ord(text[place]):04X}. at character {place};"
    with pytest.raises(ValueError, match=message):
        tokenizer.encode(text, max_length=512, truncate="right")
    with pytest.raises(ValueError, match=message):
        tokenizer.encode_pair("a", text, max_length=512, truncate="right")
    with pytest.raises(ValueError, match=message):
        tokenizer.pieces(text)


def test_what_is_no_text_is_a_type_error(tokenizer: BertTokenizer) -> None:
    with pytest.raises(TypeError):
        tokenizer.encode(["a"], max_length=512)  # type: ignore[arg-type]  # the fault under test


def test_pieces_have_no_special_tokens_around(tokenizer: BertTokenizer) -> None:
    assert pieces(tokenizer, "pizza") == "pizza"
    assert pieces(tokenizer, "Damnation") == "damn ##ation"
    assert tokenizer.pieces("[MASK]") == [MASK]
    assert tokenizer.pieces("##ing") == [1001, 1001, 13749]
    assert tokenizer.pieces("xqzt☃") == [UNK]
    assert tokenizer.pieces("the " * 20_000) == [THE] * 20_000


def test_decoding(tokenizer: BertTokenizer) -> None:
    encoding = ids(tokenizer, "Tokenization isn't hard.")
    assert tokenizer.decode(encoding) == "[CLS] tokenization isn ' t hard. [SEP]"
    assert tokenizer.decode(encoding, skip_special_tokens=True) == "tokenization isn ' t hard."
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode(encoding * 50) == " ".join([tokenizer.decode(encoding)] * 50)
    assert tokenizer.decode(encoding * 50, skip_special_tokens=True) == " ".join(["tokenization isn ' t hard."] * 50)


@pytest.mark.parametrize(("wrong", "place"), [([THE, 30522], 1), ([-1], 0)])
def test_decoding_unknown_ids(tokenizer: BertTokenizer, wrong: list[int], place: int) -> None:
    with pytest.raises(ValueError, match=rf"ids\[{place}\] is {wrong[place]}; it must be from 0 to 30521"):
        tokenizer.decode(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("科学[MASK][MASK]是第一", "科 学 [MASK] [MASK] 是 第 一"), ("的人abc", "的 人 [UNK]"), ("的 、人", "的 、 人")],
)
def test_chinese_with_one_piece_a_character(tmp_path: Path, text: str, expected: str) -> None:
    chinese = BertTokenizer.from_pretrained(write_vocabulary(tmp_path, *"的人科学是第一、"))
    assert pieces(chinese, text) == expected
    encoding = chinese.encode(text, max_length=16)
    assert len(encoding.mask_positions) == text.count("[MASK]")
    assert [part for part in covered(text, encoding) if part] == [
        "abc" if p == "[UNK]" else p for p in expected.split()
    ]


@pytest.mark.parametrize(
    ("config", "text", "expected"),
    [
        ({"do_lower_case": False}, "naïve mở", "naïve mở"),
        ({"do_lower_case": False, "strip_accents": True}, "naïve mở", "naive mo"),
        ({"do_lower_case": True}, "NAÏVE", "naive"),
        ({"do_lower_case": True, "strip_accents": None}, "NAÏVE", "naive"),
        ({"do_lower_case": True, "strip_accents": False}, "NAÏVE", "naïve"),
        ({"do_lower_case": False}, "\u00e1", "\u00e1"),
        ({"do_lower_case": False}, "a\u0301", "a ##\u0301"),
        ({"do_lower_case": True, "strip_accents": False}, "में", "में"),
        ({"do_lower_case": True}, "的人有", "的 人 有"),
        ({"do_lower_case": True, "tokenize_chinese_chars": False}, "的人有", "的 ##人 ##有"),
    ],
)
def test_flags_of_the_folder(tmp_path: Path, config: dict[str, bool | None], text: str, expected: str) -> None:
    folder = write_vocabulary(
        tmp_path, "naïve", "mở", "naive", "mo", "á", "a", "##\u0301", "में", *"的人有", "##人", "##有"
    )
    write_json(folder, "tokenizer_config.json", config)
    assert pieces(BertTokenizer.from_pretrained(folder), text) == expected


def test_special_tokens_of_other_names(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("<pad>\n<unk>\n<s>\n</s>\n<mask>\na\n[\nmask\n]\n")
    names = {"pad_token": "<pad>", "unk_token": {"content": "<unk>", "lstrip": True}, "cls_token": "<s>"}
    write_json(tmp_path, "special_tokens_map.json", names | {"sep_token": "</s>", "mask_token": "[MASK]"})
    write_json(tmp_path, "tokenizer_config.json", {"mask_token": {"content": "<mask>", "lstrip": True}})
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    text = "a <mask>[MASK] z"
    encoding = tokenizer.encode(text, max_length=12)
    assert encoding.ids == [2, 5, 4, 6, 7, 8, 1, 3]
    assert encoding.mask_positions == [2]
    assert covered(text, encoding) == ["", "a", "<mask>", "[", "MASK", "]", "z", ""]
    assert tokenizer.mask_token == "<mask>"


def test_threads_share_one_tokenizer(tokenizer: BertTokenizer) -> None:
    texts = ["the cat [MASK] sat", "a b c d e", "的é😃 " * 40, "the " * 500]

    def calls(worker: int) -> list[object]:
        answers: list[object] = []
        for call in range(250):
            text = texts[(worker + call) % 4]
            side: TruncationSide | None = (None, "right", "left")[call % 3]
            try:
                answers.append(tokenizer.encode(text, max_length=(512, 64)[call % 2], truncate=side))
            except SequenceTooLongError as error:
                answers.append(error.length)
            if call % 5 == 0:
                answers.append(tokenizer.encode_pair(text[:40], text[:60], max_length=15, truncate="right"))
                answers.append(tokenizer.decode(tokenizer.pieces(text[:30])))
        return answers

    expected = [calls(worker) for worker in range(4)]
    with ThreadPoolExecutor(16) as pool:
        for worker, answers in enumerate(pool.map(calls, range(16))):
            assert answers == expected[worker % 4]


def test_a_long_text_does_not_stop_other_threads(tokenizer: BertTokenizer) -> None:
    stopped = threading.Event()
    longest_pause = 0.0

    def watch() -> None:
        nonlocal longest_pause
        last = time.perf_counter()
        while not stopped.is_set():
            now = time.perf_counter()
            longest_pause = max(longest_pause, now - last)
            last = now

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    tokenizer.pieces("word" * 500_000)  # nowhere to cut, so one call of the library
    took = time.perf_counter() - started
    stopped.set()
    watcher.join()
    assert longest_pause < took / 2


@pytest.mark.parametrize("unit", ["a", "的", ".", "the ", "[MASK]", "é"])
def test_time_grows_no_faster_than_the_text(tokenizer: BertTokenizer, unit: str) -> None:
    def seconds(text: str) -> float:
        started = time.process_time()
        tokenizer.pieces(text)
        return time.process_time() - started

    short, long = unit * 4_000, unit * 80_000
    assert min(seconds(long) for _ in range(2)) < 20 * 6 * min(seconds(short) for _ in range(5))
