"""How a process of the service ends: what is said about a failure, and the exit itself."""

from __future__ import annotations

import logging
import os
import sys
import threading
from dataclasses import dataclass
from typing import NoReturn

from service.observability.logs import describe_exception
from service.settings import SettingsError

logger = logging.getLogger("service")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why the service ends, in words, so that one process can leave it to another to say so.

    plain: whether the words are all that an operator needs; else they are an exception's description, for the log.
    """

    words: str
    plain: bool

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        plain = _is_about_the_model(error)
        return cls(words=str(error) if plain else describe_exception(error), plain=plain)

    def tell(self) -> None:
        if self.plain:
            print(f"bert-service: {self.words}", file=sys.stderr)
        else:
            logger.critical("the model has failed", extra={"exception": self.words})


def _is_about_the_model(error: BaseException) -> bool:
    """Does its message tell the operator all there is to tell?"""
    # Imported here, for these import torch.
    from bert_core import CheckpointError
    from service.checkpoints.hub import HubError
    from service.engine.device import DeviceError

    return isinstance(error, SettingsError | CheckpointError | DeviceError | HubError)


def end_process(code: int) -> NoReturn:
    """Exit.

    A load or a pass that still runs in its thread would outlive the interpreter, and PyTorch aborts the process then,
    which looks like a crash; so the process ends without waiting for threads.
    """
    if threading.active_count() > 1:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
