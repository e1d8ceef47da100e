"""What keeps memory as the source shows: autograd graphs, reference cycles, itertools.cycle."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from msgspec import Struct

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.source.lines import mark_words, marks
from mpwatch.diagnose.analysis.stack_patterns import functions_of, main_thread
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark


class Kept(Struct, frozen=True):
    """What keeps memory, as the source shows."""

    evidence: str
    cause: str
    advice: str


def kept_by_cycle(index: Index) -> Kept | None:
    """What itertools.cycle keeps, where the source has one call of it; `None` otherwise."""
    found = marks(index, "cycle")
    if len({each.statement for each in found}) != 1:
        return None
    words = mark_words(found[0])
    return Kept(
        f"{words} keeps what it gives",
        f"Most likely {words}: itertools.cycle keeps a copy of every element of {found[0].about} "
        "until its first pass has ended, and all of them from then on.",
        f"Use a loop that begins anew: while True: yield from {found[0].about}. gc.collect() does "
        "not help, and restarted workers begin to keep again.",
    )


def uncollected(index: Index, process: Process) -> Kept | None:
    """Reference cycles that a process does not collect, as the source shows.

    Its parent switches the collector off before it forks the process, or it does so itself, and
    nothing that was read may switch it on, or collect, in the process.
    """
    parent = index.snapshot.get(process.parent) if process.parent is not None else None
    is_exec = process.role not in _FORKED or process.start_method in ("spawn", "forkserver")
    of_parent = _functions(parent) if parent is not None and not is_exec else frozenset()
    files = {file for file, _ in of_parent or _functions(process)}
    off = [each for each in marks(index, "gc-off") if each.file in files]
    on = marks(index, "gc-on")
    if not off or any(
        each.about != "collect" or (each.file, each.function) not in of_parent for each in on
    ):
        return None
    where = mark_words(off[0])
    how = (
        f"{where} was called before {called(parent)} forked it, which it inherits"
        if parent is not None and of_parent
        else f"{where} switches the garbage collector off"
    )
    by_parent = " (the one that collects is its parent)" if on else ""
    cycles = marks(index, "self-reference")
    made = (
        f" {mark_words(cycles[0])} makes such a cycle each time that {cycles[0].function}() is "
        "called: an inner function that calls itself refers to itself."
        if cycles
        else " Exceptions that are kept, objects that refer to their parent, and inner functions "
        "that call themselves are such cycles."
    )
    return Kept(
        "nothing in the source that was read lets the collector run in "
        f"{called(process)}{by_parent}",
        f"Most likely objects in reference cycles are never freed there: {how}.{made} All that a "
        "cycle refers to, such as arrays and tensors, stays.",
        "Let the collector run in these processes: gc.enable() in the worker_init_fn or the "
        "initializer, or gc.collect() there at intervals; or do not switch it off. Or break "
        f"the cycles{_of_cycle(cycles)}. gc.collect() in another process, smaller queues or fewer "
        "batches ahead do not help.",
    )


_FORKED = ("loader-worker", "pool-worker", "spawned")


def _functions(process: Process) -> frozenset[tuple[str, str]]:
    """The functions that the main thread of a process is in, with their files."""
    thread = main_thread(process)
    frames = own_frames(thread.stack) if thread is not None else ()
    return functions_of(frames)


def _of_cycle(cycles: Sequence[Mark]) -> str:
    return f": make {cycles[0].about} a function of its module" if cycles else ""


_UNDER_NO_GRAD = (
    "under torch.no_grad() or torch.inference_mode(), where nothing is to be trained by it"
)


def kept_graphs(index: Index, process: Process, inside: Sequence[Frame]) -> Kept | None:
    """What keeps autograd graphs, as the source of the files that a main thread is in shows.

    Args:
        index: The snapshot.
        process: The process that grows.
        inside: The calls that its main thread has not left for a while.

    Returns:
        `None` where autograd may be switched off, and where a graph is not the only thing kept.
    """
    staying = functions_of(inside)
    running = staying | _functions(process)
    off = {(each.file, each.function) for each in marks(index, "no-grad")}
    is_off = any("set_grad_enabled" in m.statement.text for m in marks(index, "no-grad"))
    if is_off or not off.isdisjoint(running):
        return None

    found = [
        (mark, kept)
        for mark, kept in _graphs_kept(index, process, running)
        if (mark.file, mark.function) not in off
        # A variable of a function stays only as long as the function does.
        if "." in mark.about.partition(",")[0]
        or (mark.file, mark.function) in (running if mark.kind == "outputs-kept" else staying)
    ]
    at_work = [kept for mark, kept in found if (mark.file, mark.function) in running]
    if at_work:
        return at_work[0]
    return found[0][1] if len({(mark.file, mark.function) for mark, _ in found}) == 1 else None


def _graphs_kept(
    index: Index, process: Process, running: Container[tuple[str, str]]
) -> Iterator[tuple[Mark, Kept]]:
    """The statements that keep graphs in the files that a main thread is in."""
    for mark in marks(index, "graph-carried", process):
        yield mark, _carried_graph(mark)
    for mark in marks(index, "outputs-kept", process):
        yield mark, _kept_outputs(mark)
    for mark in marks(index, "graph-running"):
        yield mark, _running_graph(mark)
    for mark in marks(index, "graph-summed", process):
        yield mark, _summed_graph(mark)
    trained = {(each.file, each.function) for each in marks(index, "backward")}
    # A backward pass frees what the graphs of its process refer to, but not one that is computed
    # where it is passed on.
    is_trained = any(each in running for each in trained)
    others = [*marks(index, "kept", process), *marks(index, "cache", process)]
    for mark in marks(index, "graph-kept", process) if not is_trained else ():
        container, line, *emptied = mark.about.split(", ", 2)
        is_other = any(each.statement != mark.statement for each in others)
        if not (emptied and is_other):
            yield mark, _kept_graph(mark, container, f"in line {line}", "", emptied)
    for mark in marks(index, "graph-passed", process):
        if is_trained and (mark.file, mark.function) not in trained:
            continue
        method, place, line = mark.about.split(", ")
        kept = [each for each in marks(index, "argument-kept") if each.function == method]
        of = [each for each in kept if each.about.startswith(f"{place}, ")]
        if len({each.file for each in kept}) == 1 and len(of) == 1:
            name, container = mark.file.rpartition("/")[2], of[0].about.partition(", ")[2]
            where, passed = f"at {name}:{line} {mark.function}", f", and {mark_words(mark)} passes"
            # What is passed is kept by an object, so it stays.
            yield (
                mark._replace(about=container),
                _kept_graph(of[0], container, where, f"{passed} to it", ()),
            )


def _carried_graph(mark: Mark) -> Kept:
    state = mark.about
    return Kept(
        f"nothing in its file detaches {state}, which {mark_words(mark)} returns and is given",
        f"Most likely {mark_words(mark)} keeps autograd graphs: {state} of one call goes into the "
        "next one together with its graph, nothing in that file detaches it, and no no_grad() or "
        "inference_mode() is seen around it (eval() does not switch autograd off). So the graph "
        "becomes longer with each call, and all intermediate results since the first one stay in "
        "memory.",
        f"Call it {_UNDER_NO_GRAD}; else detach {state} after each call ({state}.detach(), of a "
        "tuple each tensor). gc.collect(), shorter queues or clearing other lists do not help.",
    )


def _running_graph(mark: Mark) -> Kept:
    state = mark.about
    return Kept(
        f"{mark_words(mark)} computes {state} from itself and from the batch, and detaches nothing",
        f"Most likely {mark_words(mark)} keeps autograd graphs: each value of {state} is computed "
        "from the one before and from tensors of the batch, with gradients on. So it refers to the "
        "graphs of all batches, one more with each step.",
        f"Update {state} under torch.no_grad(), or from detached tensors (mean.detach()). "
        "gc.collect() or clearing other lists does not help.",
    )


def _summed_graph(mark: Mark) -> Kept:
    total, _, loss = mark.about.partition(", ")
    return Kept(
        f"{mark_words(mark)} adds {loss} itself to {total}, with its autograd graph",
        f"Most likely {mark_words(mark)} keeps autograd graphs: {loss} is a tensor, and the sum "
        f"{total} refers to the graphs of all that were added to it, until it begins anew. "
        "backward() frees the tensors that a graph has saved, and not the graph.",
        f"Add a number: {total} += {loss}.item(), or {loss}.detach(). gc.collect() does not help.",
    )


def _kept_outputs(mark: Mark) -> Kept:
    container, line, loop = mark.about.split(", ")
    return Kept(
        f"{mark_words(mark)} keeps what line {line} has returned in each round of line {loop}",
        f"Most likely {mark_words(mark)} keeps the whole result of each step in {container} until "
        f"the loop of line {loop} ends: all tensors in it, with what is left of their graphs. "
        "Memory rises with each step, and falls at the end of that loop.",
        f"Add only what is needed after the loop to {container}: loss.item(), or detach() of small "
        "tensors. gc.collect() does not help while they are kept.",
    )


def _kept_graph(
    mark: Mark, container: str, where: str, passed: str, emptied: Sequence[str]
) -> Kept:
    until = f" until {emptied[0]} empties it" if emptied else ""
    return Kept(
        f"{mark_words(mark)} adds what a model has computed {where}, without detach() or item()",
        f"Most likely {mark_words(mark)} keeps autograd graphs: what a model has computed {where}"
        f"{passed}, is kept without detach() in {container}{until}, and no no_grad() or "
        "inference_mode() is seen around that (eval() does not switch autograd off). Each tensor "
        "keeps the graph of its batch, and with it all intermediate results of the forward pass.",
        f"Run the forward pass {_UNDER_NO_GRAD}; else keep .detach() of the tensor, or .item() of "
        "one number.",
    )
