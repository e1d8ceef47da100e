"""Commands that print a report and exit: ps, dump, diagnose, doctor."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from mpwatch.cli.failures import EXIT_FINDINGS, reading
from mpwatch.cli.targets import ended_meanwhile, hook_use, injecting, target
from mpwatch.cli.terminal import Progress, ProgressBar, text_style
from mpwatch.describe.findings import unresolved
from mpwatch.model.findings import Severity
from mpwatch.model.host import Check
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.report import json as json_report

LOG_LINES = 5
"""Lines of the attach log that `doctor` shows for a process."""


def ps(arguments: argparse.Namespace) -> int:
    """List torch processes and processes with the hook."""
    from mpwatch.collect.job.jobs import find_jobs

    jobs = find_jobs()
    if arguments.json:
        print(json_report.text_of(json_report.ps_json(jobs)))
    else:
        from mpwatch.report import text as text_report

        print(text_report.ps_text(jobs, style=text_style()))
    return 0


def dump(arguments: argparse.Namespace) -> int:
    """Print the process tree once."""
    from mpwatch.observe.sources.oneshot import LookOptions, look_once

    options = LookOptions(
        stacks=not arguments.no_stacks,
        native=arguments.native,
        locals=arguments.locals,
        hook=hook_use(arguments),
    )
    process = target(arguments.pid)
    with injecting(process, arguments) as inject:
        snapshot = look_once(process, options, inject=inject)
    if snapshot is None:
        raise ended_meanwhile(arguments.pid)
    if arguments.json:
        document = json_report.snapshot_json(snapshot, with_stacks=options.stacks)
        print(json_report.text_of(document))
    else:
        from mpwatch.report import text as text_report

        print(text_report.dump_text(snapshot, with_stacks=options.stacks, style=text_style()))
    return 0


def diagnose(arguments: argparse.Namespace) -> int:
    """Watch a job for `--for` seconds, or read a recording, and print the findings."""
    if arguments.subject.isascii() and arguments.subject.isdigit():
        snapshot = _watched(int(arguments.subject), arguments)
    else:
        snapshot = recorded(arguments.subject)
    if arguments.json:
        print(json_report.text_of(json_report.diagnose_json(snapshot)))
    else:
        from mpwatch.report import text as text_report

        print(text_report.diagnose_text(snapshot, style=text_style()))
    return exit_code(snapshot, arguments.fail_on)


def recorded(path: str) -> Snapshot:
    """The last state of a recording.

    Raises:
        Failure: The file cannot be read or is not a recording.
    """
    from mpwatch.observe.sources.replay import replay_to_end

    with reading(path), ProgressBar(f"reading {path}") as bar:
        return replay_to_end(path, bar.update)


def exit_code(snapshot: Snapshot, fail_on: str) -> int:
    """1 if there is an unresolved finding at or above the threshold, else 0."""
    if fail_on == "never":
        return 0
    threshold = Severity[fail_on.upper()]
    is_found = any(finding.severity >= threshold for finding in unresolved(snapshot))
    return EXIT_FINDINGS if is_found else 0


def doctor(arguments: argparse.Namespace) -> int:
    """Print the relevant limits and permissions; with a PID also the hook in that process."""
    from mpwatch.collect.host.doctor import examine

    process = None if arguments.pid is None else target(arguments.pid)
    checks = examine(arguments.pid)
    if process is not None:
        checks = (*checks, *_hook_checks(process))
    if arguments.json:
        print(json_report.text_of(json_report.doctor_json(checks)))
    else:
        from mpwatch.report import text as text_report

        print(text_report.doctor_text(checks, style=text_style()))
    return 0


def _hook_checks(process: ProcessId) -> Iterator[Check]:
    """Checks of the hook in a process, and the user's attach log about that process."""
    from mpwatch.attach.injection_log import InjectionLog
    from mpwatch.collect.hook.inspection import hook_checks

    yield from hook_checks(process)
    log = InjectionLog()
    lines = log.lines_about(process, LOG_LINES)
    if not lines:
        yield Check("attach log", "ok", "no entry", f"{log.path} has no line about it.")
    for number, line in enumerate(lines, start=1):
        yield Check("attach log", "ok", f"{number} of {len(lines)}", line)


def _watched(pid: int, arguments: argparse.Namespace) -> Snapshot:
    from mpwatch.observe.sources.oneshot import LookOptions, watch_for

    options = LookOptions(hook=hook_use(arguments))
    process = target(pid)
    with (
        injecting(process, arguments) as inject,
        Progress(f"watching {pid}", arguments.seconds) as progress,
    ):
        snapshot = watch_for(
            process,
            arguments.seconds,
            options,
            inject=inject,
            each=lambda seen: progress.show(f"{len(seen.living())} processes"),
        )
    if snapshot is None:
        raise ended_meanwhile(pid)
    return snapshot
