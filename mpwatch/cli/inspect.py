"""Commands that print a report and exit: ps, dump, diagnose, doctor."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence

from mpwatch.cli.failures import EXIT_FINDINGS, EXIT_INTERRUPTED, Failure, reading
from mpwatch.cli.targets import ended_meanwhile, hook_use, injecting, target
from mpwatch.cli.terminal import Progress, ProgressBar, text_style
from mpwatch.describe.findings import unresolved
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.host import Check
from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import clean
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.units import seconds_text
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
    )
    process = target(arguments.pid)
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

        print(text_report.diagnose_text(snapshot, style=text_style()))
    if is_interrupted:
        return EXIT_INTERRUPTED
    return exit_code(unresolved(snapshot), arguments.fail_on)


def _diagnose_dumps(paths: Sequence[str], arguments: argparse.Namespace) -> int:
    """Print what keeps the ranks from continuing that have left files of torch's flight recorder.

    Raises:
        Failure: A path cannot be read, or none of the files is such a dump.
    """
    from mpwatch.collect.job.recorder_dumps import NotADump, read_dumps
    from mpwatch.diagnose.analysis.distributed.recorded_ranks import findings_of
    from mpwatch.report import recorder_dumps as report

    with ProgressBar("reading the files of the ranks") as bar:
        try:
            records, problems = read_dumps(paths, bar.update)
        except NotADump as error:
            raise Failure(str(error), "mpwatch diagnose FOLDER") from None
        except OSError as error:
            name = clean(str(error.filename))
            raise Failure(f"{name} cannot be read: {error.strerror}.", f"ls -ld {name}") from None
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
    from mpwatch.collect.job.recorder_dumps import NotADump, is_dump

    try:
        return os.path.isdir(path) or is_dump(path)
    except (OSError, NotADump):
        return False  # the reader of recordings says why


def of_job(arguments: argparse.Namespace, subject: object, command: str, name: str = "PID") -> bool:
    """Whether a command is about a job on several machines.

    Args:
        arguments: Of the command.
        subject: What the command is about otherwise.
        command: Its name.
        name: What the subject is called.

    Raises:
        Failure: Both or neither of `--job` and a subject are given.
    """
    if (arguments.job is None) == (subject is None):
        sentence = f"mpwatch {command} needs one of {name} and --job SPEC."
        raise Failure(sentence, f"mpwatch {command} --help")
    if arguments.job is not None and arguments.hook:
        sentence = "Nothing is injected on other machines."
        raise Failure(sentence, f"mpwatch {command} --job {arguments.job}")
    return arguments.job is not None


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


def _hook_checks(process: ProcessId) -> Iterator[Check]:
    """Checks of the hook in a process, and the user's attach log about that process."""
    from mpwatch.attach.injection_log import InjectionLog, is_completed
    from mpwatch.collect.hook.inspection import hook_checks

    yield from hook_checks(process)
    log = InjectionLog()
    lines = log.lines_about(process, LOG_LINES)
    if not lines:
        yield Check("attach log", "ok", "no entry", f"{log.path} has no line about it.")
    for number, line in enumerate(lines, start=1):
        count = f"{number} of {len(lines)}"
        if is_completed(line):
            yield Check("attach log", "ok", count, line)
        else:
            yield Check("attach log", "ok", f"{count}, begun: its result is missing", line)


LEAST_S = 5.0
"""How long a job is watched whose failure is known at once, and how long after it was found: what
the failure does to other processes shows a little later."""
LONGEST_S = 35.0
"""How long a job is watched at most: a little longer than the pause after which a job of which
nothing else is known counts as stalled (`rules.hangs.no_progress`), and than steady growth takes to
differ from a warm-up (`diagnose.analysis.growing`)."""

TREND_ASKED_S = 3.0
"""So long before the end of the usual time it is decided whether to watch longer."""
TREND_LIMIT_S = 60.0
"""How long a job is watched in which a resource rises, but has not risen by enough to be told."""


