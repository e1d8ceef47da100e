"""What a program registers or keeps again and again, and never takes back.

Hooks of torch, listeners, timers, handlers of logging, functions of atexit, exceptions that were
caught: what refers to each of them outlives the loop that adds them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from mpwatch.diagnose.analysis.growth.graphs_and_cycles import Kept
from mpwatch.diagnose.analysis.growth.growing import Explanation, Growing
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called
from mpwatch.diagnose.analysis.source.lines import lines_named, mark_place, mark_words, marks
from mpwatch.diagnose.analysis.stack_patterns import functions_of
from mpwatch.diagnose.analysis.throughput.shares import shares
from mpwatch.model.findings import Finding
from mpwatch.model.samples import FdKind
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import OPENING_HANDLERS, UNDOES, Mark, MarkKind, Statement


def registered_hooks(index: Index, process: Process, seen: list[str]) -> Explanation | None:
    """Hooks of torch that a function on the way to the present line registers in each of its calls.

    Of other threads and files nothing shows that they run again and again.
    """
    if not process.sample.torch_loaded:
        return None
    inside = functions_of(f for each in process.threads[:1] for f in each.stack)
    found = [e for e in marks(index, "registers-hook") if (e.file, e.function) in inside]
    if len(found) != 1:
        return None
    mark = found[0]
    return Explanation(
        "private memory",
        (*seen, f"{mark_words(mark)} registers a hook in each call of {mark.function}()"),
        f"Most likely hooks accumulate: {mark_words(mark)} registers one in each call of "
        f"{mark.function}(), and it stays until remove() of its own handle is called. Each of them "
        "keeps what its function refers to, and each later pass calls all of them, so that passes "
        "become slower as well.",
        f"Register it once, before the loop; or keep every handle that {mark.function}() gets "
        "(append, not assign: a handle that is overwritten can never be removed) and remove all of "
        "them in a finally block after each use. gc.collect(), no_grad() or smaller batches do not "
        "help.",
        is_shown=False,
    )


_REPEATED = re.compile(
    r"(?P<what>[^;]+); (?:(?P<file>\S+):(?P<first>\d+)-(?P<last>\d+) "
    r"(?P<is_async>async )?(?P<function>\S+)|(?P<calls>each call of .+))"
)
"""What `Mark.about` says of a statement that a loop repeats."""


class Repeated(NamedTuple):
    """A statement that keeps something more in each round of a loop that a process is in."""

    mark: Mark
    what: str
    """The beginning of `Mark.about`."""
    where: str
    """`each round of the loop at main.py:51 bench_worker`."""


def repeated_in(index: Index, process: Process, kind: MarkKind) -> list[Repeated]:
    """The statements of a kind that a loop repeats in which a process is seen, each once."""
    found: dict[tuple[str, Statement, str], Repeated] = {}
    for mark in marks(index, kind):
        about = _REPEATED.fullmatch(mark.about)
        if about is not None and _repeats(process, mark, about):
            where = about["calls"] or (
                f"each round of the loop at {about['file']}:{about['first']} {about['function']}"
            )
            what = about["what"]
            found.setdefault((mark.file, mark.statement, what), Repeated(mark, what, where))
    return list(found.values())


def registered_each_round(
    index: Index, process: Process, seen: Sequence[str]
) -> Explanation | None:
    """Something that keeps objects is registered in each round of a loop that the process is in."""
    found = repeated_in(index, process, "registers")
    if len(found) != 1:
        return None
    mark, what, where = found[0]
    if (named := _named_logger(index, found[0])) is not None:
        return Explanation(
            "private memory",
            (*seen, _added_words(found[0])),
            f"Most likely {_named_words(found[0], named)}",
            f"{_NO_NAMES} gc.collect() or smaller records do not help: it refers to all of them.",
            is_shown=False,
        )
    undo = what.partition(_CLASS)[0]
    keeper, advice = _KEEPERS[undo]
    words = mark_words(mark)
    none = f"; {mark.file.rpartition('/')[2]} has no {undo}" if undo in _CALLED else ""
    return Explanation(
        "private memory",
        (*seen, f"{words} is reached in {where}{none}"),
        f"Most likely what {words} registers stays: that is reached in {where}, and {keeper}",
        f"{advice} gc.collect() does not help, as all of it is referred to.",
        is_shown=False,
    )


SEEN_PART = 0.05
"""Of its time at a statement: so often it is reached."""


def kept_warnings(index: Index, process: Process) -> Kept | None:
    """The texts of warnings, where a process is often at a statement that makes a new one.

    Not where the program changes the filters of warnings anywhere: that may drop or keep them.
    """
    if marks(index, "warning-filter"):
        return None
    parts = {share.activity.place: share.share for share in shares(index, process)}
    often = [e for e in marks(index, "warns-anew") if parts.get(mark_place(e), 0.0) >= SEEN_PART]
    if len(often) != 1:
        return None
    words = mark_words(often[0])
    return Kept(
        f"{called(process)} spends {parts[mark_place(often[0])]:.0%} of its time at "
        f"{mark_place(often[0])}, where the text of a warning has values of each call",
        f"Most likely the texts of warnings are kept: {words} puts values of each call into the "
        "text. To know what was shown, the warnings module keeps each different text as a key of "
        "__warningregistry__ of the module that the warning is for, whether or not it is shown or "
        "written to a log (logging.captureWarnings). Nothing takes one out before the filters of "
        "warnings change. If only few texts differ, something else is kept.",
        f"Log what depends on data at {mark_place(often[0])} (logging.getLogger(__name__)"
        ".warning(...)), or count it and tell the number now and then, and give warnings.warn() "
        'only a text that is always the same. Or set the filter of its category to "always" or '
        '"ignore", which keep nothing. captureWarnings(), smaller log files or gc.collect() do '
        "not help; a worker that is started anew begins without any.",
    )


def kept_states(index: Index, process: Process, seen: Sequence[str]) -> Explanation | None:
    """The state of parameters that were replaced, which an optimizer of torch keeps."""
    found = repeated_in(index, process, "replaces-parameter")
    if len(found) != 1:
        return None
    mark, what, where = found[0]
    key, _, line = what.rpartition(", ")
    asks = f"{mark.file.rpartition('/')[2]}:{line} {mark.function}"
    return Explanation(
        "private memory",
        (*seen, f"{mark_words(mark)} is reached in {where}; {asks} asks for state[{key}]"),
        f"Most likely an optimizer keeps the state of parameters that were replaced: "
        f"{mark_words(mark)} gives it another parameter, in {where}, and {asks} asks for the entry "
        f"of the old one by {key}. torch keys `state` of an optimizer by the parameter object, so "
        "that this never finds it: each old parameter stays there, with what the optimizer keeps "
        "for it (Adam: two tensors of its size). `state` is a defaultdict, so that reading "
        f"state[{key}] makes an empty entry and raises nothing; and the new parameter begins "
        "without the state of the old one.",
        'Ask by the parameter itself, before it is replaced: `old = group["params"][0]`, then '
        "`entry = optimizer.state.pop(old, {})`, and store that under the new one. gc.collect(), "
        "zero_grad(set_to_none=True), torch.cuda.empty_cache() or smaller parameters do not help: "
        "the optimizer refers to all of them.",
        is_shown=False,
    )


def kept_by_unrun_loop(index: Index, process: Process, seen: Sequence[str]) -> Explanation | None:
    """Callbacks that are put into an event loop of asyncio which no thread of the process runs.

    Of a program that runs any loop in a file that was read nothing is told: it may be that one.
    """
    if marks(index, "runs-loop") or any(map(_is_in_asyncio, process.threads)):
        return None
    found = repeated_in(index, process, "unrun-loop")
    if not found or len({each.mark.file for each in found}) > 1:
        return None
    mark, what, where = found[0]
    loop, line, method = what.rsplit(", ", 2)
    file = mark.file.rpartition("/")[2]
    return Explanation(
        "private memory",
        (
            *seen,
            f"{mark_words(mark)} is reached in {where}; {loop} is made in line {line} of {file}",
            f"nothing in {file} runs {loop} or hands it on, and no thread of this process is in an "
            "event loop of asyncio",
        ),
        f"Most likely what waits in {loop} keeps it: {mark_words(mark)} is reached in {where}, and "
        f"nothing runs that loop. {_IN_UNRUN.get(method, _CALLBACK)}",
        f"{_WITHOUT_LOOP.get(method, _CALL_IT)} Or run the loop in a thread of its own "
        f"(threading.Thread(target={loop}.run_forever, daemon=True).start()), and put into it only "
        "by call_soon_threadsafe() and asyncio.run_coroutine_threadsafe(). Fewer or smaller items "
        "only make it slower; gc.collect(), or workers that are replaced, do not help.",
        is_shown=False,
    )


def _is_in_asyncio(thread: Thread) -> bool:
    return any("/asyncio/" in each.file or "uvloop" in each.file for each in thread.stack)


_CALLBACK = (
    "Each call adds a callback with its arguments to what is due in the loop (loop._ready, or "
    "loop._scheduled for a time), which only a round of the loop takes out: none is ever called."
)
_IN_UNRUN: Mapping[str, str] = {
    "create_task": (
        "Each task adds its first step to what is due in the loop (loop._ready), which only a "
        "round of the loop takes out: none ever begins, and each is kept with its coroutine and "
        "what that was given."
    ),
    "run_in_executor": (
        "The executor does the work, and when a call is done its future puts a callback with the "
        "future and its result into the loop (call_soon_threadsafe). Only a round of the loop "
        "takes it out of loop._ready: so every result stays there, and no future of the loop is "
        "ever done, nor is a function called that was given to its add_done_callback()."
    ),
}
_CALL_IT = "Call the function itself, or submit it to an executor (concurrent.futures)."
_WITHOUT_LOOP: Mapping[str, str] = {
    "run_in_executor": (
        "Submit to the executor itself (executor.submit(function, ...), with add_done_callback() "
        "on its future, which is called in a thread of the executor), and return from the "
        "function only what is used."
    ),
    "create_task": "Run it to its end (asyncio.run()), or write it as a plain function.",
}


def _named_logger(index: Index, added: Repeated) -> Mark | None:
    """The line that gets the logger to which a handler is added, by a name that is put together."""
    if _UNDO_HANDLER not in added.what:
        return None
    found = [
        each
        for each in marks(index, "named-logger")
        if each.file == added.mark.file
        and added.mark.statement.text.startswith(f"{each.about}.addHandler(")
    ]
    return found[0] if len(found) == 1 else None


def _named_words(added: Repeated, named: Mark) -> str:
    """What keeps a handler of a logger that has a name of its own, as the end of a sentence."""
    return (
        f"the handler stays that {mark_words(added.mark)} adds in {added.where}, with all that it "
        f"refers to (the text of the records, a buffer, a file): {mark_words(named)} makes a "
        "logger for each name that is put together there, and logging keeps every logger by its "
        "name until the process ends (Logger.manager.loggerDict), with its handlers. close() of a "
        "handler does not take it out of its logger. If a name comes again, its logger gets one "
        "more handler, and writes each record once for every one."
    )


_NO_NAMES = (
    "Call removeHandler(handler) of the logger where its use ends (in close() or a `finally` "
    "clause), besides handler.close(). And make no logger for each item: one logger with a "
    "logging.LoggerAdapter, or `extra=`, says of which item a record is; logging.Logger(name) is "
    "not registered, and is freed with its handlers."
)
_CLASS = " for "
"""Between what takes a handler back and its class."""
_UNDO_HANDLER = "removeHandler()"


def _handlers(index: Index, process: Process) -> Repeated | None:
    """The one statement that adds a handler to a logger in each round that a process is in."""
    found = [e for e in repeated_in(index, process, "registers") if _UNDO_HANDLER in e.what]
    return found[0] if len(found) == 1 else None


def handlers_each_round(
    index: Index, found: Growing, kind: FdKind | None, noun: str, words: Sequence[str]
) -> Explanation | None:
    """Handlers of logging that are added again and again, each with a descriptor of its own.

    Args:
        index: The snapshot.
        found: The growth of descriptors.
        kind: What most of the newest descriptors are.
        noun: The same in words.
        words: What is known of them.
    """
    added = _handlers(index, found.process)
    made = added.what.partition(_CLASS)[2] if added is not None else ""
    if added is None or kind is None or OPENING_HANDLERS.get(made) != kind:
        return None
    place = mark_place(added.mark)
    names, verb = all_called(found.processes), "have" if len(found.processes) > 1 else "has"
    named = _named_logger(index, added)
    keeps = _ADDED if named is None else f"So {_named_words(added, named)}"
    return Explanation(
        noun,
        (*words, _added_words(added)),
        f"Each {made} that {mark_words(added.mark)} adds has a {kind} of its own, and is added in "
        f"{added.where}. {keeps}",
        f"{_ADD_ONCE if named is None else _NO_NAMES} To raise the limit of descriptors (ulimit "
        "-n) does not help"
        + (
            f", nor to close the {kind}s one by one: the handlers stay, and open them again."
            if named is None
            else "."
        ),
        f"{names} {verb} ever more {noun}, one for each handler of logging that is added at "
        f"{place} and never removed",
    )


def _added_words(added: Repeated) -> str:
    file = added.mark.file.rpartition("/")[2]
    return (
        f"{mark_words(added.mark)} is reached in {added.where}; {file} has no {_UNDO_HANDLER}, and "
        "does not ask whether the logger has a handler already"
    )


_ADDED = (
    "logging.getLogger() returns the same logger for the same name, and a logger keeps every "
    "handler: each record is formatted and written once by every handler that was added so far. "
    "So the time for one record, and what arrives at the other end, grow with each call."
)
_ADD_ONCE = (
    "Add the handler once in each process, where logging is set up, or only if not "
    "logger.handlers; a function that is called for each item should only call getLogger()."
)
_LOGS = re.compile(
    r"\b\w*(?:log|logger|logging)\.(?:debug|info|warn|warning|error|exception|critical|log)\(",
    re.IGNORECASE,
)


def with_handlers(index: Index, finding: Finding) -> Finding:
    """A finding about a line that takes time, where that logs to ever more handlers."""
    process = index.snapshot.get(finding.process)
    added = _handlers(index, process) if process is not None else None
    if added is None or _named_logger(index, added) is not None:
        return finding
    if not any(_LOGS.search(e.statement.text) for e in lines_named(index, finding.summary)):
        return finding
    return replace(
        finding,
        summary=(
            f"{finding.summary}: that line logs, and {mark_place(added.mark)} adds one more "
            "handler to a logger in each round"
        ),
        evidence=(*finding.evidence, _added_words(added)),
        cause=(
            f"{mark_words(added.mark)} adds a handler in {added.where}, and nothing removes "
            f"one. {_ADDED} {finding.cause}"
        ),
        advice=(
            f"{_ADD_ONCE} More processes or cores, and a faster receiver of the records, do "
            "not help."
        ),
    )


def kept_exceptions(index: Index, process: Process, seen: Sequence[str]) -> Explanation | None:
    """Exceptions that are kept in each round of a loop that the process is in.

    Or one that is raised again in each, of which only the traceback becomes longer.
    """
    raised = repeated_in(index, process, "raises-kept")
    if len(raised) == 1:
        return _raised_again(raised[0], seen)
    found = repeated_in(index, process, "keeps-exception")
    if len(found) != 1:
        return None
    mark, container, where = found[0]
    return Explanation(
        "private memory",
        (*seen, f"nothing in its file removes what {mark_words(mark)} adds, in {where}"),
        f"Most likely exceptions are kept: {mark_words(mark)} adds to {container} in {where}, and "
        f"nothing in that file removes any.{EXCEPTION_KEEPS}",
        f"{exception_advice(mark)} gc.collect() does not help.",
        is_shown=False,
    )


def _raised_again(found: Repeated, seen: Sequence[str]) -> Explanation:
    """One exception whose traceback becomes longer with each raise."""
    mark, what, where = found
    place, _, line = what.rpartition(", ")
    file = mark.file.rpartition("/")[2]
    stored = f"{place.removesuffix('[]')} ({file}:{line})"
    raises = f"{file}:{mark.statement.line}"
    return Explanation(
        "private memory",
        (*seen, f"{mark_words(mark)} is reached in {where}, in which the exception is caught"),
        f"Most likely one exception is raised again and again: it is kept in {stored}, and "
        f"{mark_words(mark)} raises the same object in {where}. Each raise adds to its traceback "
        "the functions that it comes through up to the one that catches it, each with all of its "
        "arguments and local variables (arrays, tensors, the item at work). So this one traceback "
        f"grows; {place.removesuffix('[]')} need not get any more entries.",
        f"Raise a new exception each time: keep at {file}:{line} only what it is made of (its "
        f"class and text), and make it at {raises}. Or take its traceback off where it is raised: "
        f"raise error.with_traceback(None) at {raises}. Doing that only at {file}:{line}, where it "
        "is kept, does not help, as each later raise adds to it again; nor do gc.collect() or "
        "fewer entries. To pass less to the functions on the way only makes it slower.",
        is_shown=False,
    )


EXCEPTION_KEEPS = (
    " What it adds is the exception that was caught there, or refers to it. An exception keeps its "
    "traceback, and with that every function that it came through and all their local variables "
    "(the item at work, tables, arrays, tensors)."
)


def exception_advice(mark: Mark) -> str:
    """What to keep in place of an exception."""
    place = mark_place(mark).rpartition(" ")[0]
    return (
        f"Keep the text in place of the exception at {place}: str(error), repr(error) or "
        "traceback.format_exc(); or error.with_traceback(None), of which error.__context__ and "
        "error.__cause__ may still have theirs."
    )


def _repeats(process: Process, mark: Mark, about: re.Match[str]) -> bool:
    """Whether a process is in the loop that repeats a registration, or gets such calls."""
    stacks = [each.stack for each in process.threads]
    if about["is_async"]:  # a coroutine that waits is on no stack
        files = {each.file for stack in stacks for each in stack if "/asyncio/" in each.file}
        return bool(files)
    if about["calls"]:
        return any(each.file == mark.file for stack in stacks for each in stack)
    lines = range(int(about["first"]), int(about["last"]) + 1)
    return any(
        each.line in lines
        and each.function == about["function"]
        and each.file.rpartition("/")[2] == about["file"]
        for stack in stacks
        for each in stack
    )


_BOUND = (
    "with the object that it is a method of, or what it is to be given, and all that these refer "
    "to, also after that was closed"
)
_LISTENERS = (
    f"what it is registered with refers to each of them, {_BOUND}.",
    "Take it back where its use ends (in close() or a finally block), or register a function that "
    "refers to it weakly (weakref.WeakMethod).",
)
_CALLED = ("atexit.unregister()", "cancel() of its handle", "removeHandler()")
_KEEPERS: Mapping[str, tuple[str, str]] = {
    "atexit.unregister()": (
        f"atexit keeps each function until the process ends, {_BOUND}.",
        "Call atexit.unregister() with the same function where its use ends (in close()), or "
        "weakref.finalize() with a function that does not refer to the object; or register one "
        "function for all, once, that goes through a weakref.WeakSet.",
    ),
    "cancel() of its handle": (
        "nothing cancels that timer: until its time comes it is kept with its function and what "
        "that is to be given, also where that is done long before. Memory rises for as long as one "
        "such delay lasts.",
        "Keep the handle, and cancel() it in a finally block as soon as what it is for is done; or "
        "use asyncio.timeout() or asyncio.wait_for(), which do so. Or give it only a number, by "
        "which it looks up what is still at work. A shorter delay only bounds it.",
    ),
    "a function that does not refer to the object": (
        "what weakref.finalize() is given refers to the object itself, so that nothing ever lets "
        "the object go, and the function is not called before the process ends.",
        "Give it a function (a staticmethod) and only what is to be closed, not self, none of its "
        "methods and no lambda with it.",
    ),
    "nothing": (
        f"what os.register_at_fork() is given stays until the process ends, {_BOUND}.",
        "Register one function for all, once, that goes through a weakref.WeakSet.",
    ),
    "remove() of its handle": (
        "a module or tensor of torch keeps each hook until remove() of its own handle is called, "
        "with all that the function of the hook refers to, and each later pass calls all of them, "
        "so that passes become slower as well.",
        "Register it once, before the loop; or keep every handle that is returned (append, not "
        "assign: one that is overwritten can never be removed) and remove all of them in a "
        "`finally` clause after each use.",
    ),
    "removeHandler()": (
        "a logger keeps every handler that is added, with what the handler refers to, and writes "
        "each later record once for every one of them, so that logging becomes slower as well.",
        "Add the handler once, where logging is set up; or call logger.removeHandler(handler) and "
        "handler.close() where its use ends.",
    ),
    **{f"{undo}()": _LISTENERS for undo in UNDOES},
}
