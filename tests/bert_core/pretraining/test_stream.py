"""The same batches from any place on, others in each epoch, and a share for each process."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from bert_core.pretraining.batches import Collator, TrainingBatch
from bert_core.pretraining.corpus import Corpus, CorpusError
from bert_core.pretraining.instances import SegmentTokenizer
from bert_core.pretraining.stream import BatchStream, Position, first_batches
from bert_core.tokenizer import BertTokenizer
from tests.bert_core.pretraining.language import write_corpus, write_vocabulary
from tests.tiny import tiny_config

BLOCK = 1_500


def stream(folder: Path, path: Path, *, seed: int = 0, block_characters: int = BLOCK) -> BatchStream:
    tokenizer = BertTokenizer.from_pretrained(write_vocabulary(folder / "vocabulary"))
    return BatchStream(
        corpus=Corpus([path]),
        tokenize=SegmentTokenizer(tokenizer),
        collate=Collator(tokenizer, config=tiny_config(), whole_words=False),
        max_length=40,
        batch_tokens=300,
        seed=seed,
        block_characters=block_characters,
    )


def key(batch: TrainingBatch) -> tuple[object, ...]:
    assert batch.masked.ids_T is not None
    return batch.masked.ids_T.tolist(), batch.labels_M.tolist(), batch.next_N.tolist()


def test_reading_goes_on_from_any_position(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "text.txt", documents=25, seed=0)
    whole = list(itertools.islice(stream(tmp_path, path).batches(), 60))
    positions = [position for _, position in whole]
    assert len({(position.epoch, position.block) for position in positions}) > 4
    assert positions[-1].epoch >= 1
    for begin in (0, 1, 7, 20, 40):
        again = list(itertools.islice(stream(tmp_path, path).batches(positions[begin]), 60 - begin - 1))
        assert [key(batch) for batch, _ in again] == [key(batch) for batch, _ in whole[begin + 1 :]]
        assert [position for _, position in again] == positions[begin + 1 :]


def test_progress_is_told_in_epochs(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "text.txt", documents=25, seed=0)
    done = [position.epochs_done for _, position in itertools.islice(stream(tmp_path, path).batches(), 80)]
    assert done == sorted(done)
    assert 0 < done[0] < 0.2
    assert 1.0 in done
    assert done[-1] > 1


def test_every_epoch_and_seed_masks_and_pairs_anew(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "text.txt", documents=12, seed=0)
    epochs: dict[int, list[object]] = {}
    for batch, position in itertools.islice(stream(tmp_path, path).batches(), 40):
        epochs.setdefault(position.epoch, []).append(key(batch))
    assert not set(map(str, epochs[0])) & set(map(str, epochs[1]))
    other = [key(batch) for batch, _ in itertools.islice(stream(tmp_path, path, seed=1).batches(), len(epochs[0]))]
    assert not set(map(str, epochs[0])) & set(map(str, other))


def test_processes_share_what_one_would_see(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "text.txt", documents=25, seed=0)
    alone = [key(batch) for batch, _ in itertools.islice(stream(tmp_path, path).batches(), 30)]
    shares = [list(itertools.islice(stream(tmp_path, path).batches(rank=rank, ranks=3), 10)) for rank in range(3)]
    together = [key(batch) for turn in zip(*shares, strict=True) for batch, _ in turn]
    assert together == alone
    for turn in zip(*shares, strict=True):
        assert len({position for _, position in turn}) == 1


def test_a_corpus_smaller_than_a_turn_is_read_again(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "text.txt", documents=2, seed=0)
    batches = list(itertools.islice(stream(tmp_path, path).batches(rank=1, ranks=8), 3))
    assert batches[-1][1].epoch > 0


@pytest.mark.parametrize("text", ["One.\nTwo.\n", "\n\n  \n", "[MASK]\n\n[CLS]\n"])
def test_what_cannot_make_pairs_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CorpusError, match=r"text.txt: (only one document|there is no text)"):
        next(stream(tmp_path, path).batches())


def test_memory_is_that_of_a_block(tmp_path: Path) -> None:
    """A stream that held the corpus could not give its first batch after a few documents."""
    path = write_corpus(tmp_path / "text.txt", documents=2_000, seed=0)
    with path.open("ab") as file:
        file.write(b"\xff\n")  # not UTF-8: an error as soon as it is read
    batches = stream(tmp_path, path).batches()
    _, position = next(batches)
    assert position.block.byte < 10 * BLOCK
    with pytest.raises(CorpusError, match="is not utf-8"):
        for _ in batches:
            pass


def test_a_position_survives_being_written_down(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "text.txt", documents=25, seed=0)
    positions = [position for _, position in itertools.islice(stream(tmp_path, path).batches(), 30)]
    torch.save([asdict(position) for position in positions], tmp_path / "positions.pt")
    read = torch.load(tmp_path / "positions.pt", weights_only=True)
    assert [Position.from_state(state) for state in read] == positions


@pytest.mark.parametrize("end", ["", "\n\n\n", "\n\n[MASK]\n\n"])
def test_an_epoch_is_over_with_its_last_batch_whatever_the_file_ends_with(tmp_path: Path, end: str) -> None:
    path = write_corpus(tmp_path / "text.txt", documents=9, seed=0)
    with path.open("a", encoding="utf-8") as file:
        file.write(end)
    made = stream(tmp_path, path)
    batches = first_batches(made, pairs=10**6)
    positions = [position for _, position in itertools.islice(made.batches(), len(batches) + 1)]
    assert [position.epochs_done >= 1 for position in positions] == [False] * (len(batches) - 1) + [True, True]
    assert positions[len(batches) - 1] == Position(epoch=1, epochs_done=1.0)
