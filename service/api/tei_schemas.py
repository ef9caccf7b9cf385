"""What requests of the routes of Text Embeddings Inference (TEI) look like. Unknown fields are ignored there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from service.api.input_forms import Texts, TextsOrTokenIds, TokenIdLists
from service.api.schemas import LENIENT, TaskRequest, TruncationDirection, as_list, at_most, truncation_side
from service.errors import EmptyInput
from service.settings import Settings
from service.tasks import Decode, Embed, EmbedAll, EmbedSparse, Pooling, Tokenize, TruncationSide


class EmbeddingRequest(TaskRequest):
    """What all embedding routes take, in the form of Text Embeddings Inference (TEI).

    Unknown fields are ignored.
    """

    model_config = LENIENT

    inputs: TextsOrTokenIds = Field(description="A text, a whole sequence of token ids, or a list of those.")
    truncate: bool | None = Field(
        None,
        description="Cut texts over the limit; false refuses them. Default: `auto_truncate` of `/info`.",
    )
    truncation_direction: TruncationDirection | None = Field(None, description="The end that is cut. Default: right.")
    prompt_name: str | None = Field(
        None,
        description="The checkpoint's prompt (config_sentence_transformers.json) to put before each text; not for "
        "token ids. Default: its default prompt, if it has one.",
    )

    def texts(self, settings: Settings) -> Sequence[str | tuple[int, ...]]:
        """The texts. InvalidInput if there are too many."""
        return at_most(as_list(self.inputs), settings.max_client_batch_size, place="inputs")

    def side(self, settings: Settings) -> TruncationSide | None:
        """The end at which a text is cut; None refuses it."""
        return truncation_side(self.truncate, self.truncation_direction, default=settings.auto_truncate)


class EmbedRequest(EmbeddingRequest):
    """The form of Text Embeddings Inference (TEI), with `dimensions`, `pooling` and `encoding_format` besides.

    Unknown fields are ignored.
    """

    normalize: bool | None = Field(None, description="Scale vectors to length 1. Default: true.")
    dimensions: int | None = Field(
        None, ge=1, description="Keep so many leading components, before scaling. Default: all."
    )
    pooling: Pooling | None = Field(
        None,
        description="How token vectors become one: pooler output, last hidden state of [CLS], mean or maximum. "
        "Default: `pooling` of `/info`.",
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description="Lists of numbers, or little-endian float32 in base64. Default: float."
    )

    def tasks(self, settings: Settings) -> list[Embed]:
        """One task per text.

        Raises:
            InvalidInput: too many texts.
        """
        return [
            Embed(
                text=text,
                pooling=self.pooling,
                normalize=self.normalize is not False,
                dimensions=self.dimensions,
                prompt_name=self.prompt_name,
                truncate=self.side(settings),
            )
            for text in self.texts(settings)
        ]


class EmbedAllRequest(EmbeddingRequest):
    """A vector for each token. Unknown fields are ignored."""

    def tasks(self, settings: Settings) -> list[EmbedAll]:
        """One task per text.

        Raises:
            InvalidInput: too many texts.
        """
        side = self.side(settings)
        return [EmbedAll(text=text, prompt_name=self.prompt_name, truncate=side) for text in self.texts(settings)]


class EmbedSparseRequest(EmbeddingRequest):
    """A weight for each piece of the vocabulary. Unknown fields are ignored."""

    def tasks(self, settings: Settings) -> list[EmbedSparse]:
        """One task per text.

        Raises:
            InvalidInput: too many texts.
        """
        side = self.side(settings)
        return [EmbedSparse(text=text, prompt_name=self.prompt_name, truncate=side) for text in self.texts(settings)]


class SimilarityInputs(BaseModel):
    """What to compare."""

    model_config = LENIENT

    source_sentence: str = Field(description="The text that the others are compared with.")
    sentences: list[str] = Field(fail_fast=True, description="The others.")


class SimilarityParameters(BaseModel):
    """How to embed the texts."""

    model_config = LENIENT

    truncate: bool | None = Field(None, description="Cut texts over the limit. Default: `auto_truncate` of `/info`.")
    truncation_direction: TruncationDirection | None = Field(None, description="The end that is cut. Default: right.")
    prompt_name: str | None = Field(
        None, description="The checkpoint's prompt to put before each text. Default: its default prompt, if any."
    )


class SimilarityRequest(TaskRequest):
    """One text and others to compare it with. Unknown fields are ignored."""

    model_config = LENIENT

    inputs: SimilarityInputs = Field(description="The texts.")
    parameters: SimilarityParameters | None = Field(None, description="How to embed them.")

    @property
    def list_place(self) -> str | None:
        return "inputs"

    def place(self, index: int) -> str | None:
        return f"inputs.sentences[{index - 1}]" if index else "inputs.source_sentence"

    def tasks(self, settings: Settings) -> list[Embed]:
        """The vectors to compare: that of the source sentence first.

        Raises:
            EmptyInput: no sentences.
            InvalidInput: too many.
        """
        if not self.inputs.sentences:
            raise EmptyInput("must hold at least one text", field="inputs.sentences")
        texts = [self.inputs.source_sentence, *self.inputs.sentences]
        at_most(texts, settings.max_client_batch_size, place="inputs")
        parameters = self.parameters or SimilarityParameters.model_construct()
        side = truncation_side(parameters.truncate, parameters.truncation_direction, default=settings.auto_truncate)
        return [Embed(text=text, prompt_name=parameters.prompt_name, truncate=side) for text in texts]


class TokenizeRequest(TaskRequest):
    """Texts to split into tokens; none is cut. Unknown fields are ignored."""

    model_config = LENIENT

    inputs: Texts = Field(description="One text or a list; each may be empty, and have up to 100,000 tokens.")
    add_special_tokens: bool | None = Field(None, description="Put [CLS] and [SEP] around each. Default: true.")
    prompt_name: str | None = Field(
        None, description="The checkpoint's prompt to put before each text. Default: its default prompt, if any."
    )

    def tasks(self, settings: Settings) -> list[Tokenize]:
        """One task per text.

        Raises:
            InvalidInput: too many texts.
        """
        special = self.add_special_tokens is not False
        return [
            Tokenize(text=text, add_special_tokens=special, prompt_name=self.prompt_name)
            for text in at_most(as_list(self.inputs), settings.max_client_batch_size, place="inputs")
        ]


class DecodeRequest(TaskRequest):
    """Token ids to turn into text. Unknown fields are ignored."""

    model_config = LENIENT

    inputs: TokenIdLists = Field(alias="ids", description="Token ids of this model, or a list of lists of them.")
    skip_special_tokens: bool | None = Field(None, description="Leave [CLS], [SEP] and so on out. Default: true.")

    @property
    def list_place(self) -> str | None:
        return "ids" if isinstance(self.inputs, list) else None

    def place(self, index: int) -> str | None:
        return super().place(index) or "ids"

    def tasks(self, settings: Settings) -> list[Decode]:
        """One task per list of ids.

        Raises:
            InvalidInput: too many lists.
        """
        skip = self.skip_special_tokens is not False
        return [
            Decode(ids=ids, skip_special_tokens=skip)
            for ids in at_most(as_list(self.inputs), settings.max_client_batch_size, place="ids")
        ]
