"""What browsers get: the playground, the interactive documentation, and their assets."""

from __future__ import annotations

from os import PathLike, stat_result
from pathlib import Path, PurePath

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC_FOLDER = Path(__file__).resolve().parent.parent / "static"

# No page may load anything from elsewhere.
_PLAYGROUND_POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# The image in Swagger UI's style sheet is a data URL.
_DOCS_POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"

# Not as the machine's registry of types has it: browsers run a module only under the right one.
_CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class PageRoutes:
    """`/docs` and `/static`; `playground` is for GET on `/`, which is a route of the API by POST."""

    def __init__(self) -> None:
        self._files = _RevalidatedFiles(directory=STATIC_FOLDER)

    def routes(self) -> list[BaseRoute]:
        return [Route("/docs", self.docs, methods=["GET"]), Mount("/static", self._files)]

    async def playground(self, request: Request) -> Response:
        return await self._page("playground/index.html", request.scope, policy=_PLAYGROUND_POLICY)

    async def docs(self, request: Request) -> Response:
        return await self._page("docs/index.html", request.scope, policy=_DOCS_POLICY)

    async def _page(self, path: str, scope: Scope, *, policy: str) -> Response:
        response = await self._files.get_response(path, scope)
        response.headers["content-security-policy"] = policy
        response.headers["referrer-policy"] = "no-referrer"
        return response


class _RevalidatedFiles(StaticFiles):
    """Browsers ask each time whether a file is still the same, so that a page and its scripts are of one version."""

    def file_response(
        self, full_path: str | PathLike[str], stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["cache-control"] = "no-cache"
        response.headers["x-content-type-options"] = "nosniff"
        content_type = _CONTENT_TYPES.get(PurePath(full_path).suffix)
        if content_type and "content-type" in response.headers:
            response.headers["content-type"] = content_type
        return response
