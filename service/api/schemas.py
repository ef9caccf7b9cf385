"""What requests have in common, what those of our own routes look like, and the tasks that they ask for.

Values are checked strictly: "5", 5.0 and true are not the number 5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from service.api.input_forms import Pair, Pairs, Texts
from service.batching.joint_fill import fill_jointly
from service.batching.submission import Rounds, one_round
from service.errors import EmptyInput, InvalidInput
from service.settings import Settings
from service.tasks import DEFAULT_TOP_K, FillMask, FillNextMask, NextSentence, Task, TruncationSide

ItemT = TypeVar("ItemT")

LENIENT = ConfigDict(strict=True, extra="ignore", frozen=True)
"""Of requests in the form of other servers, whose clients send along what other versions know: a misspelt field has no
effect and is not reported."""

MOST_FIELDS = 100


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


TruncationDirection: TypeAlias = Annotated[Literal["left", "right"], BeforeValidator(_lower)]


class TaskRequest(BaseModel, ABC):
    """A request that is answered by tasks."""

    inputs: Any

    @property
    def list_place(self) -> str | None:
        """The field whose list gave the tasks; None if there is one task because one was asked for."""
        return "inputs" if isinstance(self.inputs, list) else None

    def place(self, index: int) -> str | None:
        """Where the task of this number comes from; None if that is all of `inputs`."""
        return None if self.list_place is None else f"{self.list_place}[{index}]"

    @property
    def wants_details(self) -> bool:
        """Is each task answered by itself? Else one that is refused refuses the request."""
        return False

    @abstractmethod
    def tasks(self, settings: Settings) -> Sequence[Task]:
        """The tasks, in the order of the request.

        Raises:
            RequestError: something is over the limits of `settings`, or does not go together.
        """
        ...

    def rounds(self, tasks: Sequence[Task]) -> Rounds:
        """How the tasks are asked for: all at once."""
        return one_round(tasks)


class NativeRequest(BaseModel):
    """A request of our own routes, which refuse unknown fields: a misspelt one would be silently without effect."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_many_fields(cls, content: object) -> object:
        # Each unknown field would be a fault of its own.
        if isinstance(content, dict) and len(content) > MOST_FIELDS:
            raise InvalidInput(f"an object has {len(content)} fields; at most {MOST_FIELDS}", field="body")
        return content


class FillMaskParameters(NativeRequest):
    """Options of fill-mask, at the root of the request or under `parameters`."""

    top_k: int | None = Field(
        None,
        ge=1,
        description="Predictions per mask, at most `max_top_k` of `/info`; all predictions of a request, each with its "
        f"whole text, may have about 16 million characters. Default: {DEFAULT_TOP_K}, or all targets.",
    )
    targets: list[Annotated[str, Field(min_length=1)]] | None = Field(
        None,
        min_length=1,
        fail_fast=True,
        description="The only candidates to score, at most `max_top_k`, each of at most "
        "100 characters and 16 pieces. One of several pieces gets `tokens` in place "
        "of `token`, and is possible in texts with one mask alone. Duplicates count once. Default: all of the "
        "vocabulary.",
    )
    strategy: Literal["independent", "joint"] | None = Field(
        None,
        description="independent: each mask by itself, whatever stands at the others. joint: all masks of a text "
        "together; step by step the mask that the model is most certain of is filled, and the `top_k` most probable "
        "texts are kept; not with targets, and at most 64 masks times `top_k`. Default: independent.",
    )
    details: bool | None = Field(
        None,
        description="Answer `{results, usage}`: each text by itself, with token counts, mask positions, and its own "
        "error if it has a fault. Default: false; then the first fault fails the request.",
    )
    truncate: bool | None = Field(
        None, description="Cut texts over the model's limit, but never a mask. Default: false, refuse."
    )
    truncation_direction: TruncationDirection | None = Field(
        None, description="The end that is cut first. Default: right."
    )


