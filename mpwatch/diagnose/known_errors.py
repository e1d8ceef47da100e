"""The findings made of known error messages alone, and what rules ask of such errors.

The messages are in `mpwatch.describe.error_messages`: the fold writes the tags of those that a note
contains into its log entry, and rules look entries up by tag, by `tagged`. What the exception means
that ended a process is a row of `EXPLAINED`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.describe.error_messages import REASONS, KnownError, is_in, strings_in
from mpwatch.describe.frames import frame_words, is_library
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called_if_known, counted
from mpwatch.diagnose.analysis.source.lines import mark_words, marks
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import LogEntry, Snapshot

EVIDENCE_LIMIT = 300
STD_SHOWN = 2


class Explained(Struct, frozen=True):
    """What an exception says about the mistake, which is not at the line that raised it."""

    texts: tuple[str, ...]
    """All of them occur in the message."""
    cause: str
    advice: str
    is_nan: bool = False
    """Whether a value was not a number."""
    rules: tuple[str, ...] = ()
    """The only rules to whose findings it is added; empty: to those of all."""


EXPLAINED: tuple[Explained, ...] = (
    Explained(  # torch/nn/functional.py, torch 1.13 to 2.13
        ("Expected more than 1 value per channel when training",),
        "BatchNorm cannot normalise a batch of one sample while it trains. Most likely the last "
        "batch is that short: the number of samples is one more than a multiple of the batch size.",
        "Use drop_last=True for the training loader (or leave batches of one sample out). The "
        "model and the line that raises are right.",
    ),
    Explained(  # torch/distributions/distribution.py, torch 1.13 to 2.13
        ("to satisfy the constraint", "found invalid values"),
        "The parameters of the distribution are not valid, most often NaN. They were computed from "
        "weights or inputs that had become NaN in an earlier step: the line that raises only "
        "checks.",
        "Find the first NaN: assert torch.isfinite(loss) before backward(), or "
        "torch.autograd.set_detect_anomaly(True). Catching the exception does not help, the "
        "weights stay NaN.",
        is_nan=True,
    ),
    Explained(  # torch/csrc/autograd/python_engine.cpp and engine.cpp, torch 1.13 to 2.13
        ("element 0 of tensors does not require grad",),
        "The loss does not depend on a parameter that is trained: it was made under no_grad or "
        "inference_mode, from detached tensors or numbers (item(), tolist(), a new tensor), or all "
        "parameters are frozen.",
        "Compute the loss from the outputs of the model with gradients on, and check "
        "requires_grad of the parameters.",
    ),
    Explained(
        ("Trying to backward through the graph a second time",),
        "A tensor of an earlier step is part of this step's loss, with its graph, which was freed "
        "by the backward pass of that step: a hidden state, a running loss, or targets that are "
        "kept without detach().",
        "Call detach() on what is carried from step to step. retain_graph=True hides it, and "
        "memory grows.",
    ),
    Explained(
        ("modified by an inplace operation",),
        "A tensor that the backward pass needs was changed in place after the forward pass: by "
        "an operation that ends in an underscore, +=, an index assignment, or a step of the "
        "optimizer between forward and backward.",
        "Use the operation that makes a new tensor (x = x + y), or clone() first; "
        "torch.autograd.set_detect_anomaly(True) names the forward line.",
    ),
    Explained(  # aten/src/ATen/native/LossNLL.cpp, torch 1.13 to 2.13
        ("Target", "is out of bounds"),
        "A label is not below the number of classes that the model puts out, or is negative.",
        "Compare labels.max() with the size of the last layer; map labels to 0 to classes - 1, or "
        "set ignore_index for those that do not count.",
    ),
    Explained(  # aten/src/ATen/native/TensorAdvancedIndexing.cpp, torch 1.13 to 2.13
        ("index out of range in self",),
        "An index is not below the number of rows of the embedding or tensor it is looked up in: "
        "most often a token or id that the vocabulary does not have, or a position beyond the "
        "longest one.",
        "Compare the largest index with num_embeddings, and cut or map what is beyond it.",
    ),
    Explained(
        ("device-side assert triggered",),
        "A kernel on the GPU met an index that is out of range, most often a label or a token id. "
        "It is reported at a later call: the line shown need not be the one that launched it, and "
        "the context of the process cannot be used any more.",
        "Run once with CUDA_LAUNCH_BLOCKING=1, or on the CPU, to see the line and the index.",
    ),
    Explained(
        ("Expected all tensors to be on the same device",),
        "One of the tensors of that operation was not moved to the device of the others: often a "
        "tensor made inside forward(), a buffer that is no register_buffer, or a batch in a "
        "container that .to() does not go through.",
        "Make new tensors with device=x.device, and register constants with register_buffer.",
    ),
    Explained(
        ("Error(s) in loading state_dict",),
        "The checkpoint and the model have other parameters. Names with `module.` in front are of "
        "a model that was saved inside of DistributedDataParallel or DataParallel.",
        "Save model.module.state_dict(), or remove that part of the names; load with the "
        "settings that the checkpoint was made with.",
    ),
    Explained(
        ("Default process group has not been initialized",),
        "A collective, or a rank, was asked for before init_process_group() in this process: a "
        "process that was spawned or forked has no process group of its own, whatever its parent "
        "has.",
        "Call init_process_group() in each process that communicates, before that line.",
    ),
    Explained(  # torch/utils/data/dataloader.py, torch 1.13 to 2.13
        ("Too many open files. Communication with the workers is no longer possible",),
        "The process has as many descriptors open as its limit allows (RLIMIT_NOFILE). Under the "
        "strategy file_descriptor each tensor received from another process uses one for as long "
        "as the program keeps it, for example in a list of batches.",
        "Do not keep received tensors: store .clone(), .item() or .numpy().copy() instead, and "
        "collate many small tensors into few. A higher limit (ulimit -n) only postpones it; the "
        "strategy file_system needs no descriptors, and leaks named files when the job is killed.",
        rules=("worker-exited-unexpectedly",),
    ),
    Explained(  # asyncio/streams.py, CPython 3.10 to 3.14
        ("Separator is", "chunk", "limit"),
        "A line, or a message up to its separator, is longer than the limit of the StreamReader "
        "that reads it: 64 KiB, unless another one was given. readline() raises that as "
        "ValueError, readuntil() as LimitOverrunError.",
        "Pass a limit= above the longest message to open_connection(), start_server() or "
        "create_subprocess_exec(), on the side that reads; or send the length before each message "
        "and read it by readexactly(), which has no limit. To start the process again does not "
        "help: the next message that is as long ends it again.",
    ),
    Explained(  # Modules/selectmodule.c, CPython 3.10 to 3.14
        ("filedescriptor out of range in select()",),
        "select.select() watches descriptors below 1024 only (FD_SETSIZE), whatever the limit of "
        "open files is (RLIMIT_NOFILE). The process had so many open that it was given one above.",
        "Use selectors.DefaultSelector() or select.poll(), which have no such bound. Then look at "
        "what keeps so many open: files that are kept for later use, connections or pipes that "
        "nothing closes. A higher limit does not help, nor does catching the exception: each "
        "later call raises it as well.",
    ),
    Explained(  # Objects/dictobject.c and setobject.c, CPython 3.10 to 3.14
        ("changed size during iteration",),
        "Another thread, or the body of the loop itself, adds to or removes from the container "
        "while it is iterated over.",
        "Iterate over a copy (list(...)), or hold one lock around the loop and each change.",
    ),
)
"""Exceptions of torch and CPython that say what is wrong elsewhere. A row has its example in the
test."""


def explained(finding: Finding) -> Explained | None:
    """What the exception that a finding quotes means; `None` for all others."""
    whole = "\n".join((finding.summary, *finding.evidence))
    found = (row for row in EXPLAINED if not row.rules or finding.rule in row.rules)
    return next((row for row in found if all(text in whole for text in row.texts)), None)


_FIX_THERE = re.compile(
    r"^Fix the code .*?\.(?: Catch expected exceptions\b.*?\.)?(?: (?=[A-Z])|$)"
)
"""The first sentences of an advice: to mend the line that raised the exception, or to catch it."""
_STD = (
    "The standard deviation of a single element is NaN (std() divides by n - 1): if a batch or an "
    "episode had one element,"
)


def with_explanation(index: Index, finding: Finding) -> Finding:
    """A finding about an exception, with what that says about the mistake."""
    row = explained(finding)
    if row is None:
        return finding
    of_one = marks(index, "std") if row.is_nan else ()
    places = " and ".join(map(mark_words, of_one[:STD_SHOWN]))
    reason = f" {_STD} {places} gave NaN." if of_one else ""
    fix = " Use std(unbiased=False), or leave out what has one element." if of_one else ""
    return replace(
        finding,
        cause=f"{row.cause}{reason} {finding.cause}",
        advice=f"{row.advice}{fix} {_FIX_THERE.sub('', finding.advice)}".rstrip(),
    )


def tagged(snapshot: Snapshot, *tags: str) -> Iterator[LogEntry]:
    """The log entries with any of these tags, the first of each process only."""
    seen: set[ProcessId | None] = set()
    for entry in snapshot.errors:
        if entry.process not in seen and any(tag in entry.tags for tag in tags):
            seen.add(entry.process)
            yield entry


def gives(entry: LogEntry, reason: str) -> bool:
    """Whether an error gives one of the `REASONS`."""
    whole = "\n".join((entry.words, *strings_in(entry.details)))
    return any(is_in(message, entry.kind, whole) for message in REASONS[reason])


def contains(entry: LogEntry, text: str) -> bool:
    """Whether a text occurs in an entry's words or details."""
    return text in entry.words or any(text in each for each in strings_in(entry.details))


