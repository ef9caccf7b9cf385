"""The Hugging Face hub: this is the one module that talks to it.

Its client is imported only when it is used: a server of a local folder never needs it. The client's own environment
variables (HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE …) hold.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# As the client checks it, but for what it refuses on top, such as two dots in a row.
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)


class HubError(Exception):
    """A repository that cannot be had; the message is one line and says what may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Files of a repository, in the hub's cache.

    folder: where they are; other files of the repository may be there too.
    revision: the hash of the commit that they are of.
    """

    folder: Path
    revision: str


def is_repository_name(name: str) -> bool:
    """Whether this can be the name of a repository: `name` or `owner/name`."""
    return _NAME.fullmatch(name) is not None


def fetch(repository: str, *, revision: str | None, patterns: Sequence[str], offline: bool) -> Snapshot:
    """Bring files of a repository into the cache, as far as they are not there.

    A progress bar is shown if stderr is a terminal. What is complete in the cache is not asked for again, and serves
    if the hub cannot be reached.

    Args:
        repository: a name for which `is_repository_name` holds.
        revision: branch, tag or commit hash; None is the main branch.
        patterns: which files, in the language of `fnmatch`, where `*` matches slashes too.
        offline: take only what is in the cache.

    Raises:
        HubError: they cannot be had.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    _let_the_root_logger_write()
    if not sys.stderr.isatty():
        disable_progress_bars()  # the client shows some of them in logs, too
    try:
        folder = snapshot_download(
            repository, revision=revision, allow_patterns=list(patterns), local_files_only=offline
        )
    except Exception as error:  # the client, its transport and its transfer library fail each in its own way
        raise HubError(_reason(error, repository=repository, revision=revision)) from error
    return Snapshot(folder=Path(folder), revision=Path(folder).name)


def _let_the_root_logger_write() -> None:
    """The client gives itself a handler at import; its warnings belong among the others, in their format."""
    client = logging.getLogger("huggingface_hub")
    client.handlers.clear()
    client.propagate = True


def _reason(error: BaseException, *, repository: str, revision: str | None) -> str:
    from huggingface_hub import constants, errors

    hub, cache = constants.ENDPOINT, constants.HF_HUB_CACHE
    cause = error.__cause__
    match error:
        case errors.GatedRepoError():
            advice = "accept its terms there, then set HF_TOKEN to a token of that account"
            return f"{hub}/{repository} is gated: {advice}"
        case errors.RepositoryNotFoundError():
            return f"there is no {repository} at {hub}, or it is private: check the name, or set HF_TOKEN"
        case errors.RevisionNotFoundError():
            return f"{repository} at {hub} has no revision {revision!r}"
        case errors.LocalEntryNotFoundError() if cause is None or isinstance(cause, errors.OfflineModeIsEnabled):
            return f"{repository} is not complete in {cache}, and the hub is not asked (--offline or HF_HUB_OFFLINE)"
        case errors.LocalEntryNotFoundError():
            assert cause is not None
            return _reason(cause, repository=repository, revision=revision)
        case errors.HfHubHTTPError():
            return f"{hub} answered {error.response.status_code} when asked for {repository}{_advice(error)}"
        case OSError(errno=int()):
            return f"cannot write {error.filename or cache}: {error.strerror}"
    first_line = next(iter(str(error).splitlines()), "")
    return f"cannot get {repository} from {hub}: {type(error).__name__}: {first_line}"


def _advice(error: object) -> str:
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if status in (401, 403):
        return ": HF_TOKEN must be set to a token that may read it"
    return ": wait, then try again" if status == 429 or status >= 500 else ""
