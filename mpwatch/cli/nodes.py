"""Commands for jobs on several machines: the agent on a node, and reports of a whole job."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mpwatch.cli.configuration import read_configuration
from mpwatch.cli.diagnosis_watch import JobDiagnosisWatch, severities_of_nodes
from mpwatch.cli.failures import (
    EXIT_FINDINGS,
    EXIT_INTERRUPTED,
    EXIT_NO_SUCH_PROCESS,
    Failure,
    check_recordable,
    reading,
    writing,
)
from mpwatch.cli.targets import exiting_on_signals
from mpwatch.cli.terminal import (
    Progress,
    ProgressBar,
    is_served,
    need_terminal,
    tell_recorded,
    text_style,
)
from mpwatch.model.findings import Severity

if TYPE_CHECKING:
    from mpwatch.model.findings import JobFinding
    from mpwatch.model.snapshot import Snapshot
    from mpwatch.nodes.head.head import Head
    from mpwatch.nodes.head.node import Keep, NodeView
    from mpwatch.nodes.launchers.launch import ChangingNodes, Launch
    from mpwatch.nodes.wire.messages import Ask


def node(arguments: argparse.Namespace) -> int:
    """Serve a head on standard input and output until the input ends."""
    if sys.stdin.isatty() or sys.stdout.isatty():
        raise Failure(
            "mpwatch node speaks to another mpwatch through pipes, not to a terminal.",
            "mpwatch dump --job ssh:HOST",
        )
    values = read_configuration().values  # of the user whose processes of this node are observed
    if arguments.relay:
        return _relay(arguments)
    source, sink = _own_descriptors()
    from mpwatch.nodes.agent.agent import STOP_S, Agent
    from mpwatch.nodes.agent.jobs_of_node import JobsOfNode, Selection, find_roots

    selection = Selection(
        arguments.job_pids, arguments.raylet, dict(arguments.match), arguments.part
    )
    jobs = JobsOfNode(lambda: find_roots(selection), values=values)
    agent = Agent(source, sink, jobs, _read_again)
    jobs.start()
    try:
        agent.run()
    finally:
        jobs.stop(STOP_S)
    return 0


def _relay(arguments: argparse.Namespace) -> int:
    """Relay the connections of a head to other nodes."""
    from mpwatch.nodes.agent.relay import Relay
    from mpwatch.nodes.launchers.engines import relayed
    from mpwatch.nodes.launchers.launch import AgentCommand, CannotLaunch

    try:
        launches = relayed(arguments.relay, AgentCommand(dict(arguments.match), arguments.agent))
    except CannotLaunch as error:
        raise Failure(str(error), error.fix) from None
    Relay(*_own_descriptors(), launches).run()
    return 0


def _own_descriptors() -> tuple[int, int]:
    """Standard input and output, moved to where nothing else reads or prints.

    A line that some library prints would otherwise be mixed into the frames, and a program started
    from here would keep the pipe open. What is printed goes to standard error.
    """
    source, sink = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    return source, sink


def _read_again(snapshots: Sequence[Snapshot], ask: Ask) -> list[Snapshot]:
    """Read each job anew; of one that has ended, its last snapshot."""
    from mpwatch.observe.sources.oneshot import OneShotOptions, read_once

    options = OneShotOptions(stacks=ask.stacks, native=ask.native, locals=ask.locals)
    return [
        each if each.mode == "ended" else read_once(each.root, options) or each
        for each in snapshots
    ]


def job(arguments: argparse.Namespace) -> int:
    """Open the dashboard on a job on several machines."""
    spec = arguments.job or _own_allocation()
    launches = job_launches(spec, arguments)
    try:
        need_terminal(f"mpwatch dump --job {shlex.quote(spec)}")
    except Failure:
        _close(launches)
        raise
    _warn_of_descriptors(launches)
    from mpwatch.nodes.job_source import LiveJobSource
    from mpwatch.tui.job_app import run_job

    shown = spec if spec != _OWN_ALLOCATION else f"{spec}{os.environ['SLURM_JOB_ID']}"
    source = LiveJobSource(shown, launches)
    try:
        return run_job(source, shown, needs_terminal=not is_served())
    finally:
        source.stop()


_OWN_ALLOCATION = "slurm:"


def _own_allocation() -> str:
    """The SPEC of the Slurm allocation that this command runs in.

    Raises:
        Failure: It runs in none.
    """
    if not os.environ.get("SLURM_JOB_ID"):
        raise Failure(
            "Which job? SPEC may be left out inside a Slurm allocation only.",
            "mpwatch job ssh:HOST,HOST",
        )
    return _OWN_ALLOCATION


# --- reports of a whole job ----------------------------------------------------------------------

STARTS_S = 300.0
"""How long agents may take to be started, all of them: a thousand take 64 s."""
ANSWER_S = 120.0
"""How long nodes may take for their answers: a dump with native stacks takes a tenth of a second
for each process."""


STACKS_S = 3.0


def dump(arguments: argparse.Namespace) -> int:
    """Print all nodes of a job once."""
    from mpwatch.nodes.across.judge import job_findings

    with _connected(arguments) as (head, progress):
        _watch(head, progress, lambda _seconds: head.is_settled, None)
        options = {
            "stacks": not arguments.no_stacks,
            "native": arguments.native,
            "locals": arguments.locals,
        }
        documents, problems = _ask_all(head, progress, "dump", options)
        views = head.last_views() if arguments.no_stacks else _with_stacks(head)
    _print(views, job_findings(views), arguments, documents, problems)
    return 0


def _with_stacks(head: Head) -> tuple[NodeView, ...]:
    """The nodes, once the stacks of ranks that make no progress are known, or after `STACKS_S`.

    Agents take these one after the other; what a document has is not part of the rows.
    """
    end_s = time.monotonic() + STACKS_S
    while time.monotonic() < end_s and any(
        row.quiet_at_s is not None and not row.has_stack and not row.is_ended
        for view in head.views()
        if view.state == "live" and view.summary is not None
        for row in view.summary.ranks
    ):
        head.step()
    return head.last_views()


def diagnose(arguments: argparse.Namespace) -> int:
    """Watch all nodes of a job for a while and print the findings."""
    from mpwatch.nodes.across.judge import job_findings

    watch = JobDiagnosisWatch(arguments.seconds)
    is_interrupted = False
    with _connected(arguments) as (head, progress):
        try:
            views = _watch(head, progress, lambda s: watch.is_enough(head, s), watch.most_s)
        except KeyboardInterrupt:
            is_interrupted, views = True, head.last_views()
        documents, problems = _ask_all(head, progress, "diagnose", {})
    findings = job_findings(views)
    _print(views, findings, arguments, documents, problems)
    return EXIT_INTERRUPTED if is_interrupted else _exit_code(views, findings, arguments)


def report(arguments: argparse.Namespace) -> int:
    """Watch all nodes of a job as `diagnose` does and write them as one page of HTML."""
    from mpwatch.model.units import seconds_text
    from mpwatch.nodes.across.judge import job_findings
    from mpwatch.nodes.report import job_html
    from mpwatch.report.json import utc_text

    watch = JobDiagnosisWatch(arguments.seconds)
    began_s, is_interrupted = time.monotonic(), False
    with _connected(arguments) as (head, progress):
        try:
            views = _watch(head, progress, lambda s: watch.is_enough(head, s), watch.most_s)
        except KeyboardInterrupt:
            is_interrupted, views = True, head.last_views()
    at = utc_text(time.time())[:19].replace("T", " ") + " UTC"
    facts = (
        at,
        f"read from {socket.gethostname()}",
        f"observed for {seconds_text(time.monotonic() - began_s)}",
    )
    with writing(arguments.output) as file:
        file.write(job_html(arguments.job, facts, views, job_findings(views)))
    return EXIT_INTERRUPTED if is_interrupted else 0


def _exit_code(
    views: Sequence[NodeView], findings: Sequence[JobFinding], arguments: argparse.Namespace
) -> int:
    """1 if the job or a node has a finding at or above the threshold, else 0."""
    if arguments.fail_on == "never":
        return 0
    present = (each.severity for each in findings if each.resolved_s is None)
    found = [*present, *severities_of_nodes(views)]
    threshold = Severity[arguments.fail_on.upper()]
    return EXIT_FINDINGS if any(each >= threshold for each in found) else 0


@contextlib.contextmanager
def _connected(
    arguments: argparse.Namespace, *, restarts: bool = False, keep: Keep | None = None
) -> Iterator[tuple[Head, Progress]]:
    """The head of the job, with its agents being started; ended when the command ends."""
    from mpwatch.nodes.head.head import Head

    launches = job_launches(arguments.job, arguments)
    _warn_of_descriptors(launches)
    head = Head(launches, restarts=restarts, keep=keep)
    with exiting_on_signals(), Progress(f"reading {arguments.job}") as progress:
        try:
            yield head, progress
        finally:
            head.close()


def _require_job(arguments: argparse.Namespace) -> None:
    """Fail now where a SPEC is wrong or its engine is not there."""
    _close(job_launches(arguments.job, arguments))


def _close(launches: Sequence[Launch] | ChangingNodes) -> None:
    """End what was started to know the nodes."""
    if not isinstance(launches, Sequence):
        launches.close()


def job_launches(spec: str, arguments: argparse.Namespace) -> Sequence[Launch] | ChangingNodes:
    """The nodes of a job.

    Raises:
        Failure: SPEC names no job, or its engine is absent or does not know the job.
    """
    from mpwatch.nodes.launchers.engines import launches
    from mpwatch.nodes.launchers.launch import AgentCommand, CannotLaunch

    try:
        with Progress(f"looking for the nodes of {spec}"):
            return launches(spec, AgentCommand(dict(arguments.match), arguments.agent))
    except CannotLaunch as error:
        raise Failure(str(error), error.fix) from None


def _warn_of_descriptors(launches: Sequence[Launch] | ChangingNodes) -> None:
    """Say before anything starts if there are too few descriptors for all nodes."""
    from mpwatch.nodes.head.head import shortage

    found = shortage(launches if isinstance(launches, Sequence) else launches.launches())
    if found is not None:
        print(f"mpwatch: {found.sentence}\n  try: {found.fix}", file=sys.stderr)


def _watch(
    head: Head, progress: Progress, is_enough: Callable[[float], bool], limit_s: float | None
) -> tuple[NodeView, ...]:
    """Receive until it is enough, for at most the time that a node may take to start and more.

    That time begins with the last start: many agents are started one after the other.

    Returns:
        The nodes as they were then; those that are not known have a problem.

    Raises:
        Failure: No node can be read.
    """
    began_s = time.monotonic()
    while not is_enough(time.monotonic() - began_s):
        last_start_s = min(head.last_start_s, began_s + STARTS_S)
        if time.monotonic() >= last_start_s + head.start_s + (limit_s or 0.0):
            break
        head.step()
        views = head.views()
        states = Counter(view.state for view in views)
        progress.show(", ".join(f"{count} {state}" for state, count in states.items()))
        _need_a_node(views)
    return head.last_views()


def _need_a_node(views: Sequence[NodeView]) -> None:
    """Require a node that can be read, or that may still be.

    Raises:
        Failure: None of them has sent anything, and none is being started.
    """
    if views and all(view.state == "failed" and view.last_seen_s is None for view in views):
        first = views[0]
        sentence = f"No node of the job can be read; {first.name}: {first.problem}"
        raise Failure(sentence, first.fix, EXIT_NO_SUCH_PROCESS)


def _ask_all(
    head: Head,
    progress: Progress,
    what: str,
    options: Mapping[str, bool],
    limit_s: float = ANSWER_S,
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The answers of all live nodes by name, and why others have not answered."""
    requests = {
        view.name: head.ask(view.name, what, **options)
        for view in head.views()
        if view.state in ("live", "silent")
    }
    documents: dict[str, dict[str, Any]] = {}
    problems: dict[str, str] = {}
    end_s = time.monotonic() + limit_s
    while len(documents) + len(problems) < len(requests):
        head.step()
        progress.show(f"{len(documents)} of {len(requests)} nodes have answered")
        for name, request in requests.items():
            answer = head.answer(request)
            if answer is not None and answer.document is not None:
                documents[name] = answer.document
            elif answer is not None:
                problems[name] = answer.problem
            elif time.monotonic() > end_s and name not in documents:
                problems[name] = f"It did not answer within {limit_s:.0f} s."
    return documents, problems


