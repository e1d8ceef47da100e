"""A limit on what is under way, which a request without an answer uses up: in a wait without end.

The source shows which statements raise and lower the count. Its value is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.source.endings import ENDINGS, WAITS
from mpwatch.diagnose.analysis.source.lines import lines_named
from mpwatch.model.findings import Finding
from mpwatch.model.source_code import Ending, InFlight, SourceLine, Statement


def with_limit_kept(index: Index, finding: Finding) -> Finding:
    """A finding about waits without end, with the limit under which what would end one is sent.

    Told where a thread waits in the function that gives back; as the cause where the source shows
    that not all is given back, and as a possible one where an answer depends on a condition.
    """
    if finding.rule not in WAITS or not index.snapshot.source:
        return finding
    texts = (finding.summary, *finding.evidence, finding.cause, finding.advice)
    lines = lines_named(index, "\n".join(texts))
    ending = next((each for line in lines for each in _limited(line, lines)), None)
    if ending is None or ending.limit is None:
        return finding
    limit = ending.limit
    evidence = (*finding.evidence, *_evidence(ending, limit))
    answers = [e for line in lines if _is_in(line, ending, limit) for e in line.ended_by[:ENDINGS]]
    is_conditional = any(each.under is not None for each in answers)
    if not (limit.by_content or limit.left_out or is_conditional):
        return replace(finding, evidence=evidence)
    guard = _at(ending.file, limit.guard)
    fewer = ", or with fewer parts in it than the request had," if limit.by_content else ""
    by = "only by what an answer contains" if limit.by_content else "only by an answer"
    how_sure = "Most likely" if limit.by_content or limit.left_out else "It can be that"
    give_back = (
        f"Give {limit.name} back by requests and not by results: as much as was taken for the "
        "request, whatever its answer contains. And a"
    )
    return replace(
        finding,
        evidence=evidence,
        cause=(
            f"{finding.cause} {how_sure} the limit at {guard} is used up: {limit.name} is given "
            f"back {by}, so that a request without an answer{fewer} keeps its share for ever."
        ),
        advice=(
            f"{give_back if limit.by_content else 'A'}nswer every request, also where it fails or "
            "nothing comes of it. A greater limit, or more processes, only delays it. "
            f"{finding.advice}"
        ),
    )


def _limited(line: SourceLine, lines: Sequence[SourceLine]) -> Iterator[Ending]:
    """What would end a wait and stands under a limit, which a function that waits gives back to."""
    for each in line.ended_by[:ENDINGS]:
        limit = each.limit
        if limit is not None and any(_is_in(other, each, limit) for other in lines):
            yield each


def _is_in(line: SourceLine, ending: Ending, limit: InFlight) -> bool:
    return (line.file, line.function) == (ending.file, limit.falls_in)


def _evidence(ending: Ending, limit: InFlight) -> Iterator[str]:
    sends = _quoted(ending.file, ending.statement, ending.function)
    falls = _quoted(ending.file, limit.falls, limit.falls_in)
    if limit.guard == limit.rises:
        yield (
            f"as far as names tell, {sends} is reached with a permit only, by "
            f"{_quoted(ending.file, limit.guard)}, and {falls} releases it"
        )
    else:
        yield (
            f"as far as names tell, {sends} stands under a limit on what is in flight, "
            f"{_quoted(ending.file, limit.guard)}: {limit.name} rises by "
            f"{_quoted(ending.file, limit.rises)} and is given back by {falls}"
        )
    left_out = limit.left_out
    if left_out is not None:
        yield (
            f"as far as names tell, {_quoted(left_out.file, left_out.unless, left_out.function)} "
            f"leaves {_quoted(left_out.file, left_out.adds)} out, so that less is given back"
        )


def _quoted(file: str, statement: Statement, function: str = "") -> str:
    """``` `self.sent += 1` (main.py:39 dispatch) ```."""
    return f"`{statement.text}` ({_at(file, statement)}{f' {function}' if function else ''})"


def _at(file: str, statement: Statement) -> str:
    return f"{file.rpartition('/')[2]}:{statement.line}"
