"""What would end a wait that does not end, as lines of evidence.

The statements have the name of what is waited for, which another object may have as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.source.lines import line_at, places_named
from mpwatch.diagnose.analysis.source.origins import wait_words
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.model.findings import Finding
from mpwatch.model.source_code import Ending, SourceLine

WAITS = frozenset(("no-progress", "standing-still"))
"""Rules about waits that do not end, whose findings quote what would end them."""
TOLD = 2
"""Waits of one finding."""
ENDINGS = 3
"""Statements of one wait."""
ORIGINS = 2
"""Conditions of one finding."""


def endings_for(index: Index, finding: Finding) -> tuple[str, ...]:
    """What would end the waits at the lines that a finding names, as lines of its evidence.

    A wait is left out where the finding names one of these statements already.
    """
    if finding.rule not in WAITS or not index.snapshot.source:
        return ()
    texts = (finding.summary, *finding.evidence, finding.cause, finding.advice)
    places = tuple(dict.fromkeys(places_named(texts)))
    found: dict[str, None] = {}
    origins: dict[str, None] = {}
    for place in places:
        line = line_at(index, place)
        endings = line.ended_by if line is not None else ()
        if line is not None:
            origins |= dict.fromkeys(_origins(index, line, texts))
        if endings and not any(_place(each) in places for each in endings):
            ways = "; or ".join(_words(index, each) for each in endings[:ENDINGS])
            found[f"as far as names tell, the wait at {place} would end by {ways}"] = None
    return (*tuple(found)[:TOLD], *tuple(origins)[:ORIGINS])


def _origins(index: Index, line: SourceLine, texts: Sequence[str]) -> Iterator[str]:
    """On what the conditions depend under which a wait ends, but for what is said already."""
    conditions = [
        (each.file, statement)
        for each in line.ended_by[:ENDINGS]
        for statement in (each.under, each.after)
        if statement is not None
    ]
    loop = line.until or line.endless
    if loop is not None and _COMES_BACK.search(line.statement.text):
        conditions += [(line.file, each) for each in (*loop.ends, loop.header)]
    said = " ".join(texts)
    for file, statement in conditions:
        words = wait_words(index, file, statement)
        if words and not any(place in said for place in _OF_CHAIN.findall(words)[-1:]):
            yield f"as far as names tell, {words}"
            return


_COMES_BACK = re.compile(
    r"sleep\(|timeout|\b(?:wait|poll|select|recv|get|is_set|is_alive|empty)\w*\("
)
"""In a statement that ends by itself, or by a message, and then tests the condition of its loop. A
put() or a collective waits for others, whatever that condition is."""
_OF_CHAIN = re.compile(r"\(([\w.-]+\.py:\d+) [\w<>]+\)")


def _place(ending: Ending) -> str:
    return f"{ending.file.rpartition('/')[2]}:{ending.statement.line} {ending.function}"


def _words(index: Index, ending: Ending) -> str:
    """``` `ready.set()` at load.py:60 run, under `if self.ok:` of line 58 ```."""
    words = f"`{ending.statement.text}` at {_place(ending)}"
    if ending.under is not None:
        words += f", under `{ending.under.text}` of line {ending.under.line}"
    if ending.after is not None:
        words += f", after `{ending.after.text}` in line {ending.after.line}"
    inside = _functions_inside(index)
    is_empty = inside is not None and (ending.file, ending.function) not in inside
    return f"{words} (no thread is in {ending.function}())" if is_empty else words


@derived
def _functions_inside(index: Index) -> frozenset[tuple[str, str]] | None:
    """The functions in which threads of the job are; `None` where a stack is not known."""
    threads = [each for process in index.snapshot.living() for each in process.threads]
    mains = [main_thread(process) for process in index.snapshot.living()]
    if not all(main is not None and main.stack for main in mains):
        return None
    return frozenset((f.file, f.function) for each in threads for f in each.stack)
