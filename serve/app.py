"""Web application of `clearspan serve`: the page, and a JSON API.

    GET /                 the page, which loads /style.css, /page.js and /icon.svg
    GET /api/collection   the properties of the collection, and the systems that can search it
    GET /api/search       the hits of each system for a query; its parameters are the attributes of `SearchRequest`,
                          such as q, the query

The files of the page are read once, when the application is created, so that no request can name a path. The answer to
a request that fails is {"error": "one line"}.
"""

import sys
from collections import Counter
from collections.abc import Callable, Collection
from importlib import resources
from operator import itemgetter
from typing import Any, TypeVar

import anyio
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from clearspan.common.errors import PipelineError
from clearspan.common.parsing import did_you_mean
from clearspan.common.terminal import UsageError, one_line
from clearspan.serve.compare import SearchRequest, SideBySide
from clearspan.serve.guard import Guard
from clearspan.shards.command import EXPECTED

M = TypeVar("M", bound=BaseModel)
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
        parameters(request, NoParameters)
        return JSONResponse(comparison.about())

    async def search(request: HttpRequest) -> Response:
        nonlocal searches
        wanted = parameters(request, SearchRequest)
        if searches >= MAX_SEARCHES:
            raise HTTPException(503, "too many searches at once: try again")
        searches += 1
        try:
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


class NoParameters(BaseModel):
    """The parameters of `/api/collection`: none."""

    model_config = ConfigDict(extra="forbid")


def parameters(request: HttpRequest, model: type[M]) -> M:
    """Return the parameters of a request as a model.

    Raises:
        UsageError: a parameter is unknown, missing or repeated, or its value cannot be used.
    """
    pairs = request.query_params.multi_items()
    name, count = max(Counter(name for name, _ in pairs).items(), key=itemgetter(1), default=("", 0))
    if count > 1:  # of which a dict, and so pydantic, would see the last
        raise UsageError(f"{name}: is given twice")
    try:
        return model.model_validate(dict(pairs))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise UsageError(f"no such parameter: {name}{did_you_mean(name, model.model_fields)}") from None
        raise UsageError(f"{name}: {first['msg'].removeprefix('Value error, ')}") from None


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
