"""Commands that open the dashboard: the picker, attach, replay."""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from mpwatch.cli.failures import Failure
from mpwatch.cli.garbage import set_aside_what_is_loaded
from mpwatch.cli.paths import check_recordable, reading
from mpwatch.cli.targets import bring, hook_use, target
from mpwatch.model.ids import ProcessId
from mpwatch.observe.intake import HookUse
from mpwatch.observe.source import Source


def pick(arguments: argparse.Namespace) -> int:
    """Let a person choose one of the running torch jobs, then watch it."""
    need_terminal("mpwatch ps")
    from mpwatch.collect.jobs import find_jobs
    from mpwatch.tui.picker import pick as pick_job

    chosen = pick_job(find_jobs)
    if chosen is None:
        return 0
    return watch(chosen, hook="bring", refresh_hz=arguments.refresh, readonly=arguments.readonly)


def attach(arguments: argparse.Namespace) -> int:
    """Watch one running job."""
    process = target(arguments.pid, may_be_hidden=True)
    need_terminal(f"mpwatch dump {arguments.pid}")
    return watch(
        process,
        hook=hook_use(arguments, "bring"),
        refresh_hz=arguments.refresh,
        record=arguments.record,
        readonly=arguments.readonly,
        inline=arguments.inline,
    )


def replay(arguments: argparse.Namespace) -> int:
    """Show a recording."""
    from mpwatch.observe.replay import ReplaySource

    need_terminal(f"mpwatch diagnose {arguments.file}")
    with reading(arguments.file):
        source = ReplaySource(arguments.file)
    return show(source, title=arguments.file, refresh_hz=4.0, readonly=True)


def serve(arguments: argparse.Namespace) -> int:
    """The dashboard of one job in a browser on this machine; nothing can be changed from it."""
    target(arguments.pid, may_be_hidden=True)
    try:
        from textual_serve.server import Server
    except ImportError:
        sentence = "Serving the dashboard to a browser needs the package textual-serve."
        raise Failure(sentence, f"{sys.executable} -m pip install 'mpwatch[serve]'") from None
    hook = " --no-hook" if arguments.no_hook else ""
    command = f"{shlex.quote(sys.executable)} -m mpwatch attach {arguments.pid} --readonly{hook}"
    # Whoever reaches this page sees command lines and stacks: it stays on this machine.
    Server(command, host="127.0.0.1", port=arguments.port, title=f"mpwatch {arguments.pid}").serve()
    return 0


def need_terminal(instead: str) -> None:
    """Refuse where there is nothing to draw on: no terminal, and no browser behind textual-serve.

    Raises:
        Failure: Standard input or output is no terminal.
    """
    is_served = "TEXTUAL_DRIVER" in os.environ
    if not is_served and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure("The dashboard needs a terminal, and there is none here.", instead)


def watch(
    process: ProcessId,
    *,
    hook: HookUse,
    refresh_hz: float,
    record: str | None = None,
    readonly: bool = False,
    inline: bool = False,
) -> int:
    """The dashboard on a live job, or a few lines of it."""
    from mpwatch.observe.live import LiveOptions, LiveSource

    if record is not None:
        check_recordable(record)
    options = LiveOptions(refresh_hz=refresh_hz, hook=hook, record=record)
    source = LiveSource(process, options, bring=bring)
    title = str(process.pid)
    if inline:
        from mpwatch.tui.inline import run_inline

        return run_inline(source, title=title, refresh_hz=refresh_hz)
    return show(source, title=title, refresh_hz=refresh_hz, readonly=readonly, recording=record)


def show(
    source: Source, *, title: str, refresh_hz: float, readonly: bool, recording: str | None = None
) -> int:
    """The dashboard on any source."""
    from mpwatch.tui.app import run_dashboard

    set_aside_what_is_loaded()
    return run_dashboard(
        source, title=title, refresh_hz=refresh_hz, readonly=readonly, recording=recording
    )
