"""BERT in PyTorch: the encoder with pooler, masked-LM and next-sentence heads, on packed tokens."""

from bert_core.checkpoint import CheckpointError, load_pretrained, save_pretrained
from bert_core.config import BertConfig
from bert_core.model import BertForPreTraining, BertModel
from bert_core.tokenizer import BertTokenizer

__all__ = [
    "BertConfig",
    "BertForPreTraining",
    "BertModel",
    "BertTokenizer",
    "CheckpointError",
    "load_pretrained",
    "save_pretrained",
]
