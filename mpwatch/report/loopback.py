"""Which requests a server on a loopback address answers: those of this machine's own pages.

Such a server has no password, and a browser on this machine reaches it for any page on the web. A
page of another site is recognised by `Origin`. A site whose name is made to resolve to 127.0.0.1
(DNS rebinding) counts as the same site for the browser, but has its own name in `Host`.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host, by address or name, is this machine and no other."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def why_refused(host: str | None, origin: str | None, port: int) -> str | None:
    """Why a request is refused, one sentence; `None` if it is answered.

    Args:
        host: The header `Host`; every browser sends one.
        origin: The header `Origin`: the page that sends the request, if it is a page.
        port: The port of the server.
    """
    if host is not None and not is_loopback(_parts(f"//{host}")[0]):
        return "Refused: the request names another host than this machine."
    if origin is not None and not _is_own_page(origin, port):
        return "Refused: the request is from a page of another site."
    return None


def _is_own_page(origin: str, port: int) -> bool:
    name, its_port = _parts(origin)
    return origin.lower().startswith("http://") and is_loopback(name) and its_port == port


def _parts(url: str) -> tuple[str, int]:
    """Host and port of a URL; empty and 0 if it is none."""
    try:
        found = urlsplit(url)
        return found.hostname or "", found.port or 80
    except ValueError:
        return "", 0
