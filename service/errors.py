"""What can go wrong with a request, as exceptions that know nothing of HTTP.

    ServiceError
    ├── RequestError          the request is at fault; sending it again changes nothing
    │   ├── EmptyInput        an empty list, or a text with nothing left after cleaning
    │   ├── InvalidInput      a value that is not allowed: too long, no mask, bad target …
    │   │   └── ForeignTokenIds  token ids that no tokenizer of this model gave
    │   ├── PayloadTooLarge   a body, or an amount of work, that could never be accepted
    │   ├── Unauthorized      the API key is missing or wrong
    │   └── HeadMissing       the checkpoint does not hold the head that the task needs
    ├── Overloaded            the queue is full now, or too long for the deadline; carries when to come back
    ├── Unhealthy             not ready yet, draining, or a model thread is dead
    ├── DeadlinePassed        the deadline passed before the item got its turn
    └── BackendFailure        the forward pass, or the tokenizer, failed for this item

Messages name the field, the fault and what is allowed. They never hold the user's text.
`service.api.error_responses` maps each class to a status and an `error_type`.
"""

from __future__ import annotations


class ServiceError(Exception):
    """Base of all errors that an answer can report.

    Args:
        message: what is wrong, for the client, without the client's text.
        field: place in the request that is at fault, such as `inputs[3]`; it opens the message.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message if field is None else f"{field}: {message}")
        self.message = message
        self.field = field

    def at(self, place: str) -> ServiceError:
        """The same error, its field prefixed by `place` (`inputs[3]`); `place` alone if it replaces `inputs`."""
        moved = type(self).__new__(type(self))
        moved.__dict__.update(self.__dict__)
        field = self.field
        if field is None or field == "inputs":
            field = place
        elif field.startswith("inputs."):
            field = place + field.removeprefix("inputs")
        ServiceError.__init__(moved, self.message, field=field)
        return moved


class RequestError(ServiceError):
    """The request is at fault; sending it again changes nothing."""


class EmptyInput(RequestError):
    """An empty list, or a text with nothing left after cleaning."""


class InvalidInput(RequestError):
    """A value that is not allowed."""


class ForeignTokenIds(InvalidInput):
    """Token ids that no tokenizer of this model gave."""


class PayloadTooLarge(RequestError):
    """A body, or an amount of work, that could never be accepted."""


class Unauthorized(RequestError):
    """The API key is missing or wrong."""


class HeadMissing(RequestError):
    """The checkpoint does not hold the head that the task needs."""


class Overloaded(ServiceError):
    """The queue is full now, or too long for the request's deadline.

    Args:
        message: as in `ServiceError`.
        retry_after_seconds: when the queue will probably have room, from the measured drain rate.
    """

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unhealthy(ServiceError):
    """Not ready yet, draining, or a model thread is dead."""


class DeadlinePassed(ServiceError):
    """The deadline passed before the item got its turn."""


class BackendFailure(ServiceError):
    """The forward pass, or the tokenizer, failed for this item."""
