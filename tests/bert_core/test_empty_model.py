from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from bert_core.empty_model import empty_model
from bert_core.heads import Heads
from bert_core.model import BertForPreTraining
from tests.tiny import TINY_CONFIG, tiny_config


@pytest.mark.parametrize("heads", [Heads(), Heads(mlm=False), Heads(pooler=False, nsp=False)])
def test_it_has_the_shapes_of_a_model_and_no_memory(heads: Heads) -> None:
    empty, real = empty_model(TINY_CONFIG, heads=heads), BertForPreTraining(TINY_CONFIG, heads=heads)
    assert {n: p.shape for n, p in empty.named_parameters()} == {n: p.shape for n, p in real.named_parameters()}
    assert all(tensor.is_meta for tensor in empty.state_dict().values())


def test_making_it_takes_no_random_numbers_and_leaves_no_trace() -> None:
    before = torch.get_rng_state()
    empty_model(tiny_config(position_embedding_type="sinusoidal"), heads=Heads())
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.empty(2).device == torch.device("cpu")
    assert torch.nn.init.normal_(torch.zeros(5), mean=9.0).min() > 0


def test_loading_does_not_import_the_compiler() -> None:
    code = (
        "import sys; from bert_core import load_pretrained; load_pretrained('weights/minilm-l6-bert-en');"
        "print([name for name in ('torch._dynamo', 'sympy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "[]\n"
