"""Several trials at once: most of these programs use no cpu while they are observed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from tests.integration.demo.trial import Case, Row

JOBS = 4


@contextlib.contextmanager
def trials(
    cases: Sequence[Case], trial: Callable[[Case], Row], jobs: int = JOBS
) -> Iterator[Mapping[str, Future[Row]]]:
    """Begin trials, the longest first, and the ones that need the machine alone after all others.

    Yields:
        The row to come of each case, by its name. What has not begun by the end is given up.
    """
    together = sorted((c for c in cases if not c.is_alone), key=lambda case: -case.watch_s)
    with ThreadPoolExecutor(jobs) as many, ThreadPoolExecutor(1) as single:
        rows = {case.name: many.submit(trial, case) for case in together}
        others = tuple(rows.values())

        def alone(case: Case) -> Row:
            wait(others)
            return trial(case)

        rows |= {case.name: single.submit(alone, case) for case in cases if case.is_alone}
        try:
            yield rows
        finally:
            for row in rows.values():
                row.cancel()
