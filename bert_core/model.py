"""BertModel and BertForPreTraining.

Axes: B rows and L columns of a padded call, T packed tokens, R wanted rows, N sequences, M gathered rows, D hidden,
H heads, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from bert_core.attention import AttentionKernel, SelfAttention
from bert_core.attention_options import AttentionOptions
from bert_core.config import BertConfig
from bert_core.embeddings import Embeddings, SinusoidalPositions
from bert_core.encoder import Encoder, EncoderOutput
from bert_core.heads import Heads, MaskedLMHead, NextSentenceHead, Pooler
from bert_core.initialization import initialize
from bert_core.inputs import PaddedBatch, complete_head_mask, prepare
from bert_core.layer_norm import LayerNorm
from bert_core.linear import Linear
from bert_core.losses import labels_of, next_sentence_loss, prediction_loss, wanted_predictions
from bert_core.onednn_product import can_prepack
from bert_core.packing import PackedTokens, WantedRows
from bert_core.pruning import prune_attention, pruned_config
from bert_core.summary import count_parameters, describe, is_prepacked


@dataclass(frozen=True, kw_only=True, eq=False)
class BertOutput:
    """Of a padded call; everything is zero at padding.

    last_hidden_state: `[B, L, D]`.
    pooler_output: `[B, D]`, None without a pooler.
    hidden_states: `[B, L, D]` of the embeddings and of every layer, None unless asked for.
    attentions: `[B, H, L, L]` of every layer, None unless asked for.
    """

    last_hidden_state: Tensor
    pooler_output: Tensor | None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class PreTrainingOutput:
    """Of a padded call.

    prediction_logits: `[B, L, V]`, zero at padding; `[M, V]` with a `prediction_mask`; None without an MLM head.
    seq_relationship_logits: `[B, 2]`, index 0 is "is next"; None without an NSP head.
    loss: the sum of the losses whose labels were given, a scalar; None without labels.
    hidden_states, attentions: as in `BertOutput`.
    """

    prediction_logits: Tensor | None
    seq_relationship_logits: Tensor | None
    loss: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class BertModel(nn.Module):
    """The encoder of BERT, with pooler (Devlin et al. 2018).

    Padded batches go in by calling it, packed ones by `encode`; inside all is packed.
    """

    def __init__(self, config: BertConfig, *, add_pooling_layer: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)
        self.pooler = Pooler(config) if add_pooling_layer else None
        initialize(self, config=config)

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters."""
        return self.embeddings.norm.weight.dtype

    def encode(self, packed: PackedTokens, *, wanted: WantedRows | None = None) -> Tensor:
        """Last hidden states of packed tokens, `[T, D]`; with `wanted`, of those rows only, `[R, D]`.

        Nothing is checked here: ids, segments and positions must be in range.
        """
        encoded: EncoderOutput = self.encoder(self.embeddings(packed), packed, wanted=wanted)
        return encoded.hidden_RD

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        head_mask: Tensor | None = None,
        position_offset: int = 0,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> BertOutput:
        """Encode a padded batch.

        Args:
            input_ids: integers `[B, L]`; or `inputs_embeds`, `[B, L, D]` in a dtype that fits into the model's, never
                both.
            attention_mask: 1 or true is attend. `[B, L]` drops tokens anywhere, the others keep their positions;
                `[B, L, L]` says for each token which ones it sees. Missing, ids equal to `pad_token_id` are padding
                (`transformers` takes them for text), and with `inputs_embeds` nothing is.
            token_type_ids: segments, integers `[B, L]`; zeros if missing.
            position_ids: integers `[B, L]`, `[1, L]` or `[L]`; 0, 1, … plus `position_offset` if missing.
            head_mask: finite factors for the attention probabilities, `[H]` or `[layers, H]`, original heads counted.
            output_hidden_states, output_attentions: give these back too.

        Raises:
            ValueError: names the argument, its fault and what is allowed.
        """
        batch = prepare(
            self.config,
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            position_offset=position_offset,
            dtype=self.dtype,
        )
        return self._run(batch, head_mask=head_mask, states=output_hidden_states, weights=output_attentions)[0]

    def _run(
        self, batch: PaddedBatch, *, head_mask: Tensor | None, states: bool, weights: bool
    ) -> tuple[BertOutput, Tensor]:
        """The padded answer, and the packed last hidden states `[T, D]` for heads that go on from there."""
        encoded = self.encoder(
            self.embeddings(batch.packed),
            batch.packed,
            head_masks=complete_head_mask(self.config, head_mask, dtype=self.dtype),
            options=AttentionOptions(pair_mask_NLL=batch.pair_mask_BLL, weights=weights),
            keep_hidden_states=states,
        )
        hidden_TD = encoded.hidden_RD
        output = BertOutput(
            last_hidden_state=batch.unpack(hidden_TD),
            pooler_output=None if self.pooler is None else self.pooler.pool(hidden_TD, batch.packed),
            hidden_states=tuple(batch.unpack(state_TD) for state_TD in encoded.hidden_states) if states else None,
            attentions=tuple(map(batch.unpack_weights, encoded.attention_weights)) if weights else None,
        )
        return output, hidden_TD

    def prune_heads(self, heads: Mapping[int, Iterable[int]]) -> None:
        """Remove attention heads for good: layer number to original head numbers. Doing it twice changes nothing.

        Raises:
            ValueError: a layer or head that does not exist, a layer's last head, `use_torch_multi_head`, or a prepacked
                model.
        """
        if is_prepacked(self):
            raise ValueError("prune_heads: the model is prepacked, so its weights are for inference alone")
        self.config = pruned_config(self.config, heads)
        for number, attention in enumerate(self.attentions()):
            prune_attention(attention, kept_heads=self.config.kept_heads(number))

    def attentions(self) -> list[SelfAttention]:
        """The attention of every layer, first to last."""
        return [module for module in self.encoder.modules() if isinstance(module, SelfAttention)]

    def attention_kernel(self) -> AttentionKernel:
        """What attends where nothing but the result is asked for."""
        return next(
            (one.kernel(self.dtype, device=self.embeddings.norm.weight.device) for one in self.attentions()), "sdpa"
        )

    def drop_reference_attention(self) -> None:
        """Attend by our own path, whatever `use_torch_multi_head` says; results are equal."""
        self.config = replace(self.config, use_torch_multi_head=False)
        for attention in self.attentions():
            attention.reference = None

    def reset_buffers(self, *, device: torch.device, dtype: torch.dtype) -> None:
        """Make what is computed and not stored, after the model was built on the meta device."""
        if isinstance(self.embeddings.position, SinusoidalPositions):
            self.embeddings.position.reset_buffer(device=device, dtype=dtype)

    def num_parameters(self) -> int:
        """How many numbers are learned; a shared matrix counts once."""
        return count_parameters(self)

    def __repr__(self) -> str:
        return describe(self, config=self.config, heads=("pooler",) if self.pooler else ())


