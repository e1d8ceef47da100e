"""Commands that print a report and exit: ps, dump, diagnose, doctor."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence

from mpwatch.cli.configuration import read_configuration
from mpwatch.cli.diagnosis_watch import DiagnosisWatch
from mpwatch.cli.failures import EXIT_FINDINGS, EXIT_INTERRUPTED, Failure, reading
from mpwatch.cli.targets import ended_meanwhile, hook_use, injecting, of_job, target, tell_part
from mpwatch.cli.terminal import Progress, ProgressBar, text_style
from mpwatch.describe.findings import unresolved
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.host import Check
from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import clean
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
    if of_job(arguments, arguments.pid, "dump"):
        from mpwatch.cli import nodes

        return nodes.dump(arguments)
    from mpwatch.observe.sources.oneshot import OneShotOptions, read_once

    options = OneShotOptions(
        stacks=not arguments.no_stacks,
        native=arguments.native,
        locals=arguments.locals,
        hook=hook_use(arguments),
        values=read_configuration().values,
    )
    process = target(arguments.pid)
    if arguments.json:  # the text says it below its title
        tell_part(process, "dump")
    with injecting(process, arguments) as inject:
        snapshot = read_once(process, options, inject=inject)
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
    """Watch a job, or read a recording or dumps of a flight recorder, and print the findings."""
    subjects: list[str] = arguments.subjects
    subject = subjects[0] if subjects else None
    if of_job(arguments, subject, "diagnose"):
        from mpwatch.cli import nodes

        return nodes.diagnose(arguments)
    assert subject is not None  # of_job has refused a command with neither
    is_pid = subject.isascii() and subject.isdigit()
    if len(subjects) > 1 and is_pid and not os.path.exists(subject):
        raise Failure("mpwatch diagnose takes one PID, or several files.", "mpwatch ps")
    if len(subjects) > 1 or (not is_pid and _is_dump(subject)):
        return _diagnose_dumps(subjects, arguments)
    if not is_pid and _is_of_several_nodes(subject):
        from mpwatch.cli import nodes

        return nodes.diagnose_recording(subject, arguments)
    if is_pid:
        snapshot, is_interrupted = _watched(int(subject), arguments)
    else:
        snapshot, is_interrupted = recorded(subject), False
    if arguments.json:
        print(json_report.text_of(json_report.diagnose_json(snapshot)))
    else:
        from mpwatch.report import text as text_report

        is_told = is_pid and _tells_part_at_once(arguments) and sys.stdout.isatty()
        text = text_report.diagnose_text(snapshot, style=text_style(), is_part_told=is_told)
        print(text)
    if is_interrupted:
        return EXIT_INTERRUPTED
    return exit_code(unresolved(snapshot), arguments.fail_on)


def _diagnose_dumps(paths: Sequence[str], arguments: argparse.Namespace) -> int:
    """Print what keeps the ranks from continuing that have left files of torch's flight recorder.

    Raises:
        Failure: A path cannot be read, or none of the files is such a dump.
    """
    from mpwatch.collect.job.flight_recorder import NotADump, read_dumps
    from mpwatch.diagnose.analysis.distributed.flight_recorder import findings_of
    from mpwatch.report import recorder_dumps as report

    with ProgressBar("reading the files of the ranks") as bar:
        try:
            records, problems = read_dumps(paths, bar.update)
        except NotADump as error:
            raise Failure(str(error), "mpwatch diagnose FOLDER") from None
        except OSError as error:
            name = clean(str(error.filename))
            raise Failure(
                f"{name} cannot be read: {error.strerror}.", f"ls -ld {shlex.quote(name)}"
            ) from None
    if not records:
        sentence = "No file of torch's flight recorder was found there."
        raise Failure(problems[0] if problems else sentence, "mpwatch diagnose --help")
    findings = findings_of(records)
    if arguments.json:
        print(json_report.text_of(report.dumps_json(records, findings, problems)))
    else:
        print(report.dumps_text(records, findings, problems, style=text_style()))
    return exit_code(findings, arguments.fail_on)


def _is_dump(path: str) -> bool:
    """Whether a path is a folder, or a file that begins as a dump of a flight recorder does."""
    from mpwatch.collect.job.flight_recorder import NotADump, is_dump

    try:
        return os.path.isdir(path) or is_dump(path)
    except (OSError, NotADump):
        return False  # the reader of recordings says why


def _is_of_several_nodes(path: str) -> bool:
    """Whether a file is a recording of a job on several machines.

    Raises:
        Failure: The file cannot be read.
    """
    from mpwatch.observe.recording.file import is_of_several_nodes

    with reading(path):
        return is_of_several_nodes(path)


def recorded(path: str) -> Snapshot:
    """The last state of a recording.

    Raises:
        Failure: The file cannot be read or is not a recording.
    """
    from mpwatch.observe.sources.replay import replay_to_end

    with reading(path), ProgressBar(f"reading {path}") as bar:
        return replay_to_end(path, bar.update)


def exit_code(findings: Sequence[Finding], fail_on: str) -> int:
    """1 if there is a finding at or above the threshold, else 0."""
    if fail_on == "never":
        return 0
    threshold = Severity[fail_on.upper()]
    is_found = any(finding.severity >= threshold for finding in findings)
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


def _injection_check(process: ProcessId) -> Iterator[Check]:
    """Whether the hook could be injected into a process; nothing if the process has exited."""
    from mpwatch.attach.plan import plan_injection
    from mpwatch.collect.job.reader import ReadRequest, TreeCollector

    tree = TreeCollector(process).collect(ReadRequest.processes_only())
    samples = [] if tree is None else [each for each in tree.processes if each.process == process]
    try:
        answer = read_configuration().hook
        said = "" if answer == "ask" else f' Your configuration answers attach: hook = "{answer}".'
    except Failure as failure:
        said = f" {failure}"
    for each in plan_injection(samples).processes:
        if each.method:
            value = "possible" if each.would_be_injected else each.method
            yield Check("injection", "ok", value, f"Nothing in the process forbids it.{said}")
        else:
            yield Check("injection", "note", "left out", f"{each.reason}.{said}", each.fix)


def _hook_checks(process: ProcessId) -> Iterator[Check]:
    """Checks of the hook in a process, and the user's attach log about that process."""
    from mpwatch.attach.injection_log import InjectionLog
    from mpwatch.collect.host.doctor import hook_checks

    yield from _injection_check(process)
    yield from hook_checks(process)
    log = InjectionLog()
    log.recover()
    entries = log.entries_about(process, LOG_LINES)
    if not entries:
        yield Check("attach log", "ok", "no entry", f"{log.path} has no line about it.")
    for number, entry in enumerate(entries, start=1):
        count = f"{number} of {len(entries)}"
        if not entry.is_over:
            count += ", under way: another mpwatch is doing it"
        yield Check("attach log", "ok", count, entry.line)


