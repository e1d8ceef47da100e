"""Commands that open the dashboard: the picker, attach, replay."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mpwatch.cli import set_aside_what_is_loaded
from mpwatch.cli.configuration import HookConsent, read_configuration
from mpwatch.cli.failures import Failure, check_recordable, reading
from mpwatch.cli.targets import LazySession, ended_meanwhile, target, tell_part
from mpwatch.cli.terminal import is_served, need_terminal, text_style
from mpwatch.model.ids import ProcessId
from mpwatch.observe.sources.collectors import HookUse
from mpwatch.observe.sources.source import Source

CLOSING_INDENT = 10
"""Cells of a label of what is printed when a dashboard is closed, and the gap after it."""

if TYPE_CHECKING:
    from mpwatch.attach.process_actions import ProcessActions
    from mpwatch.model.snapshot import Snapshot
    from mpwatch.observe.sources.live import LiveSource
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
    tell_part(process, "attach")
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
    from mpwatch.report.json import plan_json, text_of
    from mpwatch.report.text import plan_text

    tree = TreeCollector(process).collect(ReadRequest.processes_only())
    if tree is None:
        raise ended_meanwhile(process.pid)
    plan = plan_injection(tree.processes, only=arguments.only)
    if arguments.json:
        print(text_of(plan_json(plan)))
    else:
        print(plan_text(plan, style=text_style()))
    return 0


def replay(arguments: argparse.Namespace) -> int:
    """Show a recording."""
    from mpwatch.observe.recording.file import is_of_several_nodes
    from mpwatch.observe.sources.replay import ReplaySource

    with reading(arguments.file):
        if is_of_several_nodes(arguments.file):
            from mpwatch.cli import nodes

            return nodes.replay(arguments)
        source = ReplaySource(arguments.file)
    try:
        need_terminal(f"mpwatch diagnose {shlex.quote(arguments.file)}")
    except Failure:
        source.stop()
        raise
    return show(source, title=arguments.file, refresh_hz=4.0, readonly=True)


def serve(arguments: argparse.Namespace) -> int:
    """Serve the dashboard of one job to a browser on this machine: read-only, never injects."""
    target(arguments.pid, may_be_hidden=True)
    try:
        server = server_class()
    except ImportError:
        sentence = "Serving the dashboard to a browser needs the package textual-serve."
        raise Failure(
            sentence, f"{shlex.quote(sys.executable)} -m pip install textual-serve"
        ) from None
    command = f"{shlex.quote(sys.executable)} -m mpwatch attach {arguments.pid} --readonly"
    command += " --no-hook" * arguments.no_hook
    # The page shows command lines and stacks, so it is served to this machine only.
    server(command, host="127.0.0.1", port=arguments.port, title=f"mpwatch {arguments.pid}").serve()
    return 0


def server_class() -> Any:
    """The server of textual-serve (1.1) that answers pages of this machine only.

    Raises:
        ImportError: textual-serve is not installed.
    """
    from aiohttp import web
    from textual_serve.server import Server

    from mpwatch.report.loopback import why_refused

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
    on_closed: Callable[[Snapshot, str | None], None] | None = None,
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
        on_closed: Tells what was last seen, see `run_dashboard`; by default printed at once.

    Returns:
        An exit code: 128 + n after SIGTERM or SIGHUP.
    """
    from mpwatch.attach.process_actions import ProcessActions

    if record is not None:
        check_recordable(record)
    session = LazySession(process, only=only, keeps=keeps)
    source = _live_source(process, session, consent, refresh_hz, record)
    title = str(process.pid)

    def stuck() -> None:
        session.end()
        on_stuck()

    try:
        if inline:
            return _show_inline(source, title, refresh_hz, stuck)
        return show(
            source,
            title=title,
            refresh_hz=refresh_hz,
            readonly=readonly,
            recording=record,
            question=None if readonly else _question(session, consent),
            process_actions=ProcessActions(detach=session.detach),
            on_stuck=stuck,
            on_closed=on_closed or print_closing,
        )
    finally:
        session.end()


def _question(session: LazySession, consent: HookConsent) -> HookQuestion | None:
    """The question whether to inject; `None` where nobody can be asked: in a browser."""
    from mpwatch.tui.hook_question import HookQuestion

    if is_served() and consent != "always":
        return None
    return HookQuestion(session.plan, asks=consent == "ask")


def _live_source(
    process: ProcessId,
    session: LazySession,
    consent: HookConsent,
    refresh_hz: float,
    record: str | None,
) -> LiveSource:
    from mpwatch.observe.sources.live import LiveOptions, LiveSource

    use: HookUse = "inject" if consent == "always" else "use"
    values = read_configuration().values
    options = LiveOptions(refresh_hz=refresh_hz, hook=use, record=record, values=values)
    return LiveSource(process, options, inject=session.inject)


def show(
    source: Source,
    *,
    title: str,
    refresh_hz: float,
    readonly: bool,
    recording: str | None = None,
    question: HookQuestion | None = None,
    process_actions: ProcessActions | None = None,
    on_stuck: Callable[[], None] = lambda: None,
    on_closed: Callable[[Snapshot, str | None], None] | None = None,
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
        process_actions=process_actions,
        on_stuck=on_stuck,
        on_closed=on_closed,
        needs_terminal=not is_served(),
    )


def _show_inline(
    source: Source, title: str, refresh_hz: float, on_stuck: Callable[[], None]
) -> int:
    """Print a few lines about a job until it ends or the user quits."""
    from mpwatch.tui.inline import run_inline

    return run_inline(
        source,
        title=title,
        refresh_hz=refresh_hz,
        on_stuck=on_stuck,
        needs_terminal=not is_served(),
    )


def print_closing(snapshot: Snapshot, recording: str | None) -> None:
    """Print what was last seen of a job, after its dashboard is closed.

    On standard error: standard output is the job's own, where mpwatch has started it.
    """
    from mpwatch.describe.closing import closing_lines
    from mpwatch.report.text import SEVERITY_EMPHASIS

    if is_served():
        return
    # The terminal may be gone: that is one way in which dashboards end.
    with contextlib.suppress(OSError):
        style = text_style(sys.stderr)
        for label, text, severity in closing_lines(snapshot, recording):
            emphasis = SEVERITY_EMPHASIS[severity] if severity is not None else "plain"
            first, *rest = style.wrap(text, " " * CLOSING_INDENT) if label else style.wrap(text)
            head = style.paint(label, emphasis) + first[len(label) :] if label else first
            print("\n".join((head, *rest)), file=sys.stderr, flush=True)
