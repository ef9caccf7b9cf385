"""The arguments of a padded call: checked, completed with their defaults, and packed.

Axes: B rows, L columns, D hidden, T packed tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bert_core.checkpoint_files import shown_value
from bert_core.config import BertConfig
from bert_core.packing import PackedTokens, pack, unpack

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True, kw_only=True, eq=False)
class PaddedBatch:
    """A padded call, packed, and the way back.

    places_T: int64 `[T]`, where the packed tokens stand in the flattened `[B * L]` batch.
    pair_mask_BLL: bool, if the call gave a mask for each pair of tokens.
    """

    packed: PackedTokens
    places_T: Tensor
    shape: tuple[int, int]
    pair_mask_BLL: Tensor | None

    def unpack(self, values_T: Tensor) -> Tensor:
        """`[T, …]` to `[B, L, …]`, zeros at padding."""
        return unpack(values_T, places_T=self.places_T, shape=self.shape)

    def unpack_weights(self, run_weights: list[Tensor]) -> Tensor:
        """Attention weights `[N, H, L', L']` of each run to `[B, H, L, L]`, zeros at padding."""
        rows, columns = self.shape
        heads = run_weights[0].shape[1]
        padded_BLLH = run_weights[0].new_zeros(rows, columns, columns, heads)
        for run, weights_NHLL in zip(self.packed.runs, run_weights, strict=True):
            places_NL = self.places_T[run.tokens].view(run.count, run.length) % columns
            sequence_N11 = torch.arange(rows, device=places_NL.device)[run.sequences, None, None]
            padded_BLLH[sequence_N11, places_NL[:, :, None], places_NL[:, None, :]] = weights_NHLL.permute(0, 2, 3, 1)
        return padded_BLLH.permute(0, 3, 1, 2)


def prepare(
    config: BertConfig,
    input_ids: Tensor | None,
    *,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    position_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    position_offset: int,
    dtype: torch.dtype,
) -> PaddedBatch:
    """Check a padded call to a model of this dtype, fill in its defaults, and pack it.

    Raises:
        ValueError: names the argument, its fault and what is allowed.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("input_ids, inputs_embeds: give exactly one of the two")
    given = input_ids if inputs_embeds is None else inputs_embeds
    assert given is not None
    if type(position_offset) is not int:
        raise ValueError(f"position_offset: {shown_value(position_offset)} is not an integer")
    shape = _shape(config, input_ids, inputs_embeds=inputs_embeds, dtype=dtype)
    if input_ids is not None:
        input_ids = _checked_ids("input_ids", input_ids, shape=shape, limit=config.vocab_size)
    if token_type_ids is None:
        token_type_ids = torch.zeros(shape, dtype=torch.long, device=given.device)
    token_type_ids = _checked_ids("token_type_ids", token_type_ids, shape=shape, limit=config.type_vocab_size)
    if position_ids is None:
        end = position_offset + shape[1]
        if position_offset < 0 or end > config.max_position_embeddings:
            raise ValueError(
                f"input_ids, inputs_embeds: {shape[1]} columns from position_offset {position_offset} on do not lie "
                f"between 0 and max_position_embeddings, {config.max_position_embeddings}"
            )
        position_ids = torch.arange(position_offset, end, device=given.device).expand(shape)
    elif position_offset:
        raise ValueError("position_ids, position_offset: give at most one of the two")
    elif require_tensor("position_ids", position_ids).shape in ((1, shape[1]), shape[1:]):
        position_ids = position_ids.expand(shape)
    position_ids = _checked_ids("position_ids", position_ids, shape=shape, limit=config.max_position_embeddings)
    keep_BL, pair_mask_BLL = _masks(config, attention_mask, input_ids, given=given, shape=shape)
    packed, places_T = pack(
        input_ids,
        inputs_embeds=inputs_embeds,
        token_type_ids=token_type_ids,
        position_ids=position_ids,
        keep_BL=keep_BL,
    )
    return PaddedBatch(packed=packed, places_T=places_T, shape=shape, pair_mask_BLL=pair_mask_BLL)


