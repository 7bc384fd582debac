"""Guard of the server: it refuses requests that come from pages of other sites, and requests to another host name.

A page of another site can make its reader's browser send requests to 127.0.0.1. Two checks prevent such a page from
reading the collection:

- The Host header must be a name of this server. A site whose DNS name points to 127.0.0.1 (DNS rebinding) sends its own
  name, and is refused.
- A request whose headers name another site (Origin, Sec-Fetch-Site) is refused. A link to the page is allowed.

Starlette's TrustedHostMiddleware is not used: it has no list for "any IP address", reads the first of two Host headers
alone, answers 400 in plain text, and in the oldest version that is allowed here accepts `localhost:1@evil.example`.

The headers of every answer tell the browser to load nothing from other servers, and not to show the page within a page
of another site.
"""

import ipaddress
import re
from collections.abc import Callable, Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HOST = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:/?#\[\]@\\]+))(?::[0-9]{1,5})?")
"""Regular expression for a whole Host header (RFC 9110, 7.2): a name or an address (IPv6 in brackets), maybe a port."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def name_of(host: str) -> str:
    """Return the name in a Host header in lower case, without the port and without the brackets of IPv6.

    Return "" if the header is anything else than such a name, as in `localhost:1@evil.example` or `[::1]evil.example`.
    """
    parts = HOST.fullmatch(host)
    if parts is None or (parts["ipv6"] and not is_address(parts["ipv6"], ipaddress.IPv6Address)):
        return ""
    return (parts["ipv6"] or parts["name"]).lower()


def names_of(*hosts: str) -> set[str] | None:
    """Return the host names that a server answers to: localhost, 127.0.0.1, ::1 and its hosts.

    Return None if a host stands for all addresses of this machine, as 0.0.0.0 does: the server then answers to
    localhost and to any IP address.

    Args:
        hosts: the host on which the server listens, as the user wrote it, and the address that it stands for.
    """
    return None if {"0.0.0.0", "::", ""} & set(hosts) else {*LOOPBACK, *map(str.lower, hosts)}


def is_address(name: str, kind: Callable[[str], object] = ipaddress.ip_address) -> bool:
    try:
        kind(name)
    except ValueError:
        return False
    return True


class Guard:
    """ASGI middleware that refuses requests from pages of other sites, and requests to a name that is not the server's.

    Args:
        app: the application that answers the requests that are not refused.
        names: the host names that the server answers to; None for localhost and every IP address.
    """

    def __init__(self, app: ASGIApp, names: Collection[str] | None) -> None:
        self.app = app
        self.names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # "lifespan"; there are no WebSockets
            await self.app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        problem = self.problem(Headers(scope=scope), is_page=scope["path"] == "/")
        refusal = JSONResponse({"error": problem}, status_code=403)
        await (refusal if problem else self.app)(scope, receive, send_safely)

    def problem(self, headers: Headers, is_page: bool) -> str | None:
        """Return the reason to refuse a request, in one line; None if the request may be answered.

        Args:
            headers: the headers of the request.
            is_page: whether the request is for the page itself. If true, the request may come from a link on
                another site.
        """
        hosts = headers.getlist("host")
        name = name_of(hosts[0]) if len(hosts) == 1 else ""
        known = name in self.names if self.names is not None else name in LOOPBACK or is_address(name)
        if not known:
            return "the Host header is not a name of this server: open the address that it printed"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{hosts[0]}".lower(), f"https://{hosts[0]}".lower()):
            return "a page of another origin may not use this server"
        is_link = is_page and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_link:
            return "a page of another site may not use this server"
        return None
