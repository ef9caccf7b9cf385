"""One request of each kind to the service in this container; exits non-zero unless all answers are right.

Stands alone, on the standard library, for it runs inside the image.
"""

from __future__ import annotations

import json
import math
import urllib.request
from typing import Any


def ask(path: str, body: dict[str, Any]) -> Any:
    """POST `body` and return the parsed answer. Goes past any proxy, which the container may have been given."""
    request = urllib.request.Request(
        f"http://127.0.0.1:8000{path}", data=json.dumps(body).encode(), headers={"content-type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=8) as response:
        return json.load(response)


def check(answer: Any, *, holds: bool) -> None:
    if not holds:
        raise SystemExit(f"wrong answer: {answer}")


def main() -> None:
    predictions = ask("/fill-mask", {"inputs": "The quick brown [MASK] jumps over the lazy dog."})
    check(predictions, holds=len(predictions) == 5 and predictions[0]["token_str"] == "dog")

    pair = ask("/next-sentence", {"inputs": {"text": "He went to the store.", "text_pair": "He bought some milk."}})
    check(pair, holds=pair["label"] == "is_next" and math.isclose(pair["is_next"] + pair["not_next"], 1, abs_tol=1e-5))

    (vector,) = ask("/embed", {"inputs": "A short sentence."})
    check(vector, holds=len(vector) == 384 and math.isclose(math.hypot(*vector), 1, abs_tol=1e-3))


if __name__ == "__main__":
    main()
