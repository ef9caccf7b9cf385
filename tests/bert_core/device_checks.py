"""Every kernel of the model on a device, against float32 on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn.attention import varlen

from bert_core import BertForPreTraining
from bert_core.config import BertConfig
from bert_core.heads import mean_of_tokens
from bert_core.packing import PackedTokens, WantedRows
from tests.device_checks import GAP_BOUNDS, GRADIENT_BOUND, Check, compared
from tests.tiny import COLUMNS, ROWS, masks, random_ids, random_packed, random_segments, tiny_config, tiny_model

# Runs of equal length and of one; a single token; more tokens than one tile of a flash kernel.
LENGTHS = (5, 5, 5, 1, 37, 37, 2, 75)
WANTED = ((0,), (0, 2, 4), (), (0,), (36,), tuple(range(37)), (1,), (0, 74))

# Head width 16, which flash attention takes.
_BASE = tiny_config(hidden_size=96, num_attention_heads=6, intermediate_size=152, max_position_embeddings=77)

VARIANTS: Mapping[str, BertConfig] = MappingProxyType(
    {
        "base": _BASE,
        "head width 12": tiny_config(hidden_size=36, num_attention_heads=3, max_position_embeddings=77),
        "relative positions": tiny_config(
            hidden_size=96,
            num_attention_heads=6,
            max_position_embeddings=77,
            position_embedding_type="relative_key_query",
        ),
        "pre-norm, sinusoidal, mean pooler, chunks": tiny_config(
            hidden_size=96,
            num_attention_heads=6,
            max_position_embeddings=77,
            norm_placement="pre",
            position_embedding_type="sinusoidal",
            pooler_type="all_token_average",
            chunk_size_feed_forward=29,
        ),
        "pruned heads": tiny_config(
            hidden_size=96, num_attention_heads=6, max_position_embeddings=77, pruned_heads={0: (1, 4), 2: (0,)}
        ),
        "torch's multi-head attention": tiny_config(
            hidden_size=96, num_attention_heads=6, max_position_embeddings=77, use_torch_multi_head=True
        ),
    }
)


def checks(variant: str, *, device: torch.device, dtype: torch.dtype) -> list[Check]:
    """Compare every output of a variant of the model."""
    model, right = _models(VARIANTS[variant], device=device, dtype=dtype)
    name, bound = f"{variant}, {str(dtype).removeprefix('torch.')}", GAP_BOUNDS[dtype]
    found = compared(_of_packed(model), _of_packed(right), name=name, bound=bound)
    found += compared(_of_padded(model), _of_padded(right), name=name, bound=bound)
    if dtype == torch.float32:
        found += compared(_gradients(model), _gradients(right), name=name, bound=GRADIENT_BOUND)
    return found


def varlen_calls(*, device: torch.device, dtype: torch.dtype) -> int:
    """How often the base model's forward pass, once for all and once for wanted rows, calls the kernel over offsets."""
    model, _ = _models(VARIANTS["base"], device=device, dtype=dtype)
    kernel, calls = varlen.varlen_attn, 0

    def counted(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        return kernel(*arguments, **options)  # type: ignore[arg-type]  # whatever is given goes on

    packed = packed_tokens(model.config, device=device)
    varlen.varlen_attn = counted  # type: ignore[assignment]  # put back below
    try:
        with torch.inference_mode():
            model.bert.encode(packed)
            model.bert.encode(packed, wanted=wanted_rows(WANTED, lengths=LENGTHS, device=device))
    finally:
        varlen.varlen_attn = kernel
    return calls


def _models(
    config: BertConfig, *, device: torch.device, dtype: torch.dtype
) -> tuple[BertForPreTraining, BertForPreTraining]:
    """The model on the device, and one with the same weights, rounded to the dtype, in float32 on the CPU."""
    models = []
    for _ in range(2):
        model = tiny_model(config, seed=3)
        norms = {
            parameter for part in model.modules() if isinstance(part, nn.LayerNorm) for parameter in part.parameters()
        }
        with torch.no_grad():
            for parameter in set(model.parameters()) - norms:
                # Small enough that no softmax is a choice of one, which half precision makes differently.
                parameter.mul_(0.3)
        models.append(model.to(dtype))
    first, second = models
    first.to(device).reset_buffers(device=device, dtype=dtype)
    second.float().reset_buffers(device=torch.device("cpu"), dtype=torch.float32)
    return first, second


def _place(model: BertForPreTraining) -> torch.device:
    return next(model.parameters()).device


def packed_tokens(config: BertConfig, *, device: torch.device, lengths: tuple[int, ...] = LENGTHS) -> PackedTokens:
    """Random tokens on the device."""
    packed = random_packed(config, lengths=lengths, seed=5)
    assert packed.ids_T is not None
    return PackedTokens(
        ids_T=packed.ids_T.to(device),
        segments_T=packed.segments_T.to(device),
        positions_T=packed.positions_T.to(device),
        lengths=packed.lengths,
    )


def wanted_rows(wanted: Sequence[Sequence[int]], *, lengths: Sequence[int], device: torch.device) -> WantedRows:
    """Rows given within each sequence."""
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    rows = [start + row for start, own in zip(starts, wanted, strict=True) for row in own]
    return WantedRows(torch.tensor(rows, device=device), [len(own) for own in wanted])


def _of_packed(model: BertForPreTraining) -> dict[str, Tensor]:
    """What the service runs."""
    packed = packed_tokens(model.config, device=_place(model))
    with torch.inference_mode():
        hidden_TD = model.bert.encode(packed)
        assert model.bert.pooler is not None
        assert model.mlm is not None
        assert model.nsp is not None
        pooled_ND = model.bert.pooler.pool(hidden_TD, packed)
        found = {
            "all rows": hidden_TD,
            "mean of tokens": mean_of_tokens(hidden_TD, packed),
            "pooler": pooled_ND,
            "MLM logits": model.mlm(hidden_TD[7:20]),
            "NSP logits": model.nsp(pooled_ND),
        }
        if not model.config.use_torch_multi_head:
            wanted = wanted_rows(WANTED, lengths=LENGTHS, device=_place(model))
            found["wanted rows"] = model.bert.encode(packed, wanted=wanted)
    return found


def _of_padded(model: BertForPreTraining) -> dict[str, Tensor]:
    """What a library call may ask for besides: masks, hidden states, attention weights, head masks."""
    device = _place(model)
    ids, segments = random_ids(model.config).to(device), random_segments(model.config).to(device)
    found: dict[str, Tensor] = {}
    with torch.inference_mode():
        for name, mask in masks().items():
            out = model(ids, attention_mask=None if mask is None else mask.to(device), token_type_ids=segments)
            assert out.prediction_logits is not None
            found[f"padded, mask {name}"] = out.prediction_logits
        whole = model.bert(ids, token_type_ids=segments, output_hidden_states=True, output_attentions=True)
        found |= {f"hidden states {number}": state for number, state in enumerate(whole.hidden_states)}
        found |= {f"attention weights {number}": weights for number, weights in enumerate(whole.attentions)}
        pairs = torch.ones(ROWS, COLUMNS, COLUMNS).tril().to(device)
        found["mask of pairs"] = model.bert(ids, attention_mask=pairs).last_hidden_state
        if not model.config.use_torch_multi_head:
            factors = torch.linspace(0, 1.5, model.config.num_attention_heads, device=device)
            found["head mask"] = model.bert(ids, head_mask=factors).last_hidden_state
    return found


def _gradients(model: BertForPreTraining) -> dict[str, Tensor]:
    """Of the joint loss, for every parameter."""
    device = _place(model)
    ids = random_ids(model.config).to(device)
    out = model(ids, labels=ids, next_sentence_label=torch.arange(ROWS, device=device) % 2)
    assert out.loss is not None
    model.zero_grad()
    out.loss.backward()
    return {
        f"gradient of {name}": parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
