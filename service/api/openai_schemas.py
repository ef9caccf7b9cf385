"""What OpenAI's requests look like, the tasks that they ask for, and, for the documentation, the answers.

https://platform.openai.com/docs/api-reference/embeddings
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from service.api.input_forms import TextsOrTokenIds
from service.api.schemas import LENIENT, TaskRequest
from service.api.tei_schemas import EmbedRequest
from service.settings import Settings
from service.tasks import Task


class EmbeddingsRequest(TaskRequest):
    """Unknown fields are ignored, `user` among them: clients send those of other servers along."""

    model_config = LENIENT

    inputs: TextsOrTokenIds = Field(
        validation_alias="input",
        description="A text, or a list of texts. Token ids are taken too, but they must be whole sequences of this "
        "model, from [CLS] to [SEP].",
    )
    model: str | None = Field(
        None, description="Any name, or none: one model is served, and the answer tells which (`/v1/models`)."
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description="Lists of numbers, or little-endian float32 in base64. Default: float."
    )
    dimensions: int | None = Field(
        None, ge=1, description="Keep so many leading components, before scaling to length 1. Default: all."
    )

    def tasks(self, settings: Settings) -> Sequence[Task]:
        """Those of `/embed` with its defaults.

        Raises:
            InvalidInput: too many texts.
        """
        return EmbedRequest.model_construct(inputs=self.inputs, dimensions=self.dimensions).tasks(settings)


class EmbeddingAnswer(BaseModel):
    """The embedding of one text."""

    object: Literal["embedding"] = Field(description="What this is.")
    index: int = Field(description="Its place in the request's `input`, from 0.")
    embedding: list[float] | str = Field(description="Of length 1; as `encoding_format` says.")


class EmbeddingsUsageAnswer(BaseModel):
    """What the request cost."""

    prompt_tokens: int = Field(description="Tokens of all texts after cutting, [CLS] and [SEP] counted.")
    total_tokens: int = Field(description="The same: nothing is generated.")


class EmbeddingsAnswer(BaseModel):
    """One embedding per text, also for one text."""

    object: Literal["list"] = Field(description="What this is.")
    data: list[EmbeddingAnswer] = Field(description="In the order of the request.")
    model: str = Field(description="The model that is served.")
    usage: EmbeddingsUsageAnswer = Field(description="The cost of all texts together.")


class ModelAnswer(BaseModel):
    """A model that is served."""

    id: str = Field(description="Its name: `model_id` of `/info`.")
    object: Literal["model"] = Field(description="What this is.")
    created: int = Field(description="When the service was started, in seconds since 1970.")
    owned_by: str = Field(description="Always bert-service.")


class ModelsAnswer(BaseModel):
    """All models that are served: one."""

    object: Literal["list"] = Field(description="What this is.")
    data: list[ModelAnswer] = Field(description="One model.")


class OpenAIErrorDetail(BaseModel):
    """A failure, for people and for programs."""

    message: str = Field(
        description="The field at fault, what is wrong, what is allowed; never the text that was sent."
    )
    type: Literal["invalid_request_error", "authentication_error", "rate_limit_error", "server_error"] = Field(
        description="The kind of failure, for programs."
    )
    param: str | None = Field(description="The field at fault, such as `input[3]`; null if it is none.")
    code: str | None = Field(description="invalid_api_key, rate_limit_exceeded, model_not_found or null.")


class OpenAIErrorAnswer(BaseModel):
    """Every failure of these routes has this body."""

    error: OpenAIErrorDetail = Field(description="What went wrong.")