class FillMaskRequest(FillMaskParameters, TaskRequest):
    """Options may stand at the root or under `parameters`. Unknown fields are refused."""

    inputs: Texts = Field(description="One text or a list, each with at least one mask.")
    parameters: FillMaskParameters | None = Field(None, description="Options, as at the root.")

    @model_validator(mode="after")
    def _check_given_once(self) -> FillMaskRequest:
        for name in FillMaskParameters.model_fields if self.parameters else ():
            at_root, nested = getattr(self, name), getattr(self.parameters, name)
            if at_root is not None and nested is not None and at_root != nested:
                raise InvalidInput(f"differs from parameters.{name}; give only one of them", field=name)
        return self

    def option(self, name: str) -> tuple[Any, str]:
        """An option's value and the place where it stands."""
        nested = None if self.parameters is None else getattr(self.parameters, name)
        return (getattr(self, name), name) if nested is None else (nested, f"parameters.{name}")

    @property
    def wants_details(self) -> bool:
        return bool(self.option("details")[0])

    @property
    def is_joint(self) -> bool:
        """Are the masks of a text filled together?"""
        return bool(self.option("strategy")[0] == "joint")

    def tasks(self, settings: Settings) -> list[FillMask] | list[FillNextMask]:
        """One task per text.

        Raises:
            InvalidInput: too many texts, predictions or targets, or targets to fill masks jointly.
        """
        texts = at_most(as_list(self.inputs), settings.max_client_batch_size, place="inputs")
        top_k, place = self.option("top_k")
        if top_k is not None and top_k > settings.max_top_k:
            raise InvalidInput(f"is {top_k}; must be at most {settings.max_top_k} (max_top_k)", field=place)
        targets, place = self.option("targets")
        if top_k is None and targets is None and settings.max_top_k < DEFAULT_TOP_K:
            top_k = settings.max_top_k
        if targets is not None and len(targets) > settings.max_top_k:
            raise InvalidInput(f"holds {len(targets)}; at most {settings.max_top_k} (max_top_k)", field=place)
        truncate = truncation_side(self.option("truncate")[0], self.option("truncation_direction")[0], default=False)
        if self.is_joint:
            return self._joint_tasks(texts, top_k or DEFAULT_TOP_K, truncate, settings)
        chosen = None if targets is None else tuple(targets)
        return [FillMask(text=text, top_k=top_k, targets=chosen, truncate=truncate) for text in texts]

    def _joint_tasks(
        self, texts: Sequence[str], top_k: int, truncate: TruncationSide | None, settings: Settings
    ) -> list[FillNextMask]:
        if self.option("targets")[0] is not None:
            raise InvalidInput("joint has no targets; leave them out, or choose independent", field="strategy")
        most = settings.max_client_batch_size
        if len(texts) * top_k > most:
            raise InvalidInput(
                f"is {top_k} for {len(texts)} texts; with the joint strategy at most {most} sequences in one request "
                "(max_client_batch_size)",
                field="top_k",
            )
        return [FillNextMask(text=text, top_k=top_k, truncate=truncate) for text in texts]

    def rounds(self, tasks: Sequence[Task]) -> Rounds:
        """Step by step where masks are filled jointly."""
        steps = [task for task in tasks if isinstance(task, FillNextMask)]
        return fill_jointly(steps) if steps else one_round(tasks)


class NextSentenceRequest(NativeRequest, TaskRequest):
    """Either `inputs`, or one `text` and its `candidates`. Unknown fields are refused."""

    inputs: Pairs = Field(None, description="One pair or a list of pairs.")
    text: str | None = Field(None, description="The text that the candidates may follow.")
    candidates: list[str] | None = Field(None, fail_fast=True, description="Texts to rank by how well they follow.")
    truncate: bool | None = Field(None, description="Cut pairs over the limit, longest half first. Default: false.")
    truncation_direction: TruncationDirection | None = Field(None, description="The end that is cut. Default: right.")

    @model_validator(mode="before")
    @classmethod
    def _refuse_pair_at_root(cls, content: object) -> object:
        if isinstance(content, dict) and "text_pair" in content:
            raise InvalidInput(
                'unknown field \'text_pair\'; a pair goes under inputs: {"inputs": {"text": …, "text_pair": …}}'
            )
        return content

    @model_validator(mode="after")
    def _check_form(self) -> NextSentenceRequest:
        form = tuple(value is not None for value in (self.inputs, self.text, self.candidates))
        if form not in ((True, False, False), (False, True, True)):
            raise InvalidInput("give either inputs, or text and candidates", field="inputs")
        if self.candidates == []:
            raise EmptyInput("must hold at least one text", field="candidates")
        return self

    @property
    def list_place(self) -> str | None:
        return super().list_place if self.candidates is None else "candidates"

    def tasks(self, settings: Settings) -> list[NextSentence]:
        """One task per pair.

        Raises:
            InvalidInput: too many pairs.
        """
        pairs: Sequence[Pair]
        if self.candidates is not None:
            assert self.text is not None
            pairs = [(self.text, candidate) for candidate in self.candidates]
        else:
            pairs = as_list(self.inputs)
        at_most(pairs, settings.max_client_batch_size, place=self.list_place or "inputs")
        truncate = truncation_side(self.truncate, self.truncation_direction, default=False)
        return [NextSentence(text=text, text_pair=text_pair, truncate=truncate) for text, text_pair in pairs]


def as_list(inputs: ItemT | list[ItemT]) -> list[ItemT]:
    return inputs if isinstance(inputs, list) else [inputs]


def at_most(items: Sequence[ItemT], limit: int, *, place: str) -> Sequence[ItemT]:
    if len(items) > limit:
        raise InvalidInput(f"holds {len(items)}; at most {limit} in one request (max_client_batch_size)", field=place)
    return items


def truncation_side(truncate: bool | None, direction: TruncationSide | None, *, default: bool) -> TruncationSide | None:
    wanted = default if truncate is None else truncate
    return (direction or "right") if wanted else None
