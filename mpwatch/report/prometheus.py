"""Metrics of a job in Prometheus text format 0.0.4, and an HTTP server for them."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, TypeAlias

from msgspec import Struct

from mpwatch.describe.findings import unresolved
from mpwatch.model.findings import Severity
from mpwatch.model.host import HostSample
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.report.loopback import is_loopback, why_refused

Labels: TypeAlias = tuple[tuple[str, str], ...]
Sample: TypeAlias = tuple[Labels, float | None]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(Struct, frozen=True):
    """One metric with all its series."""

    name: str
    help: str
    samples: tuple[Sample, ...]
    kind: Literal["gauge", "counter"] = "gauge"

    def lines(self) -> Iterator[str]:
        """The lines of the text format; none if no series has a value."""
        known = [
            (labels, value)
            for labels, value in self.samples
            if value is not None and math.isfinite(value)
        ]
        if not known:
            return
        yield f"# HELP {self.name} {_escaped(self.help)}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in known:
            inside = ",".join(f'{name}="{_quoted(text)}"' for name, text in labels)
            yield f"{self.name}{{{inside}}} {value!r}" if inside else f"{self.name} {value!r}"


def exposition(snapshot: Snapshot) -> str:
    """All metrics of a snapshot."""
    return exposition_of(metrics_of(snapshot))


def exposition_of(metrics: Iterable[Metric]) -> str:
    """Metrics in the text format."""
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def metrics_of(snapshot: Snapshot) -> tuple[Metric, ...]:
    """All metrics of a snapshot."""
    return (*_of_processes(snapshot), *_of_host(snapshot.host), *_of_job(snapshot))


def _of_processes(snapshot: Snapshot) -> Iterator[Metric]:
    living = snapshot.living()

    def each(name: str, help: str, values: Iterable[float | None]) -> Metric:
        series = tuple(zip(map(_labels, living), values, strict=True))
        return Metric(f"mpwatch_process_{name}", help, series)

    fds = [process.sample.fds for process in living]
    maps = [process.sample.maps for process in living]
    yield each("open_fds", "Open file descriptors.", (fd.used if fd else None for fd in fds))
    yield each(
        "max_fds", "Soft limit of open files.", (fd.soft_limit if fd else None for fd in fds)
    )
    yield each("maps", "Memory mappings.", (found.used if found else None for found in maps))
    yield each("max_maps", "vm.max_map_count.", (found.limit if found else None for found in maps))
    yield each(
        "private_bytes",
        "Memory that no other process shares.",
        (process.private_bytes for process in living),
    )
    yield each(
        "shared_memory_bytes",
        "Shared-memory segments that it maps, each counted once.",
        (process.shm_bytes for process in living),
    )
    yield each(
        "hook_ready",
        "1 if its hook answers, else 0.",
        (int(process.hook.state == "ready") for process in living),
    )


def _of_host(host: HostSample) -> Iterator[Metric]:
    shm, cgroup = host.shm, host.cgroup
    readings: list[tuple[str, str, float | None]] = []
    if shm is not None:
        readings += [
            ("shm_free_bytes", "Free bytes of /dev/shm.", shm.free_bytes),
            ("shm_size_bytes", "Size of /dev/shm.", shm.total_bytes),
            ("shm_free_files", "Free inodes of /dev/shm.", shm.free_inodes),
        ]
    if cgroup is not None:
        readings += [
            ("cgroup_memory_bytes", "Memory of the cgroup.", cgroup.memory_bytes),
            (
                "cgroup_memory_limit_bytes",
                "Memory limit of the cgroup.",
                cgroup.memory_limit_bytes,
            ),
            ("cgroup_pids", "Processes and threads of the cgroup.", cgroup.pids_current),
            (
                "cgroup_pids_limit",
                "Limit of processes and threads.",
                cgroup.pids_limit,
            ),
            (
                "cgroup_oom_kills",
                "Kills by the OOM killer in the cgroup.",
                cgroup.oom_kills,
            ),
        ]
    readings.append(("host_runnable_threads", "Threads ready to run.", host.runnable))
    for name, meaning, value in readings:
        yield Metric(
            f"mpwatch_{name}",
            meaning,
            (((), value),),
            "counter" if name == "cgroup_oom_kills" else "gauge",
        )


def _of_job(snapshot: Snapshot) -> Iterator[Metric]:
    living = snapshot.living()
    ended = len(snapshot.processes) - len(living) + snapshot.ended_before
    yield Metric("mpwatch_processes", "Running processes of the job.", (((), len(living)),))
    yield Metric(
        "mpwatch_processes_ended",
        "Processes of the job that have ended.",
        (((), ended),),
        "counter",
    )
    lost = (((), snapshot.lost),)
    yield Metric("mpwatch_events_lost", "Hook events that were lost.", lost, "counter")
    waits = tuple(
        ((("pid", str(loader.process.pid)), ("loader", str(loader.key))), loader.wait_share)
        for loader in snapshot.loaders
    )
    yield Metric("mpwatch_loader_wait_ratio", "Part of a minute spent waiting for batches.", waits)
    present = unresolved(snapshot)
    counts = tuple(
        ((("severity", severity.word),), sum(f.severity == severity for f in present))
        for severity in Severity
    )
    yield Metric("mpwatch_findings", "Unresolved findings.", counts)
    forecasts: dict[Labels, float] = {}
    for finding in present:
        if finding.eta_s is not None:
            pid = str(finding.process.pid) if finding.process else ""
            labels = (("rule", finding.rule), ("pid", pid))
            forecasts[labels] = min(finding.eta_s, forecasts.get(labels, finding.eta_s))
    yield Metric(
        "mpwatch_finding_seconds_left",
        "Predicted seconds until the failure.",
        tuple(forecasts.items()),
    )


def _labels(process: Process) -> Labels:
    return (("pid", str(process.pid)), ("role", process.role), ("process", process.label))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


REQUEST_S = 5.0
"""Timeout of a request in seconds."""


class CannotServe(ValueError):
    """The address cannot be used; the message is one sentence for the user."""


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, of `[::1]:PORT` or of `:PORT`.

    Raises:
        CannotServe: The text is not an address, or not a loopback address.
    """
    host, colon, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not colon or not port.isascii() or not port.isdigit() or not int(port) < 65536:
        raise CannotServe(f"{text!r} is not HOST:PORT, for example 127.0.0.1:9400.")
    if not is_loopback(host):
        raise CannotServe(
            f"{host} can be reached from other machines, and metrics are served without a password:"
            " use 127.0.0.1, ::1 or localhost."
        )
    return host, int(port)