def _print(
    views: Sequence[NodeView],
    findings: Sequence[JobFinding],
    arguments: argparse.Namespace,
    documents: Mapping[str, dict[str, Any]],
    problems: Mapping[str, str],
    wall_s: float | None = None,
    at_s: float = 0.0,
) -> None:
    from mpwatch.nodes.agent.documents import EMPTY_DIAGNOSIS, EMPTY_DUMP
    from mpwatch.nodes.report import NO_FINDINGS, job_json, job_stack_lines, job_text
    from mpwatch.report.json import text_of
    from mpwatch.report.text import heading

    if arguments.json:
        empty = EMPTY_DUMP if arguments.command[1] == "dump" else EMPTY_DIAGNOSIS
        document = job_json(
            views,
            documents,
            findings,
            wall_s=time.time() if wall_s is None else wall_s,
            problems=problems,
            empty=empty,
            at_s=at_s,
        )
        print(text_of(document))
    else:
        style = text_style()
        if arguments.command[1] != "dump":
            print(job_text(views, findings, style=style))
            return
        command = f"mpwatch diagnose --job {shlex.quote(arguments.job)}"
        without = f"{NO_FINDINGS[:-1]} in one look; {command} watches it."
        print(job_text(views, findings, style=style, without=without))
        if stacks := job_stack_lines(documents, style):
            print("\n".join((*heading("stacks", "innermost call first", style), *stacks)))
        for name, problem in problems.items():
            print(f"mpwatch: no stacks of {name}: {problem}", file=sys.stderr)


