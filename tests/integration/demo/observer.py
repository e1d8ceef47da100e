"""Watches a job as `mpwatch diagnose` does, and prints its findings whenever they change.

    python -m tests.integration.demo.observer [--rights RIGHT] [--settle SECONDS RULE... --] SECONDS

A process of its own, as it is for a user: what it costs does not slow down whoever started it. It
reads the pid from standard input, once it is up. RIGHT is `proc` for one that may not trace, and
`attach` for one that injects the hook.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator

from mpwatch.attach.attach_session import AttachSession
from mpwatch.collect.process.identify import identify
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.attach_schedule import Inject
from mpwatch.observe.sources.oneshot import OneShotOptions, watch_for
from mpwatch.report.json import diagnose_json
from tests.integration.demo.refusals import refuse_tracing


class Telling:
    """Prints each finding once, and whether all expected rules have been named."""

    def __init__(self, expected: tuple[str, ...], settle_s: float) -> None:
        self._began_s = time.monotonic()
        self._said: set[tuple[str, str, str | None]] = set()
        self._waiting = set(expected)
        self._settle_s = settle_s
        self._enough_s: float | None = None

    def tell(self, snapshot: Snapshot) -> None:
        """Print what is new in a snapshot."""
        after_s = time.monotonic() - self._began_s
        for finding in diagnose_json(snapshot)["findings"]:
            key = (finding["rule"], finding["severity"], finding["effect_of"])
            if key not in self._said:
                self._said.add(key)
                said = {"after_s": after_s, "at_s": snapshot.at_s, "finding": finding}
                print(json.dumps(said), flush=True)
            if finding["rule"] in self._waiting:
                self._waiting.discard(finding["rule"])
                if not self._waiting:
                    self._enough_s = after_s + self._settle_s

    def is_over(self) -> bool:
        """Whether all expected rules were named long enough ago."""
        return self._enough_s is not None and time.monotonic() - self._began_s > self._enough_s


@contextlib.contextmanager
def injecting(root: ProcessId) -> Iterator[Inject]:
    """Injects the hook, and detaches it in the end."""
    session = AttachSession(root, keeps=False)
    try:
        yield session.inject
    finally:
        session.end()


def main() -> None:
    """Watch one job."""
    parser = argparse.ArgumentParser()
    parser.add_argument("seconds", type=float)
    parser.add_argument("--rights", choices=("proc", "usual", "attach"), default="usual")
    parser.add_argument("--settle", nargs="+", default=["inf"], metavar=("SECONDS", "RULE"))
    options = parser.parse_args()
    settle_s, *expected = options.settle
    if options.rights == "proc":
        refuse_tracing()
    pid = sys.stdin.readline().strip()
    if not pid:
        return  # the pid was not sent: there is no program to observe
    telling = Telling(tuple(expected), float(settle_s))
    root = identify(int(pid))
    with injecting(root) if options.rights == "attach" else contextlib.nullcontext() as inject:
        last = watch_for(
            root,
            options.seconds,
            OneShotOptions(hook="inject" if inject else "use"),
            inject=inject,
            stop=telling.is_over,
            each=telling.tell,
        )
    if last is not None:
        telling.tell(last)


if __name__ == "__main__":
    main()
