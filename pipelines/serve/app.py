"""The web application: the page, and a JSON API of two addresses.

    GET /                 the page, with /style.css, /page.js and /icon.svg
    GET /api/collection   what is searched, and by which systems
    GET /api/search       the hits of each system for a query: q, top, where, weight, length

The files are read once, when the application is made: no request names a path. An error is {"error": "one line"}.
"""

import sys
import typing
from collections.abc import Callable, Collection, Mapping
from importlib import resources
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from clearspan.common.parsing import did_you_mean, finite_number, whole_number
from clearspan.common.terminal import UsageError, one_line
from clearspan.pipelines.errors import EXPECTED, PipelineError
from clearspan.pipelines.serve.compare import SearchRequest, SideBySide
from clearspan.pipelines.serve.guard import Guard

FILES = {
    "/": ("index.html", "text/html"),
    "/style.css": ("style.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""The addresses of the page's files: the file and its media type."""
MOST_SEARCHES = 32
"""Number of searches at once, of which one runs and the others wait; one more is refused."""


def application(comparison: SideBySide, names: Collection[str] | None) -> ASGIApp:
    """Return the application of a collection.

    Args:
        names: the host names that the server answers to (`guard.names_of`).
    """
    searches = 0

    async def collection(request: HttpRequest) -> Response:
        parameters(request.query_params.multi_items(), {})
        return JSONResponse(comparison.about())

    async def search(request: HttpRequest) -> Response:
        nonlocal searches
        given = parameters(request.query_params.multi_items(), PARSERS)
        if searches >= MOST_SEARCHES:
            raise HTTPException(503, "too many searches at once: try again")
        searches += 1
        try:
            wanted = SearchRequest(**{"q": "", **given})
            found = await anyio.to_thread.run_sync(comparison.search, wanted, abandon_on_cancel=True)
        finally:
            searches -= 1
        return JSONResponse(found)

    routes = [Route(path, file(*named)) for path, named in FILES.items()]
    routes += [Route("/api/collection", collection), Route("/api/search", search)]
    handlers: dict[Any, Any] = {**dict.fromkeys((*EXPECTED, Exception), failed), HTTPException: refused}
    handlers |= {UsageError: unusable, PipelineError: unusable}
    pages = Starlette(routes=routes, exception_handlers=handlers)
    pages.router.redirect_slashes = False
    return Guard(pages, names)


def file(name: str, media_type: str) -> Callable[[HttpRequest], Any]:
    """Return the endpoint of one of the page's files."""
    content = (resources.files(__package__) / "page" / name).read_bytes()

    async def answer(request: HttpRequest) -> Response:
        return Response(content, media_type=media_type)

    return answer


PARSERS: dict[str, Callable[[str], Any]] = {
    name: {int: whole_number, float: finite_number}.get(hint, str)
    for name, field in typing.get_type_hints(SearchRequest).items()
    for hint in [next((kind for kind in typing.get_args(field) if kind is not type(None)), field)]
}
"""The function that parses each parameter of a search."""


def parameters(given: list[tuple[str, str]], parsers: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    """Return the values of a request's parameters; raise UsageError for an unknown, repeated or unreadable one."""
    found: dict[str, Any] = {}
    for name, word in given:
        if name not in parsers:
            raise UsageError(f"no such parameter: {name}{did_you_mean(name, parsers)}")
        if name in found:
            raise UsageError(f"{name}: is given twice")
        try:
            found[name] = parsers[name](word)
        except ValueError as error:
            raise UsageError(f"{name}: {error}") from None
    return found


async def refused(request: HttpRequest, error: Exception) -> Response:
    """Answer an HTTP error, such as an unknown address or method."""
    assert isinstance(error, HTTPException)
    message = {404: "no such address: see /api/search and /api/collection", 405: "only GET is answered"}
    line = message.get(error.status_code, error.detail)
    return JSONResponse({"error": line}, status_code=error.status_code, headers=error.headers)


async def unusable(request: HttpRequest, error: Exception) -> Response:
    """Answer a request whose parameters cannot be used."""
    return JSONResponse({"error": one_line(error, 300)}, status_code=400)


async def failed(request: HttpRequest, error: Exception) -> Response:
    """Answer a search that failed: a damaged collection, or a bug, whose traceback only the terminal shows."""
    if isinstance(error, EXPECTED):
        print(f"clearspan serve: {one_line(error)}", file=sys.stderr)
        return JSONResponse({"error": one_line(error, 300)}, status_code=500)
    return JSONResponse({"error": "the search failed: the terminal of the server says why"}, status_code=500)