class BertForPreTraining(nn.Module):
    """BERT with the heads of its two pre-training tasks: masked LM and next sentence.

    Args:
        config: the shape.
        heads: which heads to make; what is left out does not exist, it is not at random.
    """

    def __init__(self, config: BertConfig, *, heads: Heads | None = None) -> None:
        super().__init__()
        self.heads = heads or Heads()
        self.bert = BertModel(config, add_pooling_layer=self.heads.pooler)
        self.mlm = MaskedLMHead(config) if self.heads.mlm else None
        self.nsp = NextSentenceHead(config) if self.heads.nsp else None
        for head in (self.mlm, self.nsp):
            if head is not None:
                initialize(head, config=config)
        self.tie_weights()

    @property
    def config(self) -> BertConfig:
        """The shape."""
        return self.bert.config

    def tie_weights(self) -> None:
        """Make the MLM decoder's weight the word embeddings', if the config says so."""
        if self.mlm is not None and self.config.tie_word_embeddings:
            self.mlm.decoder.weight = self.bert.embeddings.token.weight

    def reset_buffers(self, *, device: torch.device, dtype: torch.dtype) -> None:
        """As `BertModel.reset_buffers`."""
        self.bert.reset_buffers(device=device, dtype=dtype)

    def prune_heads(self, heads: Mapping[int, Iterable[int]]) -> None:
        """As `BertModel.prune_heads`."""
        self.bert.prune_heads(heads)

    def prepack(self) -> None:
        """Lay the weights of all layers out for inference on this CPU; for good, and once.

        The model can no longer be trained, pruned, copied or saved, and takes no other weights. Where oneDNN cannot do
        it (`can_prepack`), nothing changes.
        """
        if not can_prepack(self.bert.embeddings.token.weight):
            return
        if attentions := self.bert.attentions():
            attentions[-1].split_query()
        if self.mlm is not None:
            self.mlm.prepack()
        for module in self.modules():
            if isinstance(module, Linear | LayerNorm):
                module.prepack()
        self.bert.encoder.prepack()

    def num_parameters(self) -> int:
        """How many numbers are learned; a shared matrix counts once."""
        return count_parameters(self)

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        head_mask: Tensor | None = None,
        position_offset: int = 0,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        prediction_mask: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
    ) -> PreTrainingOutput:
        """Run both heads on a padded batch. The arguments that are not here are `BertModel.forward`'s.

        Args:
            prediction_mask: bool `[B, L]`, the only tokens whose MLM logits are wanted; all of them must be kept ones.
            labels: integers `[B, L]`, the ids to predict; -100 is ignored.
            next_sentence_label: integers `[B]`, 0 is "is next", 1 is not; none is ignored.

        Raises:
            ValueError: names the argument, its fault and what is allowed; or labels for a head that is missing.
        """
        batch = prepare(
            self.config,
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            position_offset=position_offset,
            dtype=self.bert.dtype,
        )
        output, hidden_TD = self.bert._run(
            batch, head_mask=head_mask, states=output_hidden_states, weights=output_attentions
        )
        wanted_T = wanted_predictions(batch, prediction_mask)
        losses = []
        logits_MV = None
        if self.mlm is not None:
            logits_MV = self.mlm(hidden_TD if wanted_T is None else hidden_TD[wanted_T])
        if labels is not None:
            losses.append(prediction_loss(logits_MV, labels=labels_of(batch, labels, wanted_T=wanted_T)))
        relationship_B2 = None
        if self.nsp is not None:
            assert output.pooler_output is not None
            relationship_B2 = self.nsp(output.pooler_output)
        if next_sentence_label is not None:
            losses.append(next_sentence_loss(relationship_B2, labels_B=next_sentence_label))
        return PreTrainingOutput(
            prediction_logits=batch.unpack(logits_MV) if logits_MV is not None and wanted_T is None else logits_MV,
            seq_relationship_logits=relationship_B2,
            loss=sum(losses[1:], losses[0]) if losses else None,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )

    def __repr__(self) -> str:
        return describe(self, config=self.config, heads=self.heads.present)
