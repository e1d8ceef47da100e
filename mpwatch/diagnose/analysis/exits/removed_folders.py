"""Files that a forked child has removed as it ended, because it ran what it had inherited."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.source.lines import mark_place, mark_words, marks
from mpwatch.diagnose.analysis.stack_patterns import functions_of, main_thread
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.source_code import Mark

SHOWN = 2
_PATH = re.compile(r"'(/[^']{1,1000})'")
_CHANCE = "[a-z0-9_]"
"""Of what tempfile makes names: `_RandomNameSequence.characters` (CPython 3.10 to 3.14)."""


class _Removal(Struct, frozen=True):
    """What has most likely removed a folder while the job needed it."""

    folder: str
    exits: tuple[Mark, ...]
    removes: Mark
    at_exit: bool
    by: str
    """What the function does that is called at the end, `shutil.rmtree(path) in line 20`."""


def with_removal(index: Index, found: Finding, kind: object, text: object) -> Finding:
    """The finding about an exit, with the forked child that has most likely removed its files.

    Args:
        index: The snapshot.
        found: The finding.
        kind: The class of the exception that has ended the process.
        text: Its message.
    """
    removal = _removal(index, str(text)) if kind == "FileNotFoundError" else None
    if removal is None:
        return found
    first, removes = removal.exits[0], removal.removes
    exits = " or ".join(mark_words(each) for each in removal.exits[:SHOWN])
    calls = f", which calls `{removal.by.replace(' in line ', '` in line ')}" if removal.by else ""
    when = (
        f"{mark_words(removes)}{calls}, is run at the end of the interpreter"
        if removal.at_exit
        else f"{mark_words(removes)} is in a block that SystemExit leaves"
    )
    return replace(
        found,
        severity=max(found.severity, Severity.WARNING),
        evidence=(
            *found.evidence,
            f"{mark_words(first)} leaves the process that os.fork() in line {first.about} has made",
            f"{mark_words(removes)}{calls} removes such a folder",
        ),
        cause=(
            f"Most likely a forked child has removed {removal.folder} while the job still used it. "
            f"The child leaves by {exits}, and sys.exit() runs there what the child has inherited "
            f"from its parent: {when}, in the child as well. {found.cause}"
        ),
        advice=(
            f"Leave the forked child at {mark_place(first)} with os._exit(0), which runs none of "
            f"that. Or let what removes the folder at {mark_place(removes)} compare os.getpid() "
            "with the process that has made it"
            + (", or call atexit.unregister() in the child" if removal.at_exit else "")
            + ". Children of multiprocessing and programs started by subprocess do not run it. To "
            "start what has failed again, or to catch FileNotFoundError, brings no file back."
        ),
    )


def _removal(index: Index, text: str) -> _Removal | None:
    """What has removed the folder of a path that a message names, where only one statement may.

    The program that made the folder has to go on: its own end removes it as well, and rightly.
    """
    exits = marks(index, "forked-exit")
    path = _PATH.search(text)
    root = index.snapshot.get(index.snapshot.root)
    if not exits or path is None or root is None or root.is_gone:
        return None
    parts = path[1].split("/")
    removals = []
    for mark in marks(index, "removes-folder"):
        how, pattern, by = mark.about.split("; ", 2)
        name = "".join(_TRANSLATED.get(each) or re.escape(each) for each in pattern)
        place = next((n for n, part in enumerate(parts) if re.fullmatch(name, part)), None)
        if place is not None and (how == "exit" or _is_inside(index, mark)):
            folder = "/".join(parts[: place + 1])
            removals.append(_Removal(folder, tuple(exits), mark, how == "exit", by))
    return removals[0] if len({each.removes for each in removals}) == 1 else None


_TRANSLATED: Mapping[str, str] = MappingProxyType({"?": _CHANCE, "*": ".*"})


def _is_inside(index: Index, mark: Mark) -> bool:
    """Whether a living process is in the function of a statement, and so has not left its block."""
    threads = [main_thread(each) for each in index.snapshot.living()]
    return any(
        (mark.file, mark.function) in functions_of(own_frames(thread.stack))
        for thread in threads
        if thread is not None
    )
