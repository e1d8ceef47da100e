"""Commands that look once and print: ps, dump, diagnose, doctor."""

from __future__ import annotations

import argparse

from mpwatch.cli.failures import EXIT_FINDINGS
from mpwatch.cli.paper import paper
from mpwatch.cli.paths import reading
from mpwatch.cli.progress import Progress, ProgressBar
from mpwatch.cli.targets import bring, ended_meanwhile, hook_use, target
from mpwatch.model.findings import Severity
from mpwatch.model.snapshot import Snapshot
from mpwatch.report import json as json_report


def ps(arguments: argparse.Namespace) -> int:
    """List torch and hooked processes."""
    from mpwatch.collect.jobs import find_jobs

    jobs = find_jobs()
    if arguments.json:
        print(json_report.text_of(json_report.ps_json(jobs)))
    else:
        from mpwatch.report import text as text_report

        print(text_report.ps_text(jobs, paper=paper()))
    return 0


def dump(arguments: argparse.Namespace) -> int:
    """Print the whole tree once."""
    from mpwatch.observe.once import LookOptions, look_once

    options = LookOptions(
        stacks=not arguments.no_stacks,
        native=arguments.native,
        locals=arguments.locals,
        hook=hook_use(arguments),
    )
    snapshot = look_once(target(arguments.pid), options, bring=bring)
    if snapshot is None:
        raise ended_meanwhile(arguments.pid)
    if arguments.json:
        document = json_report.snapshot_json(snapshot, with_stacks=options.stacks)
        print(json_report.text_of(document))
    else:
        from mpwatch.report import text as text_report

        print(text_report.dump_text(snapshot, with_stacks=options.stacks, paper=paper()))
    return 0


def diagnose(arguments: argparse.Namespace) -> int:
    """Watch for a while, or read a recording, and print what is wrong."""
    if arguments.subject.isascii() and arguments.subject.isdigit():
        snapshot = _watched(int(arguments.subject), arguments)
    else:
        snapshot = recorded(arguments.subject)
    if arguments.json:
        print(json_report.text_of(json_report.diagnose_json(snapshot)))
    else:
        from mpwatch.report import text as text_report

        print(text_report.diagnose_text(snapshot, paper=paper()))
    return exit_code(snapshot, arguments.fail_on)


def recorded(path: str) -> Snapshot:
    """The last state of a recording.

    Raises:
        Failure: The file cannot be read or is no recording.
    """
    from mpwatch.observe.replay import replay_to_end

    with reading(path), ProgressBar(f"reading {path}") as bar:
        return replay_to_end(path, bar.update)


def exit_code(snapshot: Snapshot, fail_on: str) -> int:
    """1 if there is a finding at or above the threshold that still holds, else 0."""
    if fail_on == "never":
        return 0
    threshold = Severity[fail_on.upper()]
    is_found = any(
        finding.severity >= threshold for finding in snapshot.findings if finding.resolved_s is None
    )
    return EXIT_FINDINGS if is_found else 0


def doctor(arguments: argparse.Namespace) -> int:
    """Print the limits and rights that matter."""
    from mpwatch.collect.doctor import examine

    if arguments.pid is not None:
        target(arguments.pid)
    checks = examine(arguments.pid)
    if arguments.json:
        print(json_report.text_of(json_report.doctor_json(checks)))
    else:
        from mpwatch.report import text as text_report

        print(text_report.doctor_text(checks, paper=paper()))
    return 0


def _watched(pid: int, arguments: argparse.Namespace) -> Snapshot:
    from mpwatch.observe.once import LookOptions, watch_for

    options = LookOptions(hook=hook_use(arguments))
    with Progress(f"watching {pid}", arguments.seconds) as progress:
        snapshot = watch_for(
            target(pid),
            arguments.seconds,
            options,
            bring=bring,
            each=lambda seen: progress.say(f"{len(seen.living())} processes"),
        )
    if snapshot is None:
        raise ended_meanwhile(pid)
    return snapshot
