"""Commands that open the dashboard (the picker, attach, replay), and the user's configuration file.

`$XDG_CONFIG_HOME/mpwatch/config.toml`:

    [attach]
    hook = "ask"      # or "always", "never"

The file controls injection into other processes, so it is refused if others can write it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from mpwatch.cli.failures import Failure, check_recordable, reading
from mpwatch.cli.targets import LazySession, ended_meanwhile, target
from mpwatch.cli.terminal import is_served, need_terminal, set_aside_what_is_loaded, text_style
from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import clean
from mpwatch.observe.sources.collectors import HookUse
from mpwatch.observe.sources.source import Source

if TYPE_CHECKING:
    from mpwatch.tui.hook_question import HookQuestion


def pick(arguments: argparse.Namespace) -> int:
    """Let the user choose one of the running torch jobs, then watch it."""
    need_terminal("mpwatch ps")
    from mpwatch.collect.job.jobs import find_jobs
    from mpwatch.tui.picker import pick as pick_job

    chosen = pick_job(find_jobs)
    if chosen is None:
        return 0
    return watch(chosen, refresh_hz=arguments.refresh, readonly=arguments.readonly)


def attach(arguments: argparse.Namespace) -> int:
    """Watch one running job."""
    if arguments.json and not arguments.dry_run:
        raise Failure(
            "attach prints JSON only with --dry-run.", f"mpwatch dump {arguments.pid} --json"
        )
    process = target(arguments.pid, may_be_hidden=True)
    if arguments.dry_run:
        return _dry_run(process, arguments)
    need_terminal(f"mpwatch dump {arguments.pid}")
    return watch(
        process,
        consent=_consent(arguments),
        only=arguments.only,
        keeps=arguments.keep,
        refresh_hz=arguments.refresh,
        record=arguments.record,
        readonly=arguments.readonly,
        inline=arguments.inline,
    )


def _consent(arguments: argparse.Namespace) -> HookConsent:
    """Whether to inject: from the options, else from the configuration file."""
    if arguments.hook:
        return "always"
    if arguments.no_hook or arguments.readonly or arguments.inline or is_served():
        return "never"
    return read_configuration().hook


def _dry_run(process: ProcessId, arguments: argparse.Namespace) -> int:
    """Print what an injection would do to each process of the job."""
    from mpwatch.attach.plan import plan_injection
    from mpwatch.collect.job.reader import ReadRequest, TreeCollector
    from mpwatch.report import injection_plan
    from mpwatch.report.json import text_of

    tree = TreeCollector(process).collect(
        ReadRequest(threads=False, links_count=0, maps_count=0, memory_count=0, gpu=False)
    )
    if tree is None:
        raise ended_meanwhile(process.pid)
    plan = plan_injection(tree.processes, only=arguments.only)
    if arguments.json:
        print(text_of(injection_plan.plan_json(plan)))
    else:
        print(injection_plan.plan_text(plan, style=text_style()))
    return 0


def replay(arguments: argparse.Namespace) -> int:
    """Show a recording."""
    from mpwatch.observe.recording.file import is_of_several_nodes
    from mpwatch.observe.sources.replay import ReplaySource

    need_terminal(f"mpwatch diagnose {arguments.file}")
    with reading(arguments.file):
        if is_of_several_nodes(arguments.file):
            from mpwatch.cli import nodes

            return nodes.replay(arguments)
        source = ReplaySource(arguments.file)
    return show(source, title=arguments.file, refresh_hz=4.0, readonly=True)


def serve(arguments: argparse.Namespace) -> int:
    """Serve the dashboard of one job to a browser on this machine: read-only, never injects."""
    target(arguments.pid, may_be_hidden=True)
    try:
        server = _server_class()
    except ImportError:
        sentence = "Serving the dashboard to a browser needs the package textual-serve."
        raise Failure(sentence, f"{sys.executable} -m pip install 'mpwatch[serve]'") from None
    command = f"{shlex.quote(sys.executable)} -m mpwatch attach {arguments.pid} --readonly"
    # The page shows command lines and stacks, so it is served to this machine only.
    server(command, host="127.0.0.1", port=arguments.port, title=f"mpwatch {arguments.pid}").serve()
    return 0


def _server_class() -> Any:
    """The server of textual-serve (1.1) that answers pages of this machine only.

    Raises:
        ImportError: textual-serve is not installed.
    """
    from aiohttp import web
    from textual_serve.server import Server

    from mpwatch.report.prometheus import why_refused

    class LoopbackServer(Server):  # type: ignore[misc]
        """Refuses pages of other sites: see `report.loopback`."""

        def _check(self, request: Any) -> None:
            headers = request.headers
            reason = why_refused(headers.get("Host"), headers.get("Origin"), self.port)
            if reason is not None:
                raise web.HTTPForbidden(text=reason)

        async def handle_index(self, request: Any) -> Any:
            self._check(request)
            return await super().handle_index(request)

        async def handle_websocket(self, request: Any) -> Any:
            self._check(request)
            return await super().handle_websocket(request)

        async def handle_download(self, request: Any) -> Any:
            self._check(request)
            return await super().handle_download(request)

    return LoopbackServer


def watch(
    process: ProcessId,
    *,
    consent: HookConsent = "never",
    only: Sequence[int] = (),
    keeps: bool = False,
    refresh_hz: float,
    record: str | None = None,
    readonly: bool = False,
    inline: bool = False,
    on_stuck: Callable[[], None] = lambda: None,
) -> int:
    """Open the dashboard on a live job, or print a few lines of it.

    Args:
        process: The job.
        consent: Whether to inject the hook, or to ask the user.
        only: The pids that may be injected; all of the job if empty.
        keeps: Whether injected hooks stay attached when the dashboard is closed.
        refresh_hz: Samples per second.
        record: Path of a recording to write.
        readonly: Refuse everything that changes a process.
        inline: Print a few lines instead of the full screen.
        on_stuck: Called before a dashboard that ignores its end request is killed.

    Returns:
        An exit code: 128 + n after SIGTERM or SIGHUP.
    """
    from mpwatch.observe.sources.live import LiveOptions, LiveSource
    from mpwatch.tui.hook_question import HookQuestion

    if record is not None:
        check_recordable(record)
    use: HookUse = "inject" if consent == "always" else "use"
    session = LazySession(process, only=only, keeps=keeps)
    options = LiveOptions(refresh_hz=refresh_hz, hook=use, record=record)
    source = LiveSource(process, options, inject=session.inject)
    title = str(process.pid)
    asks_nobody = readonly or (is_served() and consent != "always")

    def stuck() -> None:
        session.end()
        on_stuck()

    try:
        if inline:
            from mpwatch.tui.inline import run_inline

            return run_inline(source, title=title, refresh_hz=refresh_hz, on_stuck=stuck)
        return show(
            source,
            title=title,
            refresh_hz=refresh_hz,
            readonly=readonly,
            recording=record,
            question=None if asks_nobody else HookQuestion(session.plan, asks=consent == "ask"),
            on_stuck=stuck,
        )
    finally:
        session.end()


def show(
    source: Source,
    *,
    title: str,
    refresh_hz: float,
    readonly: bool,
    recording: str | None = None,
    question: HookQuestion | None = None,
    on_stuck: Callable[[], None] = lambda: None,
) -> int:
    """Open the dashboard on a source."""
    from mpwatch.tui.app import run_dashboard

    set_aside_what_is_loaded()
    return run_dashboard(
        source,
        title=title,
        refresh_hz=refresh_hz,
        readonly=readonly,
        recording=recording,
        question=question,
        on_stuck=on_stuck,
    )


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HookConsent: TypeAlias = Literal["ask", "always", "never"]

_ANSWERS = ("ask", "always", "never")
_LIMIT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings in the file."""

    hook: HookConsent = "ask"
    """Whether `mpwatch attach` injects the hook."""


