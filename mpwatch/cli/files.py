"""Commands about recordings."""

from __future__ import annotations

import argparse

from mpwatch.cli.dashboards import check_recordable
from mpwatch.cli.progress import Progress
from mpwatch.cli.targets import bring, ended_meanwhile, hook_use, target


def record(arguments: argparse.Namespace) -> int:
    """Write everything observed to a file until the job ends, a time is over or Ctrl-C."""
    from mpwatch.observe.once import LookOptions, watch_for
    from mpwatch.observe.recording import RecordingWriter

    process = target(arguments.pid)
    check_recordable(arguments.output)
    writer = RecordingWriter(arguments.output, process)
    seconds = arguments.seconds or 365 * 86_400.0
    try:
        with Progress(f"recording {arguments.pid}", arguments.seconds) as progress:
            snapshot = watch_for(
                process,
                seconds,
                LookOptions(hook=hook_use(arguments)),
                bring=bring,
                keep=writer.write,
                stop=lambda: writer.problem is not None,
                each=lambda seen: progress.say(f"{len(seen.living())} processes"),
                period_s=1.0 / arguments.refresh,
            )
    except KeyboardInterrupt:
        # The usual way to end a recording that has no end of its own.
        return 0
    finally:
        writer.close()
    if snapshot is None:
        raise ended_meanwhile(arguments.pid)
    return 0