# --- recordings of a whole job -------------------------------------------------------------------

LAST_ANSWER_S = 20.0
"""How long a recording waits for the diagnoses of the nodes, which are its last messages."""


def record(arguments: argparse.Namespace) -> int:
    """Write what the nodes send to a file until all jobs end, `--for` has passed or Ctrl-C."""
    from mpwatch.nodes.recording import JobRecordingWriter

    check_recordable(arguments.output)
    _require_job(arguments)  # a wrong SPEC leaves no file behind
    writer = JobRecordingWriter(arguments.output, arguments.job)
    end_s = time.monotonic() + (arguments.seconds or float("inf"))
    try:
        with _connected(arguments, restarts=True, keep=writer.message) as (head, progress):
            with contextlib.suppress(KeyboardInterrupt):
                while time.monotonic() < end_s and not writer.is_long_enough:
                    head.step()
                    views = head.views()
                    writer.states(views, head.full_summaries)
                    states = Counter(view.state for view in views)
                    progress.show(", ".join(f"{count} {state}" for state, count in states.items()))
                    _need_a_node(views)
                    if head.is_settled and _has_ended(views):
                        break
            _ask_all(head, progress, "diagnose", {}, LAST_ANSWER_S)
            writer.states(head.views(), head.full_summaries)
    except Failure:
        os.unlink(arguments.output)  # it holds nothing, and the next attempt needs its name
        raise
    except KeyboardInterrupt:
        pass  # the usual way to end a recording
    finally:
        writer.close()
        if writer.problem is not None:
            print(f"mpwatch: {writer.problem}", file=sys.stderr)
    tell_recorded(arguments.output, writer.recorded_s)
    return 0


