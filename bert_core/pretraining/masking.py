"""Which tokens are masked, and by what (Devlin et al. 2018, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bert_core.pretraining.instances import Flags, Ids

MASKED_SHARE = 0.15
BY_MASK_SHARE = 0.8
BY_RANDOM_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Masking:
    """How to mask.

    mask_id: of the mask token.
    random_ids: what a token may be replaced by at random; no special ones.
    whole_words: all tokens of a word are masked or none.
    share: of a sequence's ordinary tokens; one at least.
    """

    mask_id: int
    random_ids: Ids
    whole_words: bool = False
    share: float = MASKED_SHARE

    def places(self, *, ordinary: Flags, starts_word: Flags, random: np.random.Generator) -> Ids:
        """Which tokens of one sequence are to be predicted, ascending `[M]`.

        So many that sequences of one length have equally many, but for whole words, which never go over the number
        unless the first one does.

        Args:
            ordinary: `[L]`, false for special tokens.
            starts_word: `[L]`, false where a token goes on with a word; true at special tokens.
        """
        candidates = np.flatnonzero(ordinary)
        count = max(1, round(self.share * len(candidates)))
        if not self.whole_words:
            return np.sort(random.permutation(candidates)[:count]).astype(np.int32)
        # Special tokens start words too, so that the rest of a word whose front was cut joins no other.
        word_of = np.cumsum(starts_word)[candidates]
        words = np.split(candidates, np.flatnonzero(np.diff(word_of)) + 1)
        found: list[int] = []
        for number in random.permutation(len(words)):
            if not found or len(found) + len(words[number]) <= count:
                found += words[number].tolist()
            if len(found) >= count:
                break
        return np.array(sorted(found), dtype=np.int32)

    def replacements(self, ids_M: Ids, *, random: np.random.Generator) -> Ids:
        """What the model sees in place of `ids_M`: 80 % the mask token, 10 % a random one, 10 % itself."""
        dice = random.random(len(ids_M))
        by_random = self.random_ids[random.integers(len(self.random_ids), size=len(ids_M))]
        seen = np.where(dice < BY_MASK_SHARE + BY_RANDOM_SHARE, by_random, ids_M)
        return np.where(dice < BY_MASK_SHARE, self.mask_id, seen).astype(np.int32)
