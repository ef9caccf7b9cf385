"""The shapes of answers, for the documentation alone: answers are written without being checked again."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, RootModel


class ErrorAnswer(BaseModel):
    """Every failure has this body."""

    error: str = Field(description="The field at fault, what is wrong, what is allowed; never the text that was sent.")
    error_type: str = Field(description="The kind of failure, for programs; one per status.")


class PredictionAnswer(BaseModel):
    """One candidate for one mask."""

    score: float = Field(
        description="Probability among the whole vocabulary; of a target of several pieces, the geometric mean of "
        "its pieces' probabilities, which is not comparable to a single piece's."
    )
    token: int | None = Field(description="Id in the vocabulary; null for a target of several pieces.")
    token_str: str = Field(description="The candidate as text.")
    sequence: str = Field(description="The text that was sent, with the candidate in this mask's place.")
    tokens: list[int] | None = Field(None, description="The ids of a target of several pieces; absent otherwise.")


class MaskAnswer(BaseModel):
    """The predictions for one mask."""

    position: int = Field(
        description="Index of the mask among the tokens of the pass: [CLS] is 0, and of a text that was cut only "
        "what is left counts."
    )
    predictions: list[PredictionAnswer] = Field(description="Best first.")


class DetailedItemAnswer(BaseModel):
    """The answer for one text."""

    masks: list[MaskAnswer] = Field(description="In the order of the text.")
    tokens: int = Field(description="Tokens of the text as it was passed through the model, [CLS] and [SEP] counted.")
    truncated: bool = Field(description="Whether the text was cut to the model's limit.")


class UsageAnswer(BaseModel):
    """What the request cost."""

    prompt_tokens: int = Field(description="The tokens of all texts that were answered.")


class JointPredictionAnswer(BaseModel):
    """One way to fill all masks of a text."""

    score: float = Field(
        description="The probability of the first piece that was chosen, times that of the second given the first, and "
        "so on; of one mask the same as without the joint strategy."
    )
    tokens: list[int] = Field(description="The pieces' ids, in the order of the text.")
    token_strs: list[str] = Field(description="The pieces.")
    sequence: str = Field(description="The text that was sent, with all masks filled.")


class DetailedJointAnswer(BaseModel):
    """The answer for one text with the joint strategy."""

    sequences: list[JointPredictionAnswer] = Field(description="Best first.")
    tokens: int = Field(description="Tokens of the text as it was passed through the model, [CLS] and [SEP] counted.")
    truncated: bool = Field(description="Whether the text was cut to the model's limit.")


class DetailedAnswer(BaseModel):
    """With `details: true`: one result or error per text."""

    results: list[DetailedItemAnswer | DetailedJointAnswer | ErrorAnswer] = Field(
        description="In the order of the request."
    )
    usage: UsageAnswer = Field(description="The cost of all texts together.")


class FillMaskAnswer(
    RootModel[
        list[PredictionAnswer]
        | list[list[PredictionAnswer]]
        | list[list[list[PredictionAnswer]]]
        | list[JointPredictionAnswer]
        | list[list[JointPredictionAnswer]]
        | DetailedAnswer
    ]
):
    """Predictions for one mask; a list of those for several masks; a list of either for a list of texts.

    With the joint strategy filled texts, best first; a list of those for a list of texts.
    """


class PairAnswer(BaseModel):
    """The answer for one pair; both probabilities add up to 1."""

    is_next: float = Field(description="Probability that the second text follows the first.")
    not_next: float = Field(description="Probability that it does not.")
    label: Literal["is_next", "not_next"] = Field(description="The more probable of the two.")
    logits: tuple[float, float] = Field(description='The model\'s two outputs; index 0 is "is next".')
    truncated: bool = Field(description="Whether the pair was cut to the model's limit.")


class CandidateAnswer(BaseModel):
    """One candidate in the ranking."""

    index: int = Field(description="Its place in the request's `candidates`, from 0.")
    text: str = Field(description="The candidate, as it was sent.")
    is_next: float = Field(description="Probability that it follows the text.")
    truncated: bool = Field(description="Whether the pair was cut to the model's limit.")


class NextSentenceAnswer(RootModel[PairAnswer | list[PairAnswer] | list[CandidateAnswer]]):
    """One object for one pair, a list for a list; candidates best first."""


class EmbedAnswer(RootModel[list[list[float]] | list[str]]):
    """One vector per text, also for one text; with `encoding_format: base64` its little-endian float32 bytes."""


class EmbedAllAnswer(RootModel[list[list[list[float]]]]):
    """For each text, also for one, a vector per token: [CLS] first, [SEP] last."""


class SparseValueAnswer(BaseModel):
    """The weight of one piece of the vocabulary."""

    index: int = Field(description="The piece's id.")
    value: float = Field(description="Its weight, above 0.")


class EmbedSparseAnswer(RootModel[list[list[SparseValueAnswer]]]):
    """For each text, also for one, the weights that are not zero, by ascending id."""


class SimilarityAnswer(RootModel[list[float]]):
    """The cosine of the source sentence with each of the others, in their order."""


class TokenAnswer(BaseModel):
    """One token."""

    id: int = Field(description="Id in the vocabulary.")
    text: str = Field(description="The characters that it stands for, as they were sent; [CLS] or [SEP].")
    special: bool = Field(description="Whether it was put around the text.")
    start: int | None = Field(
        description="Its first character in the text, the prompt counted if there is one; null for special tokens."
    )
    stop: int | None = Field(description="Where it ends; null for special tokens.")


class TokenizeAnswer(RootModel[list[list[TokenAnswer]]]):
    """The tokens of each text, also of one."""


class DecodeAnswer(RootModel[list[str]]):
    """A text for each list of ids, also for one."""


class HealthAnswer(BaseModel):
    """The state of the service."""

    status: Literal["alive", "ready"] = Field(description="alive: the process answers; ready: so does the model.")


class CapabilitiesAnswer(BaseModel):
    """Which tasks the checkpoint can do."""

    fill_mask: bool = Field(description="Whether `/fill-mask` works: the checkpoint holds an MLM head.")
    next_sentence: bool = Field(description="Whether `/next-sentence` works: the checkpoint holds an NSP head.")
    embed: bool = Field(description="Whether `/embed` and `/similarity` work.")
    embed_all: bool = Field(description="Whether `/embed_all` works.")
    embed_sparse: bool = Field(description="Whether `/embed_sparse` works: the checkpoint holds an MLM head.")
    tokenize: bool = Field(description="Whether `/tokenize` and `/decode` work.")


class InfoAnswer(BaseModel):
    """The model, the limits and the versions: the fields of Text Embeddings Inference (TEI), then ours."""

    model_id: str = Field(description="Name of the model: `served_model_name`, else the folder of the checkpoint.")
    model_sha: str | None = Field(description="The same as `revision`, under TEI's name.")
    model_dtype: str = Field(description="The same as `dtype`, under TEI's name.")
    model_type: dict[str, dict[str, str]] = Field(description="The default pooling of embeddings, in TEI's form.")
    max_concurrent_requests: int = Field(description="Most texts and pairs accepted and not yet answered.")
    max_input_length: int = Field(description="Longest sequence of the model, in tokens, [CLS] and [SEP] counted.")
    max_batch_tokens: int = Field(description="Most tokens in the passes that run at one time.")
    max_batch_requests: int | None = Field(description="null: the number of texts in one pass has no limit.")
    max_client_batch_size: int = Field(description="Most inputs in one request.")
    auto_truncate: bool = Field(description="Whether over-long texts of embedding requests that don't say are cut.")
    tokenization_workers: int = Field(description="Threads that tokenize.")
    version: str = Field(description="Version of this service.")
    sha: str | None = Field(description="null: not known; TEI's field for the commit of the service.")
    docker_label: str | None = Field(description="null: not known; TEI's field for the label of the image.")
    capabilities: CapabilitiesAnswer = Field(description="Task to whether the checkpoint can do it.")
    heads_missing: list[Literal["pooler", "mlm", "nsp"]] = Field(description="Heads that the checkpoint lacks.")
    device: str = Field(description="Where the model runs, such as cpu or cuda:0.")
    dtype: str = Field(description="Number format of the computation.")
    pooling: str = Field(description="Default pooling of embeddings.")
    revision: str | None = Field(description="Version of the checkpoint, as set at start.")
    max_embed_length: int = Field(description="Longest sequence for embeddings, in tokens; often below the model's.")
    max_top_k: int = Field(description="Most predictions per mask, and most targets.")
    hidden_size: int = Field(description="Numbers in a full embedding.")
    vocab_size: int = Field(description="Pieces in the vocabulary.")
    parameters: int = Field(description="Parameters of the model.")
    mask_token: str = Field(description="How a mask is written in a text.")
    attention: Literal["varlen", "tiles", "sdpa"] = Field(
        description="Kernel of attention: PyTorch's for a GPU, ours for a CPU's matrix tiles (AMX), PyTorch's for any."
    )
    least_embedding_cosine: float = Field(
        description="Lowest cosine of an embedding in this dtype with the float32 one, measured on the shipped model."
    )
    least_top1_agreement: float = Field(
        description="Lowest share of masks whose best prediction in this dtype is float32's, measured likewise."
    )
    versions: dict[str, str] = Field(description="Versions of Python and of the libraries that matter.")
