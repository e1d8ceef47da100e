"""An HTTP server for one page of metrics, reachable from this machine only.

There is no authentication, so it binds to loopback addresses and to nothing else.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mpwatch.model.snapshot import Snapshot
from mpwatch.report.prometheus import CONTENT_TYPE, exposition

REQUEST_S = 5.0
"""A client that is slower than this is hung up on."""


class CannotServe(ValueError):
    """The address will not do; the text is one sentence for a person."""


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, of `[::1]:PORT` or of `:PORT`.

    Raises:
        CannotServe: It is no such address, or not one of this machine's loopback addresses.
    """
    host, colon, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not colon or not port.isascii() or not port.isdigit() or not int(port) < 65536:
        raise CannotServe(f"{text!r} is not HOST:PORT, for example 127.0.0.1:9400.")
    if host != "localhost" and not _is_loopback(host):
        raise CannotServe(
            f"{host} is not this machine alone: metrics are served without a password,"
            " so only 127.0.0.1, ::1 or localhost will do."
        )
    return host, int(port)


class MetricsServer:
    """Shows the newest snapshot at `/metrics`."""

    def __init__(self, host: str, port: int) -> None:
        """Take the address; requests are answered from `start` on.

        Args:
            host: As `parse_address` allows.
            port: 0 takes any that is free.

        Raises:
            CannotServe: The address is taken or not there.
        """
        self._snapshot: Snapshot | None = None
        server = type("_Server", (ThreadingHTTPServer,), {"address_family": _family(host)})
        try:
            self._server: ThreadingHTTPServer = server((host, port), self._handler())
        except OSError as error:
            raise CannotServe(f"{host}:{port} cannot be served: {error.strerror}.") from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="mpwatch-metrics", daemon=True
        )

    @property
    def url(self) -> str:
        """Where to point a scraper or a browser."""
        host, port = self._server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}/metrics"

    def take(self, snapshot: Snapshot) -> None:
        """Show this one from now on; a source delivers here."""
        self._snapshot = snapshot

    def start(self) -> None:
        """Answer requests, on a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more and give the address back."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            """Answers GET /metrics."""

            timeout = REQUEST_S

            def do_GET(self) -> None:
                """Answer one request."""
                snapshot = owner._snapshot
                if self.path.partition("?")[0] not in ("/metrics", "/"):
                    self._answer(404, "Metrics are at /metrics.\n")
                elif snapshot is None:
                    self._answer(503, "The job has not been read yet.\n")
                else:
                    self._answer(200, exposition(snapshot))

            def _answer(self, status: int, text: str) -> None:
                body = text.encode("utf-8", "replace")
                self.send_response(status)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing: the terminal belongs to somebody else."""

        return Handler


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
