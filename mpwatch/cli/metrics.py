"""Commands that serve metrics: export."""

from __future__ import annotations

import argparse
import threading

from mpwatch.cli.failures import Failure
from mpwatch.cli.targets import hook_use, injecting, target
from mpwatch.model.snapshot import Snapshot


def export(arguments: argparse.Namespace) -> int:
    """Serve the metrics of one job to this machine until it ends or Ctrl-C."""
    from mpwatch.observe.sources.live import LiveOptions, LiveSource
    from mpwatch.report.metrics_server import CannotServe, MetricsServer, parse_address

    process = target(arguments.pid)
    try:
        server = MetricsServer(*parse_address(arguments.prometheus))
    except CannotServe as error:
        raise Failure(str(error), "--prometheus 127.0.0.1:9109") from None
    options = LiveOptions(refresh_hz=arguments.refresh, hook=hook_use(arguments), stacks=False)
    has_ended = threading.Event()

    def take(snapshot: Snapshot) -> None:
        server.take(snapshot)
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