def _running_s() -> float:
    """For how long this process has run; 0 if procfs does not say."""
    from mpwatch.collect.process.procfs import read_stat

    stat = read_stat("/proc", os.getpid())
    if stat is None:
        return 0.0
    started_s = stat.process.start_ticks / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)


def _tells_part_at_once(arguments: argparse.Namespace) -> bool:
    """Whether standard error says, before the watch, that this is only a part of a job.

    The report says it too where it goes elsewhere.
    """
    return arguments.json or sys.stderr.isatty()


def _watched(pid: int, arguments: argparse.Namespace) -> tuple[Snapshot, bool]:
    """The job after the watch, and whether the user has interrupted it."""
    from mpwatch.observe.sources.oneshot import OneShotOptions, watch_for

    options = OneShotOptions(hook=hook_use(arguments), values=read_configuration().values)
    process = target(pid)
    if _tells_part_at_once(arguments):
        tell_part(process, "diagnose")
    with (
        injecting(process, arguments) as inject,
        Progress(f"watching {pid}", arguments.seconds) as progress,
    ):
        watch = DiagnosisWatch(arguments.seconds, progress.show, spent_s=_running_s())
        try:
            snapshot = watch_for(
                process,
                watch.longest_s,
                options,
                inject=inject,
                each=watch.has_read,
                stop=watch.is_enough,
            )
        except KeyboardInterrupt:
            if watch.last is None:
                raise
            return watch.last, True
    if snapshot is None:
        raise ended_meanwhile(pid)
    return snapshot, False
