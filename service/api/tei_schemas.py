"""What requests of the other routes of Text Embeddings Inference (TEI) look like. Unknown fields are ignored there."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from service.api.input_forms import Texts, TokenIdLists
from service.api.schemas import EmbeddingRequest, TaskRequest, TruncationDirection, as_list, at_most, truncation_side
from service.errors import EmptyInput
from service.settings import Settings
from service.tasks import Decode, Embed, EmbedAll, EmbedSparse, Tokenize

TEI_CONFIG = ConfigDict(strict=True, extra="ignore", frozen=True)


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

    model_config = TEI_CONFIG

    source_sentence: str = Field(description="The text that the others are compared with.")
    sentences: list[str] = Field(description="The others.")


class SimilarityParameters(BaseModel):
    """How to embed the texts."""

    model_config = TEI_CONFIG

    truncate: bool | None = Field(None, description="Cut texts over the limit. Default: `auto_truncate` of `/info`.")
    truncation_direction: TruncationDirection | None = Field(None, description="The end that is cut. Default: right.")
    prompt_name: str | None = Field(
        None, description="The checkpoint's prompt to put before each text. Default: its default prompt, if any."
    )


class SimilarityRequest(TaskRequest):
    """One text and others to compare it with. Unknown fields are ignored."""

    model_config = TEI_CONFIG

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

    model_config = TEI_CONFIG

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

    model_config = TEI_CONFIG

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
