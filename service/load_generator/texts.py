"""Seeded texts, all distinct, of a given mix of lengths.

The words are common English ones, a single piece each in the vocabularies of English BERT checkpoints, so that a text
of n words has n + 2 tokens there, and a pair n + 3. What a text really costs is what the server's headers say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

COMMON_WORDS = """
the and was for with that his from her she you had were but this are not they one which have him first all also
their has who out been when after there into new two its time would what about said over then other more can like
back them only some could where just during before made school through than now years most world may between down
well three year while will later city under around did such being used state people part know against your many
second both national these window known off way until how even get head team because since still long work south
became any high again day family see right eyes house took life north same each called name much place however four
group another found won area here going away series left home music best make hand number company several never last
very take end good too released game played little began old want those side held own early use west face think
garden came small general town line based thought looked along air went our few east show member college father
public come five set station church next former money room located age got system let love though every look song
water century without body night within great single building large river named started once should service top
built open moved local times book why door need order final road although due major third knew asked turned wanted
say together received main son served behind himself felt members
"""
"""256 of them."""

TEXT_SPECIAL_TOKENS = 2
PAIR_SPECIAL_TOKENS = 3

COUNTER_WORDS = 3
"""The first words of a text count the texts: 256 ** 3 are distinct whatever follows."""

SHORTEST_TOKENS = TEXT_SPECIAL_TOKENS + COUNTER_WORDS + 1

LengthMix: TypeAlias = Callable[[Random], float]


class LengthsError(ValueError):
    """A mix of lengths that is not understood; the message tells the forms."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many tokens texts have, special tokens counted: one length, `low..high` or `median/mean`.

    With `median/mean` lengths follow the log-normal distribution, as lengths of real texts roughly do, cut off at
    the limit.
    """

    description: str
    draw: LengthMix
    limit: int

    def sample(self, random: Random) -> int:
        """One length, from `SHORTEST_TOKENS` to the limit."""
        return max(SHORTEST_TOKENS, min(self.limit, round(self.draw(random))))


def parse_lengths(description: str, *, limit: int) -> Lengths:
    """Read `128`, `16..512` (all alike often) or `47/84` (median and mean).

    Raises:
        LengthsError: no such form, or lengths that no text can have.
    """
    found = re.fullmatch(r"(\d{1,6})(?:(\.\.|/)(\d{1,6}))?", description)
    if found is None:
        raise LengthsError(f"{description!r} is not a length (128), low..high (16..512) or median/mean (47/84)")
    first, last = int(found[1]), int(found[3] or found[1])
    if not SHORTEST_TOKENS <= first <= last:
        raise LengthsError(f"{description!r}: must begin at {SHORTEST_TOKENS} tokens or more, and not fall")
    if first > limit or (found[2] == ".." and last > limit):
        raise LengthsError(f"{description!r}: the longest text is {limit} tokens")
    if found[2] != "/":
        return Lengths(description, lambda random: random.randint(first, last), limit)
    # Of exp(normal(m, s)) the median is exp(m) and the mean exp(m + s² / 2).
    center, spread = math.log(first), math.sqrt(2 * math.log(last / first))
    return Lengths(description, lambda random: random.lognormvariate(center, spread), limit)


class Texts:
    """An endless row of distinct texts, the same for the same seed."""

    def __init__(self, lengths: Lengths, *, seed: int) -> None:
        self._lengths = lengths
        self._random = Random(seed)
        self._vocabulary = COMMON_WORDS.split()
        self._made = 0

    def text(self) -> str:
        """The next text."""
        return " ".join(self._words(special_tokens=TEXT_SPECIAL_TOKENS))

    def masked(self, mask_token: str) -> str:
        """The next text, one of its words replaced by the mask token."""
        words = self._words(special_tokens=TEXT_SPECIAL_TOKENS)
        words[self._random.randrange(COUNTER_WORDS, len(words))] = mask_token
        return " ".join(words)

    def pair(self) -> tuple[str, str]:
        """The next text, cut into two halves."""
        words = self._words(special_tokens=PAIR_SPECIAL_TOKENS)
        half = len(words) // 2
        return " ".join(words[:half]), " ".join(words[half:])

    def _words(self, *, special_tokens: int) -> list[str]:
        count = self._lengths.sample(self._random) - special_tokens
        number = self._made
        self._made += 1
        counter = [self._vocabulary[number >> 8 * place & 255] for place in range(COUNTER_WORDS)]
        return counter + self._random.choices(self._vocabulary, k=count - COUNTER_WORDS)
