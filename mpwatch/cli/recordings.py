"""Commands about recordings and metrics."""

from __future__ import annotations

import argparse
import sys
import threading

from mpwatch.cli.failures import EXIT_NO_SUCH_PROCESS, Failure, check_recordable, reading, writing
from mpwatch.cli.targets import ended_meanwhile, hook_use, injecting, of_job, target, tell_part
from mpwatch.cli.terminal import Progress, ProgressBar, tell_recorded, text_style
from mpwatch.model.snapshot import Snapshot


def record(arguments: argparse.Namespace) -> int:
    """Write everything observed to a file until the job ends, `--for` has passed or Ctrl-C."""
    if of_job(arguments, arguments.pid, "record"):
        from mpwatch.cli import nodes

        return nodes.record(arguments)
    from mpwatch.observe.recording.file import RecordingWriter
    from mpwatch.observe.sources.oneshot import OneShotOptions, watch_for

    process = target(arguments.pid)
    tell_part(process, "record")
    check_recordable(arguments.output)
    writer = RecordingWriter(arguments.output, process)
    seconds = arguments.seconds or 365 * 86_400.0

    def show(seen: Snapshot) -> None:
        progress.show(f"{len(seen.living())} processes")

    try:
        with (
            injecting(process, arguments) as inject,
            Progress(f"recording {arguments.pid}", arguments.seconds) as progress,
        ):
            snapshot = watch_for(
                process,
                seconds,
                OneShotOptions(hook=hook_use(arguments)),
                inject=inject,
                keep=writer.write,
                each=show,
                period_s=1.0 / arguments.refresh,
                diagnose=False,
            )
    except KeyboardInterrupt:
        # Ctrl-C is the usual way to end a recording without `--for`.
        return 0
    finally:
        writer.close()
        if writer.problem is not None:
            print(f"mpwatch: {writer.problem}", file=sys.stderr)
        tell_recorded(arguments.output, writer.recorded_s)
    if snapshot is None:
        raise ended_meanwhile(arguments.pid)
    return 0


def report(arguments: argparse.Namespace) -> int:
    """Write a recording, or a job on several machines, as one page of HTML."""
    if of_job(arguments, arguments.file, "report", "FILE"):
        from mpwatch.cli import nodes

        return nodes.report(arguments)
    if arguments.seconds is not None:
        raise Failure("--for is for a job on several machines.", "mpwatch report --job SPEC")
    from mpwatch.observe.recording.file import is_of_several_nodes
    from mpwatch.observe.sources.replay import replay_course
    from mpwatch.report.html import report_html

    with reading(arguments.file), ProgressBar(f"reading {arguments.file}") as bar:
        if is_of_several_nodes(arguments.file):
            from mpwatch.cli import nodes

            page = nodes.recorded_page(arguments.file, bar.update)
        else:
            page = report_html(*replay_course(arguments.file, bar.update))
    with writing(arguments.output) as file:
        file.write(page)
    return 0


def trace(arguments: argparse.Namespace) -> int:
    """Write the hook events of a recording as a trace for Perfetto."""
    from mpwatch.observe.recording.file import Recording
    from mpwatch.report.trace import write_trace

    with reading(arguments.file):
        recording = Recording(arguments.file)
    with (
        recording,
        writing(arguments.output) as file,
        ProgressBar(f"reading {arguments.file}") as bar,
    ):
        inputs = recording.inputs(on_part=bar.update)
        count = write_trace(inputs, recording.header.at_s, file)
    if count == 0:
        print("mpwatch: the recording has no hook events; was the hook loaded?", file=sys.stderr)
    return 0


def autopsy(arguments: argparse.Namespace) -> int:
    """Print the last events of dead processes, from the files of their hooks."""
    from mpwatch.report.autopsy import NothingLeft, autopsies, autopsy_text

    try:
        found = autopsies(arguments.subject)
    except NothingLeft as error:
        raise Failure(str(error), "mpwatch ps", EXIT_NO_SUCH_PROCESS) from None
    print(autopsy_text(found, style=text_style()))
    return 0


def export(arguments: argparse.Namespace) -> int:
    """Serve the metrics of one job to this machine until it ends or Ctrl-C."""
    if of_job(arguments, arguments.pid, "export"):
        from mpwatch.cli import nodes

        return nodes.export(arguments)
    from mpwatch.observe.sources.live import LiveOptions, LiveSource
    from mpwatch.report.prometheus import CannotServe, MetricsServer, parse_address

    process = target(arguments.pid)
    try:
        server = MetricsServer(*parse_address(arguments.prometheus))
    except CannotServe as error:
        fix = f"mpwatch export {arguments.pid} --prometheus 127.0.0.1:9400"
        raise Failure(str(error), fix) from None
    options = LiveOptions(refresh_hz=arguments.refresh, hook=hook_use(arguments), stacks=False)
    has_ended = threading.Event()

    def take(snapshot: Snapshot) -> None:
        server.show(snapshot)
        if snapshot.mode == "ended":
            has_ended.set()

    with injecting(process, arguments) as inject:
        source = LiveSource(process, options, inject=inject)
        server.start()
        print(f"serving {server.url}", flush=True)
        try:
            source.start(take)
            has_ended.wait()
        finally:
            source.stop()
            server.stop()
    return 0