def default_path() -> str:
    """Path of the file; `$XDG_CONFIG_HOME` is used only if it is an absolute path."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    if not folder.startswith("/"):
        folder = os.path.expanduser("~/.config")
    return os.path.join(folder, "mpwatch", "config.toml")


def read_configuration(path: str | None = None) -> Configuration:
    """Read the file; without a file all settings have their defaults.

    Raises:
        Failure: The file is malformed, belongs to another user or is writable by others.
    """
    path = path or default_path()
    shown = clean(path)
    try:
        # O_NONBLOCK: opening a FIFO of that name must not block.
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return Configuration()
    except OSError as error:
        raise Failure(f"{shown} cannot be read: {error.strerror}.", f"ls -ld {shown}") from None
    try:
        _check(file, shown)
        raw = os.read(file, _LIMIT_BYTES + 1)
    except OSError as error:
        raise Failure(f"{shown} cannot be read: {error.strerror}.", f"ls -ld {shown}") from None
    finally:
        os.close(file)
    if len(raw) > _LIMIT_BYTES:
        raise Failure(f"{shown} is larger than {_LIMIT_BYTES} bytes.", _set_aside(shown))
    try:
        return _parsed(tomllib.loads(raw.decode("utf-8")))
    except (ValueError, RecursionError) as error:  # TOML and UTF-8 errors are ValueErrors
        reason = clean(str(error), 300).rstrip(".")
        raise Failure(f"{shown} is malformed: {reason}.", _set_aside(shown)) from None


def _check(file: int, shown: str) -> None:
    """Refuse a file that another user could have written.

    Raises:
        Failure: Another user could.
    """
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        raise Failure(f"{shown} is not a regular file.", _set_aside(shown))
    if found.st_uid != os.geteuid():
        sentence = f"{shown} belongs to uid {found.st_uid} and not to uid {os.geteuid()}."
        raise Failure(sentence, f"chown {os.geteuid()} {shown}")
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise Failure(f"{shown} can be written by other users.", f"chmod go-w {shown}")


def _set_aside(shown: str) -> str:
    """The command after which the defaults apply."""
    return f"mv {shown} {shown}.old"


def _parsed(document: dict[str, object]) -> Configuration:
    """The values of the file.

    Raises:
        ValueError: A key or a value is unknown.
    """
    table = document.get("attach", {})
    unknown = sorted(document.keys() - {"attach"})
    if isinstance(table, dict):
        unknown += [f"attach.{key}" for key in sorted(table.keys() - {"hook"})]
    if unknown:
        raise ValueError(f"there is no setting {unknown[0]!r}")
    if not isinstance(table, dict):
        raise ValueError("attach is not a table")
    answer = table.get("hook", "ask")
    if answer not in _ANSWERS:
        raise ValueError(f'attach.hook is {answer!r} and not "ask", "always" or "never"')
    return Configuration(cast(HookConsent, answer))