def _has_ended(views: Sequence[NodeView]) -> bool:
    """Whether there was a job, and it has ended on all nodes that had it."""
    states = Counter(view.summary.node.state for view in views if view.summary is not None)
    return states["ended"] > 0 and not states["watching"] and not states["starting"]


def replay(arguments: argparse.Namespace) -> int:
    """Open the dashboard on a recording of several nodes."""
    from mpwatch.nodes.job_source import ReplayJobSource
    from mpwatch.tui.job_app import run_job

    source = ReplayJobSource(arguments.file)
    try:
        need_terminal(f"mpwatch diagnose {shlex.quote(arguments.file)}")
        return run_job(source, source.spec, needs_terminal=not is_served())
    finally:
        source.stop()


def diagnose_recording(path: str, arguments: argparse.Namespace) -> int:
    """Print the findings of a recording of several nodes, as they were at its end."""
    from mpwatch.nodes.recording import problems_of, replayed_to_end

    with reading(path), ProgressBar(f"reading {path}") as bar:
        recording, player, views, findings = replayed_to_end(path, bar.update)
    documents = player.documents()
    missing = "The recording has only the summary of this node."
    problems = {view.name: missing for view in views if view.name not in documents}
    wall_s = recording.header.wall_s + player.at_s
    _print(views, findings, arguments, documents, problems, wall_s, player.at_s)
    for problem in problems_of(recording, player):
        print(f"mpwatch: {problem}", file=sys.stderr)
    return _exit_code(views, findings, arguments)


