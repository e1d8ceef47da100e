"""Processes that sleep for much of their time because a call has failed, and then try it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from mpwatch.diagnose.analysis.idle_time import mean_cpu_percent
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.pipes import listening_at
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.source.lines import line_at
from mpwatch.diagnose.analysis.throughput.shares import (
    doing_words,
    idle_share,
    main_account,
    shares,
    waiting_share,
)
from mpwatch.model.account import Activity
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import OriginStep, Retry, SourceLine

TOLD_SHARE = 0.25
"""Of its time; a rare retry is less."""
MOST_SHARE = 0.5
WORKS_PERCENT = 1.0
"""CPU use of a process that gets further between its retries. One that only waits for a server to
start uses less (`stalls.polling` tells of it)."""
LATELY = 6
"""Buckets of the account: half a minute."""
LATELY_SEEN = 4
"""So many of them have such sleeps: others are over, as the wait for a server at the start is."""
UNUSED_SHARE = 0.6
SHOWN = 3


class Retrying(Struct, frozen=True):
    """A process that sleeps before it tries a failed call again."""

    process: Process
    share: float
    """Of its time, 0 to 1."""
    line: SourceLine
    """At which it sleeps."""
    retry: Retry
    gone: tuple[Process, ...]
    """Processes of the job that have ended and were seen to listen where no other one does now."""
    listening: tuple[str, ...]
    """The addresses at which processes of the job listen now."""
    unused: tuple[Process, ...]
    """Processes that wait or have nothing to do for most of the time."""
    doing: tuple[str, ...]

    @property
    def place(self) -> str:
        """`gateway.py:33 send`."""
        return f"{_base(self.line.file)}:{self.line.statement.line} {self.line.function}"

    @property
    def is_most(self) -> bool:
        """Whether most of its time is lost to a target that is gone and is still chosen."""
        is_known = bool(self.gone) and self.retry.chosen is not None
        return self.share >= MOST_SHARE and self.retry.is_connection and is_known

    @property
    def summary(self) -> str:
        """What is seen."""
        failed = self.retry.statement
        return (
            f"{called(self.process)} sleeps {self.share:.0%} of the time at {self.place}, each "
            f"time after `{failed.text}` (line {failed.line}) has failed"
        )

    @property
    def evidence(self) -> Iterator[str]:
        """The handler, what chooses the target, and what has ended."""
        retry, file = self.retry, _base(self.line.file)
        yield from self.doing
        yield (
            f"that line is reached by `{retry.handler.text}` ({file}:{retry.handler.line}), in "
            f"`{retry.loop.text}` ({file}:{retry.loop.line}), which then tries again"
        )
        if retry.chosen is not None:
            yield (
                f"{_step(retry.chosen)} chooses {retry.target} before that loop, so that all "
                "attempts go to the same one"
            )
        if retry.kept is not None:
            yield (
                f"{_step(retry.kept)} fills what it is chosen from, and nothing in that file takes "
                "one out again"
            )
        for each in self.gone[:SHOWN]:
            ports = ", ".join(listening_at(each).values())
            ended = each.ended.words if each.ended is not None else ""
            yield f"{called(each)}, which listened at {ports}, has ended: {ended}"
        if self.listening:
            yield f"processes of the job listen at {', '.join(self.listening[:SHOWN])} now"

    @property
    def cause(self) -> str:
        """Why it fails again and again."""
        retry = self.retry
        words = (
            "An exception of that call is caught, and costs a pause before the next attempt, "
            f"{self.share:.0%} of all time."
        )
        if self.gone and retry.is_connection:
            words += self._cause_of_gone
        elif retry.kept is not None and retry.is_connection:
            words += (
                f" It may be that what {retry.target} is chosen from still contains one that "
                "answers no more, as it never gets shorter."
            )
        if retry.chosen is not None:
            words += (
                f" Each time that its turn comes, all attempts are made with it (`{retry.loop.text}"
                f"` in line {retry.loop.line}) before another one is tried."
            )
        if self.unused:
            words += (
                f" {all_called(self.unused, SHOWN)} {_wait(self.unused)} meanwhile: they are not "
                "what is slow."
            )
        return words

    @property
    def _cause_of_gone(self) -> str:
        """What an ended process has to do with it: certain only where it is chosen again."""
        names, is_one = all_called(self.gone, SHOWN), len(self.gone) == 1
        ended = f"{'it has' if is_one else 'they have'} ended, nothing listens at"
        whose, them = ("its address", "it") if is_one else ("their addresses", "them")
        refused = f"{ended} {whose} any more, so a connection to {them} is refused at once"
        if self.retry.chosen is None:
            return f" It may be that {names} should answer that call: {refused}."
        counts = "counts as one that answers" if is_one else "count as ones that answer"
        return (
            f" Most likely {names} still {counts}: {refused}, and what {self.retry.target} is "
            f"chosen from still contains {them}."
        )

    @property
    def advice(self) -> str:
        """What to change."""
        retry = self.retry
        limit = (
            " Nothing is wrong if that pause is what a server asks for (a rate limit)."
            if not (self.gone and retry.is_connection)
            else ""
        )
        log = f"Log what `{retry.handler.text}` catches, with what it was called for."
        if retry.chosen is None:
            return (
                f"{log} Wait longer only where the next attempt can succeed, bound the attempts, "
                f"and see to it that what they call is there.{limit}"
            )
        return (
            f"{log} Take the next one at once in place of the same one again, and take what has "
            "refused a connection out of what is chosen from, or pass on the new list when a "
            "process is ended. More or faster processes, and longer time limits, do not help; a "
            f"shorter pause only makes it milder.{limit}"
        )


def _wait(processes: Sequence[Process]) -> str:
    return "has nothing to do" if len(processes) == 1 else "have nothing to do"


def _base(file: str) -> str:
    return file.rpartition("/")[2]


def _step(step: OriginStep) -> str:
    return f"`{step.statement.text}` ({_base(step.file)}:{step.statement.line} {step.function})"


def retrying(index: Index) -> Iterator[Retrying]:
    """The processes that lose much of their time to such sleeps, and get further in between."""
    if not any(line.retry is not None for line in index.snapshot.source):
        return
    for process in index.snapshot.living():
        if process.role in SERVICE_ROLES:
            continue
        found = _slept(index, process)
        cpu_percent = mean_cpu_percent(process, index.history)
        if found is None or cpu_percent is None or cpu_percent < WORKS_PERCENT:
            continue
        line, share = found
        if share < TOLD_SHARE or line.retry is None or not _is_lately(index, process, line):
            continue
        others = [e for e in index.snapshot.living() if e is not process]
        unused = [
            each
            for each in others
            if each.role not in SERVICE_ROLES
            and idle_share(index, each) + waiting_share(index, each) >= UNUSED_SHARE
        ]
        ports = {port for each in others for port in listening_at(each)}
        gone = [
            each
            for each in index.snapshot.processes
            if each.ended is not None and listening_at(each).keys() - ports
        ]
        yield Retrying(
            process,
            share,
            line,
            line.retry,
            tuple(gone),
            tuple(address for each in others for address in listening_at(each).values()),
            tuple(unused),
            tuple(
                f"{called(each)}: {words}"
                for each in (process, *unused[:SHOWN])
                if (words := doing_words(index, each))
            ),
        )


def _slept(index: Index, process: Process) -> tuple[SourceLine, float] | None:
    """The line at which a process sleeps most before it tries again, and the share of its time.

    Readings of a sleep whose stack is older than it are at another line, which sleeps not.
    """
    asleep = [each for each in shares(index, process) if each.activity.kind == "sleeping"]
    known: dict[int, float] = {}
    lines: dict[int, SourceLine] = {}
    for each in asleep:
        line = line_at(index, each.activity.place) if each.activity.place else None
        if line is not None and "sleep(" in line.statement.text:
            known[id(line)] = known.get(id(line), 0.0) + each.share
            lines[id(line)] = line
    of_retries = {key: share for key, share in known.items() if lines[key].retry is not None}
    if not of_retries:
        return None
    most = max(of_retries, key=of_retries.__getitem__)
    return lines[most], sum(e.share for e in asleep) * of_retries[most] / sum(known.values())


def _is_lately(index: Index, process: Process, line: SourceLine) -> bool:
    """Whether most parts of the last half a minute have such a sleep, as far as stacks show."""
    account = main_account(index, process.process)
    if account is None:
        return False

    def is_it(activity: Activity) -> bool:
        at = line_at(index, activity.place) if activity.place else None
        is_older = at is None or "sleep(" not in at.statement.text
        return activity.kind == "sleeping" and (at is line or is_older)

    seen = [any(map(is_it, each.tally.seen)) for each in account.buckets[-LATELY:]]
    return sum(seen) >= LATELY_SEEN