def known_error(known: KnownError, snapshot: Snapshot) -> Iterator[Finding]:
    """The finding of one row of the table, if a process reported such an error."""
    return reported(
        snapshot,
        known.rule,
        summary=known.summary,
        cause=known.cause,
        advice=known.advice,
        severity=known.severity,
    )


def reported(
    snapshot: Snapshot,
    rule: str,
    *,
    summary: str,
    cause: str,
    advice: str,
    severity: Severity = Severity.CRITICAL,
    tags: tuple[str, ...] = (),
) -> Iterator[Finding]:
    """One finding if any process reported such an error: for the first, with the others counted.

    Args:
        snapshot: What is searched.
        rule: Id of the failure.
        summary: What happened, to follow the name of the process.
        cause: Why.
        advice: A fix and its trade-off.
        severity: Of the finding.
        tags: Tags of the messages; the id of the rule if none are given.
    """
    entries = list(tagged(snapshot, *(tags or (rule,))))
    if not entries:
        return
    first = entries[0]
    process = snapshot.get(first.process)
    others = counted(len(entries) - 1, "more process", "more processes")
    more = (f"{others} reported the same",) if len(entries) > 1 else ()
    yield Finding(
        rule=rule,
        severity=severity,
        # Of many that end one after the other another one is the first as the log goes on.
        process=None if process is None and len(entries) > 1 else first.process,
        summary=f"{called_if_known(process)} {summary}",
        evidence=(*evidence_of(first), *more),
        cause=cause,
        advice=advice,
    )


