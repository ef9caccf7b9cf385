"""Paths as routes see them, without the prefix that a proxy takes off, and the protocol that one belongs to."""

from __future__ import annotations

from starlette.types import Scope

OPENAI_PREFIX = "/v1/"


def route_path(scope: Scope) -> str:
    """The path of a request, below the application's root path."""
    root_path: str = scope.get("root_path", "")
    path: str = scope["path"]
    return path[len(root_path) :] if root_path and path.startswith(root_path + "/") else path


def speaks_openai(scope: Scope) -> bool:
    """Does the client expect OpenAI's answers, also where no route is?"""
    return route_path(scope).startswith(OPENAI_PREFIX)
