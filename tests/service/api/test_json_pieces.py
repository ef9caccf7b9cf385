from __future__ import annotations

import numpy as np
import orjson
import pytest

from service.api.json_pieces import DICTS_AT_ONCE, dump, dump_in_pieces

VECTOR = np.array([1.0, -0.5, 1 / 3], dtype=np.float32)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        7,
        "é\x01",
        [1, 2],
        [0.5],
        ["a", "b"],
        [[], [[1]], {}],
        [VECTOR, VECTOR],
        [np.stack([VECTOR, -VECTOR]), np.zeros((0, 3), dtype=np.float32)],
        np.stack([VECTOR, VECTOR]),
        VECTOR,
        {"object": "list", "data": [{"index": 0, "embedding": VECTOR}, {"index": 1, "embedding": VECTOR}], "usage": {}},
        {"results": [{"masks": [{"position": 1, "predictions": [{"score": 0.5, "tokens": (1, 2)}]}]}, {"error": "e"}]},
        [{"index": number, "value": np.float32(number / 7)} for number in range(2 * DICTS_AT_ONCE + 3)],
        [[{"id": number} for number in range(DICTS_AT_ONCE)], [{"id": 1, "start": None}]],
    ],
    ids=repr,
)
def test_pieces_make_the_same_bytes(content: object) -> None:
    assert dump_in_pieces(content) == dump(content)
    assert orjson.loads(dump(content)) is not None


def test_no_piece_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    longest, dumps = 0, orjson.dumps

    def noted(content: object, *, option: int) -> bytes:
        nonlocal longest
        made = dumps(content, option=option)
        longest = max(longest, len(made))
        return made

    content = {"data": [{"embedding": VECTOR, "tokens": [{"id": 1}] * 500}] * 400, "more": np.ones((900, 3))}
    monkeypatch.setattr("service.api.json_pieces.orjson.dumps", noted)
    assert len(dump_in_pieces(content)) > 1_000_000
    assert longest < 10 * DICTS_AT_ONCE
