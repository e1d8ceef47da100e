"""What keeps the private memory of a process that rises, or its memory on a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mpwatch.describe.findings import capital
from mpwatch.describe.frames import frame_words, is_library, own_frames, program_frames
from mpwatch.diagnose.analysis.growth.backlogs import (
    backlog,
    kept_messages,
    managed_queue,
    unused_results,
)
from mpwatch.diagnose.analysis.growth.graphs_and_cycles import (
    kept_by_cycle,
    kept_graphs,
    uncollected,
)
from mpwatch.diagnose.analysis.growth.growing import (
    MIB,
    SHOWN,
    Explanation,
    Growing,
    gpu_of,
)
from mpwatch.diagnose.analysis.growth.holders import (
    NO_GRAPHS,
    adds_words,
    container_in_source,
    held,
    kept_to_end,
    may_have_graphs,
    measured_container,
    not_at_work,
)
from mpwatch.diagnose.analysis.growth.never_closed import left_memory
from mpwatch.diagnose.analysis.growth.newest import own_lines, own_place
from mpwatch.diagnose.analysis.growth.registrations import (
    kept_by_unrun_loop,
    kept_exceptions,
    kept_states,
    kept_warnings,
    registered_each_round,
    registered_hooks,
)
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called, counted, is_manager
from mpwatch.diagnose.analysis.resources import CudaLent, cuda_lent, cuda_receivers
from mpwatch.diagnose.analysis.source.lines import mark_place, mark_words, marks, source_of
from mpwatch.diagnose.analysis.source.loops import loop_around
from mpwatch.diagnose.analysis.stack_patterns import calls, functions_of, main_thread, own_threads
from mpwatch.diagnose.analysis.throughput.shares import (
    PROXY_WRITES,
    asked,
    is_computing,
    shares,
    unreturned,
    work_place,
)
from mpwatch.diagnose.analysis.values import at_rest, grown
from mpwatch.model.history import first_at, rise
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Holder, Mark, Statement
from mpwatch.model.units import bytes_text


def explain_memory(index: Index, found: Growing) -> Explanation:
    """What keeps memory: what was measured to grow, where nothing surer is known."""
    explained = _memory_by_source(index, found)
    hits = grown(index, found.process.process)
    if not hits:
        return explained
    measured = tuple(each.words for each in hits[:SHOWN])
    named = [e for e in hits if f":{e.added.statement.line} " in explained.cause]
    if (explained.is_shown and not explained.is_guess) or named:
        cause = explained.cause
        if named:  # it was measured
            cause = capital(cause.removeprefix("Most likely "))
        if named and named[0].per_s:
            each_bytes = found.growth.per_s / named[0].per_s
            cause += f" The memory that is gained is {bytes_text(each_bytes)} for each entry."
        evidence = (*explained.evidence, *measured)
        return explained._replace(evidence=evidence, cause=cause, is_shown=True)
    return measured_container(index, found, hits, explained)


ARENA_BYTES = 64 * MIB
"""Malloc maps so much at once for a thread besides the main one, and then fills it."""
LEAST_FILLED_BYTES = 80 * MIB
MAPPED_PART = 0.1
"""Of what was gained, so much may have been mapped meanwhile."""


def _of_mapping(index: Index, found: Growing, seen: Sequence[str]) -> Explanation | None:
    """Memory that was mapped before and is written to for the first time.

    What is added to a container is new memory, so that the virtual size of the process rises by as
    much. A large array that numpy.zeros or torch.empty makes is mapped at once, and a page of it
    takes memory when it is first written: only the resident part rises.
    """
    for process, growth in zip(found.processes, found.growths, strict=True):
        series = index.history.of(process.process, "virtual_bytes")
        from_s = index.snapshot.at_s - growth.span_s
        if not process.sample.is_python or not series or series[0].at_s > from_s:
            return None
        before = series[max(0, first_at(series, from_s + 1.0) - 1)].value
        is_mapped = series[-1].value - before > MAPPED_PART * growth.gained
        running = [each for each in own_threads(index, process) if each.stack]
        beside = sum(each.tid != process.pid for each in running)
        if growth.gained < LEAST_FILLED_BYTES + beside * ARENA_BYTES or is_mapped:
            return None
    names, is_one = all_called(found.processes), len(found.processes) == 1
    mapped = index.history.of(found.process.process, "virtual_bytes")[-1].value
    return Explanation(
        "private memory",
        (
            f"its virtual size has stayed at {bytes_text(mapped)} meanwhile: no memory was added "
            "to it, what it writes to was mapped before",
            *seen,
        ),
        "It fills memory that was mapped before, most likely a buffer that was made at its full "
        "size (a ring or replay buffer, a table, a preallocated array): numpy.zeros, numpy.empty "
        "or torch.empty of a large size take memory of the system only where they are written for "
        "the first time. That ends when the buffer is full. A list or dict that only grows would "
        "make the virtual size rise as well: if it begins to, something is kept.",
        "Nothing, if the full size of that buffer (its nbytes) fits into memory beside the rest; "
        "otherwise make it smaller (fewer entries, a smaller dtype). To see at the start whether "
        "it fits, write to all of it once when it is made (numpy.full).",
        f"{names} {'fills' if is_one else 'fill'} memory that {'it' if is_one else 'they'} had "
        "mapped before",
        is_shown=False,
        is_bounded=True,
    )


def _memory_by_source(index: Index, found: Growing) -> Explanation:
    process = found.process
    seen = _allocating(index, found)
    if (waiting := backlog(index, found, seen)) is not None:
        return waiting
    if is_manager(process):
        if (managed := managed_queue(index, process)) is not None:
            return managed
        return Explanation(
            "private memory",
            tuple(_askers(index, process)),
            "It is the server process of a multiprocessing Manager, and holds the objects that "
            "other processes use through proxies. Lists, dicts and queues in it keep what is added "
            "to them and not removed. An object whose proxy was stored in another managed object, "
            "such as a manager.list() in a manager.dict(), stays in the server also after it was "
            "removed there (id_to_local_proxy_obj of multiprocessing/managers.py).",
            "Store plain values in managed objects and no proxies, and remove what was read. "
            "Send results through a queue. A manager that is shut down frees everything.",
        )
    return (
        unused_results(index, process, tuple(seen))
        or kept_messages(index, found)
        or _of_kept(index, found, seen)
    )


def may_end_at_bound(index: Index, found: Growing) -> bool:
    """Whether the memory of a GPU may rise until a container of the program is full.

    A cache of prefixes, or a memory of transitions, rises for minutes as steadily as what has no
    bound. Only what shows another reason counts then.
    """
    if found.resource != "GPU memory" or not marks(index, "bounded"):
        return False
    return not explain_gpu_memory(index, found).is_shown


def explain_gpu_memory(index: Index, found: Growing) -> Explanation:
    """What keeps memory on a GPU: a receiver of tensors, or what keeps memory of a process."""
    process = found.process
    gpus = {gpu for each in found.processes if (gpu := gpu_of(each)) is not None}
    noun = f"memory on GPU {' and '.join(map(str, sorted(gpus)))}" if gpus else "GPU memory"
    seen = _allocating(index, found)
    use = next((each for each in process.gpus if each.reserved_bytes is not None), None)
    if use is not None:
        seen.append(
            f"torch held {bytes_text(use.reserved_bytes)} of it when asked, "
            f"{bytes_text(use.allocated_bytes)} of that in tensors"
        )
    if (lent := _of_receiver(index, found, noun, seen)) is not None:
        return lent
    if (by_source := _of_source(index, process, seen)) is not None:
        return by_source._replace(noun=noun)
    added = [*marks(index, "kept", process), *marks(index, "stored", process)][:SHOWN]
    seen += [f"nothing in its file removes what {mark_words(each)} adds" for each in added]
    return Explanation(
        noun,
        tuple(seen),
        "It keeps tensors on the GPU: losses, outputs or states with their autograd graph, a list "
        "or dict of tensors that is only ever added to, an unbounded cache. Memory that torch has "
        "taken from the driver and uses again does not rise like this; a cache that is still "
        "filling does, and so do batches that become larger: their growth ends.",
        f"Bound or clear what is collected, and keep .cpu() copies of small parts.{NO_GRAPHS} "
        "torch.cuda.empty_cache() does not help while tensors are referred to. To see the lines "
        "that allocate: torch.cuda.memory._record_memory_history() and _dump_snapshot().",
        is_shown=False,
    )


def _of_receiver(
    index: Index, found: Growing, noun: str, seen: Sequence[str]
) -> Explanation | None:
    """Memory of CUDA tensors that processes have sent, and that their receiver keeps.

    Where their hooks count what receivers have not released, that has to be a part of the growth.
    """
    holders = cuda_receivers(index, found.processes)
    lent = [(each, of) for each in found.processes if (of := cuda_lent(each)) is not None]
    if not holders or not (lent or all(_puts(index, each) for each in found.processes)):
        return None
    if any(not _lends_more(index, found, *each) for each in lent):
        return None
    names, is_one = all_called(holders), len(holders) == 1
    keeps = "keeps" if is_one else "keep"
    stored = [
        mark
        for kind in ("kept", "stored")
        for mark in marks(index, kind)
        if any(_is_beside(mark, holder) for holder in holders)
    ]
    where = f", most likely by {mark_words(stored[0])}" if len(stored) == 1 else ""
    subject, verb = all_called(found.processes), "sends" if len(found.processes) == 1 else "send"
    likely = "" if lent else "Most likely "
    takes = marks(index, "takes", holders[0])
    return Explanation(
        noun,
        (
            *(
                f"{called(each)} has sent {of.sent:.0f} CUDA tensors, of which its receivers have "
                f"not released {of.unreleased:.0f}"
                for each, of in lent
            ),
            f"{names} {'has' if is_one else 'have'} CUDA memory of {subject} open",
            *(f"{called(holders[0])} takes items: {mark_words(each)}" for each in takes[:1]),
            *(f"nothing in its file removes what {mark_words(e)} keeps" for e in stored[:SHOWN]),
            *seen,
        ),
        f"{likely}{subject} {verb} CUDA tensors to {names}, which {keeps} them{where}. The memory "
        "of a CUDA tensor that is sent belongs to its sender, which cannot use it again as long as "
        "the receiver refers to the tensor, or to a view of it.",
        f"In {names}, keep only what is needed later, as a copy (.clone(), or .cpu()), and drop "
        "what was received before the next item is taken; or send CPU tensors. empty_cache() and "
        "ipc_collect() free nothing that the receiver refers to.",
        f"{names} {keeps} CUDA tensors of {subject}, "
        f"which {'has' if verb == 'sends' else 'have'} ever more {noun}"
        if lent
        else None,
        "sent GPU memory",
    )


def _lends_more(index: Index, found: Growing, sender: Process, lent: CudaLent) -> bool:
    """Whether what receivers have not released rises, and is a part of what was gained."""
    series = index.history.of(sender.process, "cuda_unreleased")
    growth = found.growths[found.processes.index(sender)]
    is_more = rise(series, within_s=growth.span_s) > 0
    return is_more and (lent.bytes_held is None or lent.bytes_held >= growth.gained / 4)


def _puts(index: Index, process: Process) -> bool:
    """Whether a function that the main thread of a process is in puts items into a queue."""
    thread = main_thread(process)
    running = functions_of(own_frames(thread.stack)) if thread else set()
    return any((each.file, each.function) in running for each in marks(index, "put", process))


def _is_beside(mark: Mark, process: Process) -> bool:
    """Whether a mark is in a file beside those of the program that a main thread is in."""
    thread = main_thread(process)
    own = program_frames(thread.stack) if thread else []
    return mark.file.rpartition("/")[0] in {each.file.rpartition("/")[0] for each in own}


def _allocating(index: Index, found: Growing) -> list[str]:
    """Where the processes compute: memory does not rise while they sleep or wait.

    The last stack of the main thread counts too, unless it is one of a sleep or a wait.
    """
    main = main_thread(found.process)
    wait = main.waits_on if main is not None else None
    lines = own_lines(found.process) if wait is None else None
    seen = [f"its main thread when last seen: {lines}"] if lines else []
    place = work_place(index, found.processes, is_computing)
    if place is not None and not (lines or "").startswith(place.words):
        seen.append(f"{place.part:.0%} of its computing whose line is known: {place.words}")
    has_loop = main is not None and loop_around(index, main.stack) is not None
    if not seen and not has_loop and (lines := own_lines(found.process)):
        seen.append(f"its main thread when last seen, while it waited: {lines}")
    return seen


def _of_kept(index: Index, found: Growing, seen: list[str]) -> Explanation:
    """Memory of which nothing shows what keeps it."""
    process = found.process
    threads = _other_threads(index, process)
    seen += [f"its thread {name} is at {place}" for name, place in threads[:SHOWN]]
    is_queue = (
        ", a queue.Queue without maxsize that one of its threads fills faster than another one "
        "reads it"
        if threads
        else ""
    )
    main = main_thread(process)
    by_source = _of_source(index, process, seen)
    recorded = _of_recording(index, process, seen)
    if recorded is not None and (by_source is None or not by_source.is_shown):
        return recorded
    left = left_memory(index, process, seen)
    if left is not None and (by_source is None or not by_source.is_shown):
        return left
    missed = _cache_miss(index, main.stack) if main is not None else None
    if missed is not None:
        return _of_cache(*missed, seen)
    if by_source is not None:
        return by_source
    if (filled := _of_mapping(index, found, seen)) is not None:
        return filled
    # One that it may use between two stacks.
    if (memo := _of_pickler(marks(index, "reuses-pickler"), seen, is_seen=False)) is not None:
        return memo
    added = _only_added_to(index, process)
    seen += [f"nothing in its file removes what {mark_words(each)} adds" for each in added]
    large = [each for each in added if _LARGE.search(each.statement.text)]
    large.sort(key=lambda each: _REDUCED.search(each.statement.text) is not None)
    loop = _lasting_loop(index, process, main) if main is not None else None
    rounds = f" over the rounds of {_loop_words(*loop)}" if loop else ""
    slices = _SLICES if process.sample.torch_loaded else ""
    trains = _trains(index, process)
    # No DataLoader worker trains: its tensors have no graph.
    is_torch = process.sample.torch_loaded and process.role != "loader-worker"
    is_torch = is_torch and (trains or may_have_graphs(index, process))
    if len({_container(each) for each in large}) == 1:
        return _of_container(large, seen, rounds, slices, has_graphs=bool(is_torch and trains))
    example = f" (as {mark_words(added[0])})" if len(added) == 1 else ""
    holding = held(index, process.process) if not added else ()
    unsure = [e for e in holding if not _ends_with_its_round(index, process, e.first)][:1]
    example = f" (as where {adds_words(unsure[0])})" if unsure else example
    lists = f"a list or dict that is only ever added to{example}, an unbounded cache{is_queue}"
    kept = f"It keeps what it allocates{rounds}: {lists}{_OR_GRAPHS if is_torch else ''}"
    if is_torch and trains:
        kept = f"It keeps what it allocates{rounds}. {_GRAPHS}; or {lists}"
    return Explanation(
        "private memory",
        tuple(seen),
        f"{kept}. A cache that is still filling looks the same; its growth then levels off.",
        f"Bound or clear what is collected.{NO_GRAPHS if is_torch else ''}{slices} To see the "
        "lines that allocate, run it under tracemalloc or memray.",
        is_shown=False,
    )


_CACHED = re.compile(r"^if (?:.+ )?in ([\w.]+): return \1\b")
"""`if key in self.items: return self.items[key]`."""


def _cache_miss(index: Index, frames: Sequence[Frame]) -> tuple[Frame, Statement] | None:
    """The innermost line that is reached where a cache has no entry, and the lookup before it."""
    for frame in own_frames(frames):
        line = source_of(index, frame) if not is_library(frame) else None
        for statement in line.after if line is not None else ():
            if _CACHED.search(statement.text):
                return frame, statement
    return None


def _only_added_to(index: Index, process: Process) -> list[Mark]:
    """The statements that add to containers which nothing in their file empties, if they are few.

    Without those whose containers were measured and do not grow, or whose loops were left.
    """
    still = at_rest(index, process.process) | not_at_work(index, process)
    added = [
        each
        for each in marks(index, "kept", process)
        if (each.file, each.statement.line) not in still
    ]
    return added if len(added) <= SHOWN else []


def _ends_with_its_round(index: Index, process: Process, holder: Holder) -> bool:
    """Whether a variable is made anew in each round, and let go at its end, as far as this shows.

    There it is sent, or its function returns: which a process has not left for a while that is
    still in its first round.
    """
    if not holder.is_renewed or holder.owner:
        return False
    inside = functions_of(unreturned(index, process))
    return holder.is_sent or (bool(inside) and (holder.file, holder.function) not in inside)


def _container(mark: Mark) -> str:
    """The variable to which a statement adds: `rows` of `rows[0]`."""
    return mark.about.partition("[")[0]


def _of_container(
    large: Sequence[Mark], seen: Sequence[str], rounds: str, slices: str, *, has_graphs: bool
) -> Explanation:
    """Memory that the only container keeps to which arrays or tensors are added."""
    name, count = _container(large[0]), len(large) - 1
    more = f" and {counted(count, 'more line')}" if count else ""
    graphs = f" If it is not that: {_GRAPHS[:1].lower()}{_GRAPHS[1:]}." if has_graphs else ""
    return Explanation(
        "private memory",
        tuple(seen),
        f"Most likely it keeps in {name} what {mark_words(large[0])}{more} "
        f"{'add' if more else 'adds'}{rounds}: nothing in that file takes anything out of it."
        f"{graphs}",
        f"Empty {name} at the end of each round, keep only numbers or the last items in it "
        f"(collections.deque(maxlen=...)), or write them to a file."
        f"{NO_GRAPHS if graphs else ''}{slices}",
        is_shown=False,
    )


def _of_cache(frame: Frame, lookup: Statement, seen: Sequence[str]) -> Explanation:
    """A cache that is filled at a line below a lookup that finds nothing."""
    return Explanation(
        "private memory",
        tuple(seen),
        f"It fills a cache: {frame_words(frame)} makes what `{lookup.text}` in line "
        f"{lookup.line} does not find. With a bound the growth ends when the cache is full; "
        "without one it goes on for as long as there are new keys.",
        "Look whether entries are dropped from that cache, and after how many bytes: each "
        "process has one of its own. If none are, give it a bound "
        "(functools.lru_cache(maxsize=...), or drop the oldest).",
        is_shown=False,
    )


_LARGE = re.compile(r"\.(?:numpy|cpu|clone|detach|copy|tolist|to|tobytes)\(|\b(?:np|numpy|torch)\.")
"""In a statement that adds an array, a tensor or a copy of one."""
_REDUCED = re.compile(r"\.(?:mean|sum|max|min|norm|std|median)\(")


def _lasting_loop(index: Index, process: Process, main: Thread) -> tuple[Frame, Statement] | None:
    """The loop in which memory rises: of a function that the main thread has not left for a while.

    A function that is called anew in each round may have loops of its own, which end.
    """
    inside = functions_of(unreturned(index, process))
    lasting = [each for each in main.stack if (each.file, each.function) in inside]
    return loop_around(index, lasting or main.stack)


def _of_source(index: Index, process: Process, seen: list[str]) -> Explanation | None:
    """What the source of the files that the main thread is in shows to keep memory."""
    if (cycles := uncollected(index, process)) is not None:
        return Explanation("private memory", (*seen, cycles.evidence), cycles.cause, cycles.advice)
    # No DataLoader worker trains: its tensors have no graph.
    if process.sample.torch_loaded and process.role != "loader-worker":
        graphs = kept_graphs(index, process, unreturned(index, process))
        if graphs is not None:
            return Explanation(
                "private memory", (*seen, graphs.evidence), graphs.cause, graphs.advice
            )
    if (view := _of_view(index, process, seen)) is not None:
        return view
    near = marks(index, "reuses-pickler", process)
    if (memo := _of_pickler(near, seen, is_seen=True)) is not None:
        return memo
    if (cycled := kept_by_cycle(index)) is not None:
        return Explanation("private memory", (*seen, cycled.evidence), cycled.cause, cycled.advice)
    futures = marks(index, "futures", process)
    inside = functions_of(f for each in process.threads[:1] for f in each.stack)
    if len(futures) == 1 and (futures[0].file, futures[0].function) in inside:
        name = futures[0].about
        return Explanation(
            "private memory",
            (*seen, f"{mark_words(futures[0])}: nothing in that file takes one out of {name}"),
            f"Each call that has been submitted is one future, and a future that is done keeps its "
            f"result. {name} refers to all of them, at {mark_words(futures[0])}: results stay in "
            "this process from the moment that a worker has sent them, before and after they are "
            "used.",
            f"Take each future out of {name} when its result was used (futures.pop(future), "
            "futures.remove(future)), and submit a bounded number ahead: wait(futures, "
            "return_when=FIRST_COMPLETED), use what is done, then submit as many. "
            "max_tasks_per_child and gc.collect() do not help.",
        )
    if (held := kept_to_end(index, process)) is not None:
        return Explanation(
            "private memory", (*seen, held.evidence), held.cause, held.advice, is_shown=False
        )
    for explain in (
        kept_by_unrun_loop,
        registered_hooks,
        _of_unsent,
        kept_exceptions,
        kept_states,
        registered_each_round,
        container_in_source,
    ):
        if (known := explain(index, process, seen)) is not None:
            return known
    if (warned := kept_warnings(index, process)) is not None:
        evidence = (*seen, warned.evidence)
        return Explanation("private memory", evidence, warned.cause, warned.advice, is_shown=False)
    caches = marks(index, "cache", process) or marks(index, "cache")
    if len(caches) == 1:
        return _of_unbounded(index, caches[0], seen)
    return None


def _of_unbounded(index: Index, cache: Mark, seen: Sequence[str]) -> Explanation:
    """A cache without a bound, with where its keys come from as far as that shows."""
    place = f"{cache.file.rpartition('/')[2]}:{cache.statement.line}, "
    keys = [e for e in marks(index, "cache-key") if e.about.startswith(place)]
    come = fewer = ""
    if keys:
        come = f" As far as names tell, its keys come from {' and '.join(map(mark_words, keys))}."
        fewer = (
            f"Look at what the keys from {mark_place(keys[0])} can be: an id, a path or a text "
            "of each request makes a new entry each time, a name or a template of a few does "
            "not. Or g"
        )
    return Explanation(
        "private memory",
        (*seen, f"{mark_words(cache)} fills {cache.about}"),
        f"It fills a cache without a bound: {mark_words(cache)} adds an entry for each new "
        "key, and nothing in that file drops one. The growth ends only when no new keys come."
        f"{come}",
        f"{fewer or 'G'}ive that cache a bound (functools.lru_cache(maxsize=...), or drop the "
        "oldest), or keep less of each entry. Each process has a cache of its own.",
        is_shown=False,
    )


def _of_recording(index: Index, process: Process, seen: Sequence[str]) -> Explanation | None:
    """A profiler of torch that records all rounds of the loop that a process is in."""
    if not process.sample.torch_loaded or process.role == "loader-worker":
        return None
    for mark in marks(index, "records-all"):
        profiler, started, block = mark.about.split(", ", 2)
        is_history = profiler.endswith("_record_memory_history")
        inside = _inside_recording(index, process, mark.file, block)
        if inside is None or (is_history and not process.gpus):
            continue
        is_one = int(started) == mark.statement.line
        begins = "" if is_one else f", started in line {started}"
        what = "each allocation and release of GPU memory" if is_history else "every operator"
        limit = "max_entries=" if is_history else "schedule="
        return Explanation(
            "private memory",
            (*seen, f"{mark_words(mark)} has no {limit}", *inside),
            f"Most likely the records of a profiler: {mark_words(mark)} calls {profiler} without "
            f"{limit}{begins}, so that it keeps a record of {what} of every step until it is "
            f"stopped{', which is only after the loop' if block else ''}.",
            _ADVICE_HISTORY if is_history else _ADVICE_PROFILER,
            is_shown=False,
        )
    return None


def _inside_recording(
    index: Index, process: Process, file: str, block: str
) -> tuple[str, ...] | None:
    """Evidence that a process is in what a profiler records; `None` if it does not seem to be.

    Args:
        index: The snapshot.
        process: The process.
        file: That of the profiler.
        block: As `MarkKind` says of "records-all".
    """
    main = main_thread(process)
    own = program_frames(main.stack) if main is not None else []
    inside = functions_of(unreturned(index, process))
    own = [each for each in own if not inside or (each.file, each.function) in inside]
    if not block:
        return ()
    if not block.startswith("with "):
        first, last = map(int, block.split("-"))
        is_in = any(each.file == file and first <= each.line <= last for each in own)
        return (f"it is in lines {block} of that file, which it records",) if is_in else None
    entered = re.compile(rf"with .*\b{re.escape(block.removeprefix('with '))}\(")
    for frame in own:
        line = source_of(index, frame)
        for header in line.within if line is not None else ():
            if header.text.startswith(("for ", "while ", "async for ")):
                break  # each round has a profiler of its own
            if entered.match(header.text):
                place = frame_words(frame._replace(line=header.line))
                return (f"it is in the block of `{header.text}` at {place}, which it records",)
    return None


_ADVICE_PROFILER = (
    "Profile only some steps: torch.profiler.profile(schedule=torch.profiler.schedule(wait=10, "
    "warmup=1, active=3, repeat=1), on_trace_ready=...) with step() in each round, which drops the "
    "records after each cycle; or call start() and stop() around a few steps; or leave it out of "
    "long runs. gc.collect(), .item() or detach() do not help: the profiler has these records."
)
_ADVICE_HISTORY = (
    "Give it a limit (max_entries=100000), or record only for some steps and end it by "
    "torch.cuda.memory._record_memory_history(enabled=None). gc.collect(), .item() or "
    "empty_cache() do not help: the recorder has these entries."
)


_MADE = re.compile(r"(line \d+|[\w.]+\.py:\d+): (.+)")


def _of_view(index: Index, process: Process, seen: list[str]) -> Explanation | None:
    """A slice that is kept, with all of the array that it is a part of."""
    if not process.sample.torch_loaded:
        return None
    views = [(each, each.about) for each in marks(index, "view", process)]
    views = views or list(_passed_views(index, process))
    if len({view.statement for view, _ in views}) != 1:
        return None
    view, about = views[0]
    found = _MADE.fullmatch(about)
    part, made = (found[2], f", made in {found[1]}") if found is not None else (about, "")
    whole = part.partition("[")[0]
    return Explanation(
        "private memory",
        (*seen, f"{mark_words(view)} keeps {part}{made}"),
        f"{mark_words(view)} keeps {part}{made}. If {whole} is a tensor or array, that is a "
        f"view: as long as it is kept, all of {whole} stays in memory, too.",
        f"Keep a copy of the part: {part}.clone() of a tensor, .copy() of an array, "
        ".item() of one number. If it is neither, bound the container.",
        is_guess=True,
    )


def _of_pickler(found: Sequence[Mark], seen: Sequence[str], *, is_seen: bool) -> Explanation | None:
    """A pickler that is used for all messages, whose memo grows with each (CPython's pickle).

    Args:
        found: The statements that use one.
        seen: Evidence.
        is_seen: Whether the process was seen in their file; else it may use them.
    """
    if not found or len({each.file for each in found}) > 1:
        return None
    mark = found[0]
    name, _, line = mark.about.partition(", ")
    return Explanation(
        "private memory",
        (*seen, f"{mark_words(mark)} uses {name} of line {line} again and again"),
        f"{'Most likely' if is_seen else 'Possible:'} the memo of {name} keeps it: "
        f"{mark_words(mark)} uses the one of line {line} "
        "for all messages. A Pickler refers to each object that it has written, so as to write it "
        "only once, and an Unpickler to each that it has read. So nothing that is sent or received "
        "this way is freed as long as these live.",
        "Use pickle.dumps() and pickle.loads() for each message, or a Pickler and an Unpickler "
        "that are made anew for each; clear_memo() of the Pickler alone leaves what was read in "
        "the other process. gc.collect(), or del of a message, does not help.",
        is_shown=is_seen,
        is_guess=True,
    )


def _passed_views(index: Index, process: Process) -> Iterator[tuple[Mark, str]]:
    """Slices that are given to the one method of the program which keeps that argument."""
    for mark in marks(index, "view-passed", process):
        method, place, made = mark.about.split(", ", 2)
        kept = [each for each in marks(index, "argument-kept") if each.function == method]
        of = [each for each in kept if each.about.startswith(f"{place}, ")]
        if len({each.file for each in kept}) == 1 and len(of) == 1:
            yield of[0], made


def _of_unsent(index: Index, process: Process, seen: list[str]) -> Explanation | None:
    """What a coroutine writes to a stream in a loop, and never waits until it was sent."""
    found = marks(index, "undrained-write", process)
    if len(found) != 1:
        return None
    mark, drains = found[0], f"await {found[0].about}.drain()"
    return Explanation(
        "private memory",
        (*seen, f"{mark.function}() writes at {mark_words(mark)} in a loop, without {drains}"),
        f"Most likely what was not sent yet: write() of a stream of asyncio never waits. What the "
        "other end does not read as fast as it is written stays in the buffer of the transport, "
        f"which has no bound, and {mark_words(mark)} goes on without {drains}.",
        f"Put {drains} after each write: it waits while the buffer is above its limit, so that the "
        "writer takes no more than the reader does. Or drop or merge messages for a slow reader. A "
        "larger socket buffer or gc.collect() does not help.",
        is_shown=False,
    )


def _loop_words(frame: Frame, loop: Statement) -> str:
    """A loop and where it is: `for step in steps:` at train.py:39 epoch."""
    return f"`{loop.text}` at {frame_words(frame._replace(line=loop.line))}"


def _trains(index: Index, process: Process) -> bool:
    """Whether a process is a rank, or was seen in a backward pass or in a collective."""
    if process.role == "rank" or process.label.startswith("rank "):
        return True
    if any(calls(own_frames(each.stack), ":_engine_run_backward") for each in process.threads):
        return True
    return any(each.activity.target == "collective" for each in shares(index, process))


_OR_GRAPHS = ", losses or outputs kept as tensors with their autograd graph"
_GRAPHS = (
    "In training that is most often a loss, a metric or an output that is summed up or "
    "stored as a tensor: with it stays the autograd graph of its step"
)


_SLICES = (
    " A slice or view that is kept keeps the whole tensor or array that it was made of: keep a "
    "clone() or copy() of it."
)


def _other_threads(index: Index, process: Process) -> list[tuple[str, str]]:
    """The names and lines of the threads of the program besides the main one."""
    return [
        (each.name, place)
        for each in own_threads(index, process)
        if each.tid != process.pid and (place := own_place(each)) is not None
    ]


def _askers(index: Index, manager: Process) -> Iterator[str]:
    """The lines at which other processes ask a manager; those that add to its objects first."""
    found = asked(index, manager, index.snapshot.living())
    for each in sorted(found, key=lambda line: line.method not in PROXY_WRITES):
        calling = f", calling {each.method} of a proxy" if each.method else ""
        verb = "asks" if len(each.processes) == 1 else "ask"
        yield f"{all_called(each.processes)} {verb} it at {each.place}{calling}"