def require_tensor(name: str, value: object) -> Tensor:
    """The value, if it is a dense tensor; else ValueError."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{name}: a {type(value).__name__} is not a torch.Tensor")
    if value.layout != torch.strided:
        raise ValueError(f"{name}: {value.layout} is not a dense layout, torch.strided")
    return value


def require_integers(name: str, values: Tensor) -> None:
    """ValueError if these are no integers with which PyTorch can compute."""
    if values.dtype not in _INTEGERS:
        raise ValueError(f"{name}: {values.dtype} is not an integer type, {', '.join(map(str, _INTEGERS))}")


def complete_head_mask(config: BertConfig, head_mask: Tensor | None, *, dtype: torch.dtype) -> Tensor | None:
    """Factors `[layers, H]` in this dtype from those of one layer or of all; ValueError if they cannot be that."""
    if head_mask is None:
        return None
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    if require_tensor("head_mask", head_mask).shape not in ((heads,), (layers, heads)):
        raise ValueError(f"head_mask: {_dims(head_mask)} is not [{heads}] or [{layers}, {heads}]")
    if head_mask.is_complex() or not head_mask.isfinite().all():
        raise ValueError("head_mask: values must be real and finite")
    return head_mask.to(dtype).expand(layers, heads)


def _shape(
    config: BertConfig, input_ids: Tensor | None, *, inputs_embeds: Tensor | None, dtype: torch.dtype
) -> tuple[int, int]:
    if inputs_embeds is not None:
        if require_tensor("inputs_embeds", inputs_embeds).dim() != 3 or inputs_embeds.shape[2] != config.hidden_size:
            raise ValueError(f"inputs_embeds: {_dims(inputs_embeds)} is not [B, L, {config.hidden_size}]")
        if not inputs_embeds.is_floating_point():
            raise ValueError(f"inputs_embeds: {inputs_embeds.dtype} is not a floating-point type")
        if torch.promote_types(inputs_embeds.dtype, dtype) != dtype:
            raise ValueError(f"inputs_embeds: {inputs_embeds.dtype} does not fit into the model's dtype, {dtype}")
        rows, columns = inputs_embeds.shape[:2]
    else:
        ids = require_tensor("input_ids", input_ids)
        if ids.dim() != 2:
            raise ValueError(f"input_ids: {_dims(ids)} is not [B, L]")
        rows, columns = ids.shape
    if not rows or not columns:
        raise ValueError(f"input_ids, inputs_embeds: a batch of {rows} rows and {columns} columns is empty")
    return rows, columns


def _dims(tensor: Tensor) -> str:
    return str(list(tensor.shape))


def _checked_ids(name: str, ids: Tensor, *, shape: tuple[int, int], limit: int) -> Tensor:
    """The ids as int64, whatever integer type they come in."""
    if require_tensor(name, ids).shape != shape:
        raise ValueError(f"{name}: {_dims(ids)} is not {list(shape)}")
    require_integers(name, ids)
    lowest, highest = (int(bound) for bound in ids.aminmax())
    if lowest < 0 or highest >= limit:
        raise ValueError(f"{name}: {lowest if lowest < 0 else highest} is not from 0 to {limit - 1}")
    return ids.long()


def _masks(
    config: BertConfig,
    attention_mask: Tensor | None,
    input_ids: Tensor | None,
    *,
    given: Tensor,
    shape: tuple[int, int],
) -> tuple[Tensor, Tensor | None]:
    """Which tokens to keep, `[B, L]`, and which query sees which key, `[B, L, L]`, if the call says so."""
    everything_BL = torch.ones(shape, dtype=torch.bool, device=given.device)
    if attention_mask is None:
        if input_ids is None or config.pad_token_id is None:
            return everything_BL, None
        keep_BL = input_ids != config.pad_token_id
        if not keep_BL.any(1).all():
            raise ValueError("input_ids: a row holds only padding; give an attention_mask that keeps a token of it")
        return keep_BL, None
    if require_tensor("attention_mask", attention_mask).shape not in (shape, (*shape, shape[1])):
        raise ValueError(f"attention_mask: {_dims(attention_mask)} is not {list(shape)} or {[*shape, shape[1]]}")
    keep = attention_mask.bool()
    if not ((attention_mask == 0) | (attention_mask == 1)).all():
        raise ValueError("attention_mask: values must be 0 or false (ignore) or 1 or true (attend)")
    if not keep.any(-1).all():
        raise ValueError("attention_mask: every row must keep at least one token to attend to")
    return (keep, None) if keep.dim() == 2 else (everything_BL, keep)