class DiagnosisWatch:
    """Says how long to watch a job whose findings are asked for, and what it waits for meanwhile.

    With a time given by the user, that time. Otherwise until a critical finding says what is wrong,
    at least `LEAST_S` and at most `LONGEST_S`: a stall, a growth and a slow job show only in time.
    Where something rises by then and is not told, up to `TREND_LIMIT_S`.
    """

    def __init__(
        self,
        seconds: float | None,
        show: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start to watch.

        Args:
            seconds: Given by the user; `None` to decide by what is seen.
            show: Shows what is waited for.
            clock: Monotonic seconds.
        """
        self.limit_s = LONGEST_S if seconds is None else seconds
        self._is_fixed = seconds is not None
        self._show = show
        self._clock = clock
        self._began_s = clock()
        self._certain_since_s: float | None = None
        self.last: Snapshot | None = None
        """The job at its last reading."""

    @property
    def longest_s(self) -> float:
        """Seconds after which the watch ends in any case."""
        return self.limit_s if self._is_fixed else TREND_LIMIT_S

    def has_read(self, snapshot: Snapshot) -> None:
        """Take note of a reading of the job."""
        self.last = snapshot
        findings = unresolved(snapshot)
        if not any(finding.severity is Severity.CRITICAL for finding in findings):
            self._certain_since_s = None
        elif self._certain_since_s is None:
            self._certain_since_s = self._clock()
        words = f"{len(snapshot.living())} processes"
        if not self._is_fixed:
            rising = None
            if self._clock() - self._began_s >= LONGEST_S - TREND_ASKED_S:
                is_told = any(finding.rule == "steady-growth" for finding in findings)
                rising = None if is_told else rising_words(snapshot)
                self.limit_s = LONGEST_S if rising is None else TREND_LIMIT_S
            known = rising or stalled_words(snapshot) or f"{words}, {_count_of(findings)}"
            words = f"{known}; watching up to {self.limit_s:.0f} s, ctrl-c to stop"
        self._show(words)

    def is_enough(self) -> bool:
        """Whether the watch ends now, before its limit."""
        if self._is_fixed:
            return False
        if self._certain_since_s is None:
            return self._clock() - self._began_s >= self.limit_s
        return self._clock() - self._certain_since_s >= LEAST_S


def _count_of(findings: Sequence[Finding]) -> str:
    if not findings:
        return "no finding yet"
    return "1 finding so far" if len(findings) == 1 else f"{len(findings)} findings so far"


MOVED_S = 3.0
"""A process that has waited for less is not mentioned while it is watched."""


def stalled_words(snapshot: Snapshot) -> str | None:
    """A process that makes no progress and is not idle by design, in words; `None` without one.

    A process that computes makes progress, and so does a parent that joins it.
    """
    from mpwatch.diagnose.analysis.index import Index
    from mpwatch.diagnose.analysis.waits.blockages import blockages

    for chain in snapshot.waits.chains:
        since_s = chain.links[0].since_s or 0.0
        if chain.verdict in ("cycle", "dead-end") and since_s >= MOVED_S:
            return f"{chain.links[0].who} has made no progress for {seconds_text(since_s)}"
    for blockage in blockages(Index(snapshot)):
        if blockage.reason != "computes" and blockage.waited_s >= MOVED_S:
            name = (blockage.waiters or (blockage.process,))[0].label
            return f"{name} has made no progress for {seconds_text(blockage.waited_s)}"
    return None


RISES: Sequence[tuple[str, str, float]] = (
    ("private_bytes", "private memory", 3 << 20),
    ("fds", "open descriptors", 4),
    ("maps", "memory mappings", 24),
)
"""The trends of a process, what they are of, and the least rise that may be the start of one."""
RISE_POINTS = 6


def rising_words(snapshot: Snapshot) -> str | None:
    """A process of which a resource has risen for as long as it was watched, in words."""
    for process in snapshot.living():
        for name, noun, least in RISES:
            values = [each for each in getattr(process.trends, name) if each is not None]
            count = len(values)
            if count < RISE_POINTS or values[-1] - values[0] < least:
                continue
            thirds = [min(values[n * count // 3 : (n + 1) * count // 3]) for n in range(3)]
            if thirds[0] < thirds[1] < thirds[2] < values[-1]:
                return f"{process.label} uses ever more {noun}"
    return None


def _watched(pid: int, arguments: argparse.Namespace) -> tuple[Snapshot, bool]:
    """The job after the watch, and whether the user has interrupted it."""
    from mpwatch.observe.sources.oneshot import OneShotOptions, watch_for

    options = OneShotOptions(hook=hook_use(arguments))
    process = target(pid)
    with (
        injecting(process, arguments) as inject,
        Progress(f"watching {pid}", arguments.seconds) as progress,
    ):
        watch = DiagnosisWatch(arguments.seconds, progress.show)
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