def recorded_page(path: str, on_part: Callable[[float], None]) -> str:
    """A recording of several nodes as one page of HTML, as it was at its end."""
    from mpwatch.model.units import seconds_text
    from mpwatch.nodes.recording import problems_of, replayed_to_end
    from mpwatch.nodes.report import job_html
    from mpwatch.report.json import utc_text

    recording, player, views, findings = replayed_to_end(path, on_part)
    header = recording.header
    at = utc_text(header.wall_s + player.at_s)[:19].replace("T", " ") + " UTC"
    facts = (at, f"recorded on {header.host}", f"for {seconds_text(player.length_s)}")
    problems = problems_of(recording, player)
    return job_html(header.spec, facts, views, findings, problems)


# --- metrics of a whole job ----------------------------------------------------------------------

METRICS_S = 5.0
"""Interval at which nodes are asked for their metrics; Prometheus reads every 15 s or more."""


def export(arguments: argparse.Namespace) -> int:
    """Serve the metrics of all nodes to this machine until all jobs end or Ctrl-C."""
    from mpwatch.nodes.report import job_metrics
    from mpwatch.report.prometheus import (
        CannotServe,
        MetricsServer,
        exposition_of,
        parse_address,
    )

    _require_job(arguments)
    try:
        server = MetricsServer(*parse_address(arguments.prometheus))
    except CannotServe as error:
        fix = f"mpwatch export --job {shlex.quote(arguments.job)} --prometheus 127.0.0.1:9400"
        raise Failure(str(error), fix) from None
    server.start()
    print(f"serving {server.url}", flush=True)
    pending: dict[str, int] = {}
    answers: dict[str, dict[str, Any]] = {}
    due_s = 0.0
    try:
        with _connected(arguments, restarts=True) as (head, _):
            while True:
                head.step()
                views = head.views()
                _need_a_node(views)
                _collect_answers(head, pending, answers)
                if time.monotonic() >= due_s:
                    due_s = time.monotonic() + METRICS_S
                    for view in views:
                        if view.state == "live" and view.name not in pending:
                            pending[view.name] = head.ask(view.name, "metrics")
                    server.show_text(exposition_of(job_metrics(views, answers)))
                if head.is_settled and _has_ended(views):
                    return 0
    finally:
        server.stop()


def _collect_answers(
    head: Head, pending: dict[str, int], answers: dict[str, dict[str, Any]]
) -> None:
    """Take the answers that have arrived; of a node that has not answered there are none."""
    for name, request in list(pending.items()):
        answer = head.answer(request)
        if answer is not None:
            del pending[name]
            answers.pop(name, None)
            if answer.document is not None:
                answers[name] = answer.document
