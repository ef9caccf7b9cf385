"""What the exit codes of `bert-service` mean."""

from __future__ import annotations

EXIT_SUCCESS = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""As of a process that SIGINT has killed, in a shell."""