def evidence_of(entry: LogEntry) -> tuple[str, ...]:
    """An entry as evidence: its words, and its place unless the words contain it."""
    words = [entry.words[:EVIDENCE_LIMIT]] if entry.words else []
    for name in ("where", "site", "path", "detail"):
        value = entry.details.get(name)
        if isinstance(value, str) and value and value not in entry.words:
            words.append(f"{name}: {value[:EVIDENCE_LIMIT]}")
    place = place_of(entry.details)
    if place is not None:
        words.append(f"at {place}")
    first = first_of(entry)
    if first is not None:
        words.append(first.words)
    return tuple(words) or (f"a note of kind {entry.kind}",)


class FirstError(Struct, frozen=True):
    """The exception with which a chain of them began, of which a note tells the last one."""

    type: str
    text: str
    place: str | None
    """Where it was raised, `engine.py:27 generate`."""
    is_from: bool
    """Whether each of the chain was raised `from` the one before; else while it was handled."""

    @property
    def words(self) -> str:
        """`raised from an earlier exception: IndexError: index 128 is out of bounds, at ...`."""
        how = (
            "raised from an earlier exception" if self.is_from else "raised while handling another"
        )
        at = f", at {self.place}" if self.place else ""
        return f"{how}: {self.type}: {self.text}{at}"


def first_of(entry: LogEntry) -> FirstError | None:
    """With what the chain of an exception began; `None` where the hook has told of no chain."""
    first = entry.details.get("first")
    if not isinstance(first, Mapping):
        return None
    kind, text = first.get("type"), first.get("text")
    if not isinstance(kind, str) or not isinstance(text, str):
        return None
    shown = text[:EVIDENCE_LIMIT]
    return FirstError(kind, shown, place_of(first), first.get("is_from") is True)


def place_of(details: Mapping[str, object]) -> str | None:
    """The line of code a note is about: its own, or the user's innermost frame."""
    file, line, function = (details.get(name) for name in ("file", "line", "function"))
    if isinstance(file, str) and isinstance(line, int):
        return frame_words(Frame(str(function or ""), file, line)).strip()
    frames = details.get("frames")
    made = [f for each in frames if (f := _frame(each))] if _is_list(frames) else []
    own = next((frame for frame in made if not is_library(frame)), None)
    return None if own is None else frame_words(own)


def _is_list(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    """Whether a value from JSON is a list."""
    return isinstance(value, (list, tuple))


def _frame(value: object) -> Frame | None:
    """A frame as the hook writes it, `[function, file, line]`."""
    if not _is_list(value) or len(value) != 3:
        return None
    function, file, line = value
    if isinstance(function, str) and isinstance(file, str) and isinstance(line, int):
        return Frame(function, file, line)
    return None


def number_of(details: Mapping[str, object], name: str) -> float | None:
    """A number in a note or gauge; `None` if it is missing or not a number."""
    value = details.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value
