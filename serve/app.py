"""Web application of `clearspan serve`: the page, and a JSON API.

    GET /                 the page, which loads /style.css, /page.js and /icon.svg
    GET /api/collection   the properties of the collection, and the systems that can search it
    GET /api/search       the hits of each system for a query; its parameters are the attributes of `SearchRequest`,
                          such as q, the query

The files of the page are read once, when the application is created, so that no request can name a path. The answer to
a request that fails is {"error": "one line"}.
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

from clearspan.common.errors import PipelineError
from clearspan.common.parsing import did_you_mean, finite_number, whole_number
from clearspan.common.terminal import UsageError, one_line
from clearspan.serve.compare import SearchRequest, SideBySide
from clearspan.serve.guard import Guard
from clearspan.shards.command import EXPECTED

FILES = {
    "/": ("index.html", "text/html"),
    "/style.css": ("style.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""Path in the URL -> file of the page, and its media type."""
MAX_SEARCHES = 32
"""Maximum number of searches at once, of which one runs and the others wait. Further searches are refused."""


def application(comparison: SideBySide, names: Collection[str] | None) -> ASGIApp:
    """Return the web application that searches a collection.

    Args:
        comparison: the collection, and the systems that can search it.
        names: the host names that the server answers to; None for localhost and every IP address.
    """
    searches = 0

    async def collection(request: HttpRequest) -> Response:
        parameters(request.query_params.multi_items(), {})
        return JSONResponse(comparison.about())

    async def search(request: HttpRequest) -> Response:
        nonlocal searches
        given = parameters(request.query_params.multi_items(), PARSERS)
        if searches >= MAX_SEARCHES:
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
    """Read a file of the page, and return the function that answers requests for it.

    Args:
        name: the file's name in the folder `page`.
        media_type: the media type of the file, such as text/css.
    """
    content = (resources.files(__package__) / "page" / name).read_bytes()

    async def answer(request: HttpRequest) -> Response:
        return Response(content, media_type=media_type)

    return answer


PARSERS: dict[str, Callable[[str], Any]] = {
    name: {int: whole_number, float: finite_number}.get(hint, str)
    for name, field in typing.get_type_hints(SearchRequest).items()
    for hint in [next((kind for kind in typing.get_args(field) if kind is not type(None)), field)]
}
"""Name of a parameter of `/api/search` -> function that parses its value."""


def parameters(pairs: list[tuple[str, str]], parsers: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    """Return the parameters of a request, name -> parsed value.

    Args:
        pairs: the name and the text of each parameter in the URL.
        parsers: name of a parameter -> function that parses its value.

    Raises:
        UsageError: a parameter is unknown or repeated, or its value cannot be parsed.
    """
    found: dict[str, Any] = {}
    for name, word in pairs:
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
    """Answer a request that leads to an HTTP error, such as an unknown path or method, with the error as JSON."""
    assert isinstance(error, HTTPException)
    message = {404: "no such address: see /api/search and /api/collection", 405: "only GET is answered"}
    line = message.get(error.status_code, error.detail)
    return JSONResponse({"error": line}, status_code=error.status_code, headers=error.headers)


async def unusable(request: HttpRequest, error: Exception) -> Response:
    """Answer a request that cannot be carried out as asked, with HTTP 400 and the error as JSON."""
    return JSONResponse({"error": one_line(error, 300)}, status_code=400)


async def failed(request: HttpRequest, error: Exception) -> Response:
    """Answer a request that failed because of a damaged collection or a bug, with HTTP 500 and the error as JSON.

    For a bug, the answer only refers to the terminal of the server, which shows the traceback.
    """
    if isinstance(error, EXPECTED):
        print(f"clearspan serve: {one_line(error)}", file=sys.stderr)
        return JSONResponse({"error": one_line(error, 300)}, status_code=500)
    return JSONResponse({"error": "the search failed: the terminal of the server says why"}, status_code=500)
