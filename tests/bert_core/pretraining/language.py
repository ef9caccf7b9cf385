"""A made-up language that can be learned in half a minute: what stands around a word tells it.

A sentence is `ARTICLE NOUN VERB ARTICLE NOUN .`; each verb has one noun that does it and one that it is done to. Each
document has a topic, and each topic its verbs and its article.
"""

from __future__ import annotations

import random
from pathlib import Path

from tests.bert_core import tokenizer_folders

TOPICS = 6
VERBS_OF_A_TOPIC = 2


def sentence(topic: int, verb: int) -> str:
    """One of a topic's sentences."""
    number = topic * VERBS_OF_A_TOPIC + verb
    return f"t{topic} a{number} v{number} t{topic} b{number} ."


def write_corpus(path: Path, *, documents: int, seed: int) -> Path:
    """Documents of a topic each, ten sentences long, one a line."""
    chance = random.Random(seed)
    blocks = []
    for _ in range(documents):
        topic = chance.randrange(TOPICS)
        blocks.append("\n".join(sentence(topic, chance.randrange(VERBS_OF_A_TOPIC)) for _ in range(10)))
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return path


def write_vocabulary(folder: Path) -> Path:
    """A tokenizer that knows every word of the language."""
    words = [f"{kind}{number}" for kind in "avb" for number in range(TOPICS * VERBS_OF_A_TOPIC)]
    articles = [f"t{topic}" for topic in range(TOPICS)]
    return tokenizer_folders.write_vocabulary(folder, ".", *articles, *words)