class MetricsServer:
    """Serves the newest metrics at `/metrics`."""

    def __init__(self, host: str, port: int) -> None:
        """Bind the address; `start` answers requests.

        Args:
            host: A loopback address, see `parse_address`.
            port: 0 for any free port.

        Raises:
            CannotServe: The address is in use or does not exist.
        """
        self._text: Callable[[], str] | None = None
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
        """The URL of the metrics."""
        host, port = self._server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}/metrics"

    def show(self, snapshot: Snapshot) -> None:
        """Serve this snapshot from now on."""
        self._text = partial(exposition, snapshot)

    def show_text(self, text: str) -> None:
        """Serve this text from now on."""
        self._text = lambda: text

    def start(self) -> None:
        """Answer requests on a separate thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering and release the address."""
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
                text = owner._text
                host, origin = self.headers.get("Host"), self.headers.get("Origin")
                refused = why_refused(host, origin, int(owner._server.server_address[1]))
                if refused is not None:
                    self._answer(403, f"{refused}\n")
                elif self.path.partition("?")[0] not in ("/metrics", "/"):
                    self._answer(404, "Metrics are at /metrics.\n")
                elif text is None:
                    self._answer(503, "The job has not been read yet.\n")
                else:
                    self._answer(200, text())

            def _answer(self, status: int, text: str) -> None:
                body = text.encode("utf-8", "replace")
                self.send_response(status)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Write no log: standard error belongs to the command."""

        return Handler


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
