"""Main waits for data most of the time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from msgspec import Struct

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.describe.processes import wait_verb
from mpwatch.diagnose.analysis.growth.newest import iterated_at, own_lines, own_place
from mpwatch.diagnose.analysis.idle_time import are_stalled, mean_cpu_percent, wait_share, waiting_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import (
    age_s,
    all_called,
    called,
    counted,
    generations,
    loader_owners,
    started_workers,
)
from mpwatch.diagnose.analysis.source.costs import Reopened, reopened
from mpwatch.diagnose.analysis.source.lines import mark_words, marks
from mpwatch.diagnose.analysis.stack_merge import merge
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, user_frame
from mpwatch.diagnose.analysis.throughput.loading import (
    OwnLoading,
    SharedCpu,
    loads_itself,
    reads_all,
    shared_cpu,
)
from mpwatch.diagnose.analysis.throughput.shares import (
    LOSS_READINGS,
    SHORT_OF_CORES,
    Loss,
    Place,
    core_share,
    doing_words,
    idle_share,
    imported_until_s,
    is_computing,
    losses,
    main_account,
    shares,
    switches_per_s,
    times_faster,
    work_place,
    working_share,
)
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.providers import ended_children
from mpwatch.model.account import DECOMPRESSION, IMPORTS, SEEKING, Activity, Tally
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import Series, first_at
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Loader, Process
from mpwatch.model.source_code import Mark
from mpwatch.model.units import seconds_text

RULE = "loader-starvation"
IS_OF_SHARES = True
SLOWS_DOWN = True
WAIT_SHARE = 0.5
BATCHES = 20
"""The first batches wait for the workers' start."""
FEW_BATCHES = 2
WORKED_S = 20.0
WORK_SHARE = 0.5
"""Workers that have done their own work for so long and so much have started long ago, however few
batches there were."""
BUSY_PERCENT = 10.0
MOST_CPUS = 0.6
"""As many workers as cpus that use this part of them leave little for further ones."""
USUAL_S = 15.0
STALL_S, STALLED_S = 3.0, 5.0
"""A wait that has lasted this long may be the beginning of a hang: then only what the workers did
in the last seconds counts, and not how busy they were before."""
IDLE_SHARE = 0.35
"""A worker that waits for work more than this part of the time has time to spare."""
NO_WORK_SHARE = 0.9
"""A worker that is idle for more has nothing to do at all."""
WAITS_PER_S = 2.0
ALONE_S = 10.0
"""The last worker of an epoch is alone for less."""
AHEAD_SHARE = 0.6
"""A worker that is idle for this part of the time has made its batches long before they are used.
"""
ASKED_SHARE = 0.4
"""Workers that wait so much for one process would be faster without it than with more workers."""
START_SHARE = 0.3
STARTS = 2
SEEK_SHARE = 0.4
LITTLE_WAIT = 0.1
"""A main process that waits less than this for batches has them as soon as it needs them."""
SKIPS_READINGS = 30
"""So many readings at a skip, and none elsewhere: of a loop whose steps take a tenth of the time,
one in 24 would look like that."""
OWN_SHARE = 0.6
"""A process that makes its batches itself for less has a step that takes about as long."""
SHOWN = 2
"""Workers whose time is shown."""
IMPORTING_PART = 0.5
"""Workers that import for this part of the time whose line is known are still starting."""
ALL_CPUS = 0.85
"""Part of the usable cpus from which more workers find none free; main needs one as well."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where main waits for batches more than half the time, and workers work.

    With the hook the share is measured; without, it is the share of samples in which main waited
    as a DataLoader does.
    """
    reported = set()
    for owner, started in started_workers(index):
        if not any(each.is_gone and each.role == "loader-worker" for each in started):
            continue
        starts = _start_ups(index, owner, started)
        if starts is not None and starts.share >= START_SHARE:
            yield _finding_of_starts(owner, starts)
            reported.add(owner.process)
    yield from _loading_themselves(index)
    for owner, workers in loader_owners(index):
        if owner.process in reported:
            continue
        left = _last_with_work(index, owner, workers)
        if left is not None:
            yield _finding_of_last(index, owner, left)
            continue
        seeking = _seeking(index, workers)
        waited = _waited_for_batches(index, owner)
        is_needed = waited >= LITTLE_WAIT or core_share(index, owner) >= SHORT_OF_CORES
        if seeking and is_needed:
            yield _finding_of_seeks(index, owner, seeking, is_costly=waited >= START_SHARE)
            continue
        measured = [x for x in index.snapshot.loaders if x.process == owner.process]
        waits = any(
            (x.process_wait_share or 0.0) >= WAIT_SHARE and x.batches < BATCHES for x in measured
        )
        least = FEW_BATCHES if waits and _have_worked(index, workers) else BATCHES
        share = max(
            (x.process_wait_share or 0.0 for x in measured if x.batches >= least), default=None
        )
        if share is not None:
            waited_s = max(x.waiting_since_s or 0.0 for x in measured)
            if share >= WAIT_SHARE and _are_busy(index, workers, waited_s):
                yield _finding(index, owner, workers, share, measured)
        elif not measured and _seems_starved(owner, workers, index):
            yield _finding(index, owner, workers, None, ())


def _loading_themselves(index: Index) -> Iterator[Finding]:
    """Ranks or main processes that make their batches themselves for most of the time."""
    found = [
        each
        for process in index.snapshot.living()
        if (each := loads_itself(index, process)) is not None and each.share >= OWN_SHARE
    ]
    sampling = [each for each in found if each.sampler is not None]
    if sampling:
        yield _of_sampler(index, sampling)
    found = [each for each in found if each.sampler is None]
    if not found:
        return
    processes = [each.process for each in found]
    share = sum(each.share for each in found) / len(found)
    place, is_one = found[0].place, len(found) == 1
    all_of_it, names = reads_all(index, processes), all_called(processes)
    whole = "" if all_of_it is None else f": each of them reads all of {all_of_it.mark.about}"
    evidence = [
        f"{called(each)}: {words}"
        for each in processes[:SHOWN]
        if (words := doing_words(index, each)) is not None
    ]
    if all_of_it is not None:
        evidence.append(all_of_it.evidence)
    yield Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=processes[0].process,
        others=tuple(each.process for each in processes[1:]),
        costs=share,
        subject="in-main",
        summary=(
            f"{names} {'loads its' if is_one else 'load their'} data without workers for "
            f"{share:.0%} of the time, at {place}{whole}"
        ),
        evidence=tuple(evidence),
        cause=(
            f"{'' if all_of_it is None else f'{all_of_it.cause} '}"
            f"{'Its DataLoader has' if is_one else 'Their DataLoaders have'} no workers "
            "(num_workers=0): reading and training take turns in one process, so each step waits "
            "until its batch is made."
        ),
        advice=(
            f"{'' if all_of_it is None else f'{all_of_it.advice} Then, if needed: '}"
            f"{'D' if all_of_it is None else 'd'}o less for each item at {place}, or let workers "
            "of the DataLoader make the batches ahead (num_workers, with persistent_workers=True), "
            "as far as there are cores for them."
        ),
    )


def _of_sampler(index: Index, found: Sequence[OwnLoading]) -> Finding:
    """Describe a sampler that reads items to choose them."""
    first, share = found[0], sum(each.share for each in found) / len(found)
    processes = [each.process for each in found]
    names, is_one = all_called(processes), len(found) == 1
    at = frame_words(first.sampler) if first.sampler is not None else first.place
    workers = [
        each
        for owner, all_of_them in loader_owners(index)
        if owner in processes
        for each in all_of_them
    ]
    idle = [each for each in workers if idle_share(index, each) >= AHEAD_SHARE]
    evidence = [
        f"{called(each)}: {words}"
        for each in (*processes[:SHOWN], *idle[:SHOWN])
        if (words := doing_words(index, each)) is not None
    ]
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=first.process.process,
        others=tuple(each.process for each in processes[1:]),
        costs=share,
        subject="sampler",
        summary=(
            f"{names} {'spends' if is_one else 'spend'} {share:.0%} of the time in the sampler, at "
            f"{first.place}"
            + (f", while {all_called(idle)} {wait_verb(idle)} for work" * bool(idle))
        ),
        evidence=tuple(evidence),
        cause=(
            f"A DataLoader asks its sampler in the training process, one index after the other. "
            f"{at} does the work of {first.place} for each of them there, so that items are read "
            "and prepared in that one process, and the workers have nothing to do but to wait for "
            "their indices."
        ),
        advice=(
            f"Let the sampler give plain indices, and choose by what is known without reading the "
            f"items (sizes, labels or lengths, in a file that is written once): so {first.place} "
            "runs in the workers, in __getitem__. More workers do not help, nor does a larger "
            "prefetch_factor."
        ),
    )


class _Dropped(Struct, frozen=True):
    """Batches that main fetches and does not use."""

    skip: Mark
    """`if step < first_step:`, whose body goes on to the next batch."""
    readings: float
    """How many have found main at the header of the loop or at the skip, and none elsewhere."""
    function: str
    """`trainer.py:54 train`, with the line of the header."""


def _dropped(index: Index, owner: Process) -> _Dropped | None:
    """The skip at the beginning of the loop over a DataLoader in which main is, and nowhere else.

    Training would show now and then at another line; imports are those of its start.
    """
    thread, account = main_thread(owner), main_account(index, owner.process)
    frame = user_frame(thread.stack) if thread is not None else None
    if frame is None or account is None:
        return None
    for skip in marks(index, "passed-over"):
        if (skip.file, skip.function) != (frame.file, frame.function):
            continue
        first, last = map(int, skip.about.split("-"))
        file = frame.file.rpartition("/")[2]
        inside = {f"{file}:{number} {skip.function}" for number in range(first, last + 1)}
        header = f"{file}:{first} {skip.function}"
        seen = [_readings_at(each.tally, header) for each in account.buckets]
        began = next((n for n, each in enumerate(seen) if inside & each.keys()), len(seen))
        after = seen[began + 1 :]  # the bucket before may be of the start as well
        is_elsewhere = any(each.keys() - inside for each in after)
        readings = sum(sum(each.values()) for each in after)
        if first <= frame.line <= last and not is_elsewhere and readings >= SKIPS_READINGS:
            return _Dropped(skip, readings, header)
    return None


def _readings_at(tally: Tally, header: str) -> Mapping[str, float]:
    """How many readings found a thread at each line of the program, past its imports.

    A wait for a batch has no line in an account: it is at the header of the loop.
    """
    found: defaultdict[str, float] = defaultdict(float)
    total = sum(tally.seen.values())
    for activity, weight in tally.seen.items():
        place = activity.place or (header if activity.target == "batch" else "")
        if place and activity.what != IMPORTS:
            found[place] += weight / total * tally.readings
    return found


def _finding_of_dropped(
    owner: Process, found: _Dropped, evidence: tuple[str, ...], share: float | None
) -> Finding:
    """Describe batches that are fetched to be passed over."""
    waits = "waits for data" if share is None else f"waits for data {share:.0%} of the time"
    skip = mark_words(found.skip)
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        is_doubtful=True,
        process=owner.process,
        subject="dropped",
        summary=f"{called(owner)} {waits} that it likely does not use: {skip} drops batches",
        evidence=(
            f"{found.readings:.0f} readings have found main in the loop at {found.function}, all "
            f"of them at its header or at {skip}; none after it, in a step",
            *evidence,
        ),
        cause=(
            f"{skip} goes on to the next batch before anything is done with this one, as a run "
            "does that is resumed and passes over what it has trained before. Each of these "
            "batches is read, prepared and sent all the same, so that this takes as long as the "
            "data of the steps that are passed over did. Nothing hangs, and no step was seen "
            "meanwhile. If the log shows steps that are made, the loader is just too slow for them."
        ),
        advice=(
            "Skip indices in place of batches: give the sampler or batch sampler the place to "
            "begin at (with the same seed), as accelerate's skip_first_batches or torchdata's "
            "StatefulDataLoader do; or begin with a new order of the data. More workers only "
            "shorten it."
        ),
    )


class _LastWithWork(Struct, frozen=True):
    """The only worker of an IterableDataset that still has something to read."""

    worker: Process
    ended: int
    """Workers that have exited, of which main keeps the objects, as the iterator of a DataLoader
    does until its end."""
    idle: tuple[Process, ...]
    """Workers that live on, as persistent ones do, and have nothing to do."""
    waited: float
    """The share of the time for which main waits for batches."""


def _last_with_work(
    index: Index, owner: Process, workers: Sequence[Process]
) -> _LastWithWork | None:
    """The worker for which main waits while all others of its DataLoader have no work left.

    Workers of a map-style dataset get batches in turn, and live until the last one: only those of
    an IterableDataset exit before (`_try_put_index` and `_mark_worker_as_unavailable` of
    torch/utils/data/dataloader.py, torch 1.13 to 2.13).
    """
    at_work = [each for each in workers if idle_share(index, each) < NO_WORK_SHARE]
    worker = at_work[0] if len(at_work) == 1 else None
    age = age_s(index.snapshot, worker) if worker is not None else None
    if worker is None or age is None or age < WORKED_S or not shares(index, worker):
        return None
    if idle_share(index, worker) > IDLE_SHARE or not _goes_on(index, worker):
        return None
    just_ended = (
        each.ended is not None and index.snapshot.at_s - each.ended.at_s < ALONE_S
        for each in index.snapshot.processes
        if each.role == "loader-worker" and each.parent == worker.parent
    )
    if any(just_ended):
        return None
    waited = _waited_for_batches(index, owner)
    idle = tuple(each for each in workers if each is not worker)
    if waited < WAIT_SHARE or not _iterates(worker):
        return None
    ended = ended_children(index, owner.process)
    return _LastWithWork(worker, ended, idle, waited) if ended or idle else None


def _goes_on(index: Index, worker: Process) -> bool:
    """Whether a worker works, or begins one wait after the other."""
    return (
        working_share(index, worker) >= WORK_SHARE
        or (switches_per_s(index, worker) or 0.0) >= WAITS_PER_S
    )


def _iterates(worker: Process) -> bool:
    """Whether a worker is in the `__iter__` of its dataset, which its DataLoader calls."""
    main = main_thread(worker)
    stack = main.stack if main is not None else ()
    return any(
        inner.function.rpartition(".")[2] == "__iter__" and calls((outer,), "_utils/fetch.py:fetch")
        for inner, outer in pairwise(stack)
    )


def _finding_of_last(index: Index, owner: Process, found: _LastWithWork) -> Finding:
    """Describe a wait for the only worker that has something to read."""
    ended = counted(found.ended, "other worker")
    others = [
        *([f"{ended} {'has' if found.ended == 1 else 'have'} exited"] if found.ended else []),
        *([f"{all_called(found.idle)} {_is(found.idle)} idle"] if found.idle else []),
    ]
    place = work_place(index, [found.worker])
    at = f", at {place.words}" if place is not None else ""
    evidence = [f"{called(owner)} waits {found.waited:.0%} of the time for batches"]
    if (doing := doing_words(index, found.worker)) is not None:
        evidence.append(f"{called(found.worker)}: {doing}")
    evidence.append("a worker of an IterableDataset has no work left once its part is at its end")
    dealt = marks(index, "dealt")
    if len(dealt) == 1:
        evidence.append(f"{mark_words(dealt[0])} divides what there is among the workers")
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=owner.process,
        others=(found.worker.process,),
        summary=(
            f"{called(owner)} waits for data {found.waited:.0%} of the time: of its workers only "
            f"{called(found.worker)} still has something to read{at}; {' and '.join(others)}"
        ),
        evidence=tuple(evidence),
        cause=(
            "An IterableDataset divides the data among its workers itself, most of them by files "
            "or shards, and these parts are uneven: the other workers are at the end of theirs, or "
            "got none. From then on one worker reads alone, and main gets batches as fast as that "
            "one makes them."
        ),
        advice=(
            "Divide the data evenly: into many more files than workers, all of about the same "
            "size; or inside of each file, each worker every n-th sample (itertools.islice("
            "samples, info.id, None, info.num_workers)). More workers or a larger prefetch_factor "
            "do not help while one file is the work of one worker."
        ),
    )


def _is(several: Sequence[object]) -> str:
    return "is" if len(several) == 1 else "are"


def _waited_for_batches(index: Index, owner: Process) -> float:
    """The share of the time in which main waited for batches, where it did not wait for a core."""
    measured = [
        x.process_wait_share or 0.0 for x in index.snapshot.loaders if x.process == owner.process
    ]
    found = sum(e.share for e in shares(index, owner) if e.activity.target == "batch")
    rest = max(LITTLE_WAIT, 1 - core_share(index, owner))
    return max([*measured, min(1.0, found / rest)])


def _seeking(index: Index, workers: Sequence[Process]) -> Sequence[Loss]:
    """The workers that spend most of their computing in `seek` of a compressed file."""
    mine = {each.process for each in workers}
    found = [each for each in losses(index, _is_seek) if each.process.process in mine]
    is_much = found and found[0].readings >= LOSS_READINGS and found[0].share >= SEEK_SHARE
    return [each for each in found if each.share >= SEEK_SHARE / 2] if is_much else ()


def _is_seek(activity: Activity) -> bool:
    return activity.what == SEEKING


def _finding_of_seeks(
    index: Index, owner: Process, found: Sequence[Loss], *, is_costly: bool
) -> Finding:
    """Workers that read a compressed file at places of their own choice."""
    most = found[0]
    place = most.place or next((each.place for each in found if each.place), "")
    at = f" at {place}" if place else ""
    names = all_called([each.process for each in found])
    is_one = len(found) == 1
    evidence = [
        f"{called(each.process)}: {each.share:.0%} of its time in seek() of a compressed file, "
        "waits for a free core included"
        for each in found[:SHOWN]
    ]
    evidence += [
        f"{called(owner)} waits {each.process_wait_share:.0%} of the time for batches"
        for each in index.snapshot.loaders
        if each.process == owner.process and each.process_wait_share is not None
    ][:1]
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if most.share >= WAIT_SHARE and is_costly else Severity.INFO,
        process=owner.process,
        subject="seeks",
        summary=(
            f"{names} of {called(owner)} {'spends' if is_one else 'spend'} {most.share:.0%} of "
            f"the time decompressing a file up to the place of each sample{at}"
        ),
        evidence=tuple(evidence),
        cause=(
            "A compressed file (gzip, bz2, lzma) has no index: seek() decompresses all that lies "
            "between the present place and the new one, and for a place further back it begins at "
            "the start of the file again. Samples in random order need that for each of them, and "
            "almost all of what is decompressed is thrown away."
        ),
        advice=(
            f"Do not read a compressed file at random{at}: decompress it once to a plain file and "
            "read that (numpy.memmap, os.pread, seek() of a plain file); or compress each record "
            "or block by itself and keep an index of them; or read the file in order, each worker "
            "its own, and shuffle in a buffer. More workers repeat the same decompression."
        ),
    )


def _have_worked(index: Index, workers: Sequence[Process]) -> bool:
    """Whether all workers have done their own work for a while: their start is over."""
    for worker in workers:
        age = age_s(index.snapshot, worker)
        imported_s = imported_until_s(index, worker)
        if age is None or age < WORKED_S or working_share(index, worker) < WORK_SHARE:
            return False
        if imported_s is not None and index.snapshot.at_s - imported_s < WORKED_S:
            return False
    return True


def _are_busy(index: Index, workers: Sequence[Process], waited_s: float) -> bool:
    """Whether the workers do something while main has waited so long; a stall has other rules.

    Where cores are short a busy worker gets hardly any cpu time.
    """
    over_s = USUAL_S if waited_s < STALL_S else STALLED_S
    loads = [mean_cpu_percent(worker, index.history, over_s) for worker in workers]
    if any(load is None or load >= BUSY_PERCENT for load in loads):
        return True
    # A thread that is ready to run now is not stalled.
    return any(
        each.threads and each.threads[0].state == "R" and core_share(index, each) >= SHORT_OF_CORES
        for each in workers
    )


def _seems_starved(owner: Process, workers: Sequence[Process], index: Index) -> bool:
    """Whether main mostly waits for a batch while the workers mostly do not wait for work."""
    main = wait_share(owner, index.history)
    if main is None or main < WAIT_SHARE or are_stalled(workers, index):
        return False
    # Workers that wait for a disk use no cpu either: only a long wait asks for more than shares.
    waited_s = waiting_s(owner, index.history)
    if waited_s >= STALL_S and not _are_busy(index, workers, waited_s):
        return False
    idle = (wait_share(worker, index.history) for worker in workers)
    return all(share is not None and share <= IDLE_SHARE for share in idle)


def _all_of(workers: Sequence[Process]) -> str:
    """The workers as the subject of a sentence, with its verb."""
    return "its worker is" if len(workers) == 1 else f"all {len(workers)} workers are"


def _finding(
    index: Index,
    owner: Process,
    workers: Sequence[Process],
    share: float | None,
    loaders: Sequence[Loader],
) -> Finding:
    """Describe the wait and the workers meanwhile."""
    loads = [load for w in workers if (load := mean_cpu_percent(w, index.history)) is not None]
    evidence = _evidence(index, owner, workers, share, loaders, loads)
    special = _special_finding(index, owner, workers, tuple(evidence), share)
    if special is not None:
        return special
    ahead = _ahead(index, workers)
    behind = [each for each in workers if each not in ahead]
    limit = _limit_of_order(behind, ahead) if ahead else _limit(index, owner, workers, loads)
    place = work_place(index, behind) or _place_now(behind)
    at = f": they work mostly at {place.words}" if place and place.is_main else ""
    if limit is not None and limit.provider:
        at = f": they wait mostly for {limit.provider}"
    unpacks = place is not None and place.is_main and _decompress(index, behind)
    again = _reopened(workers, index)
    if again is not None:
        evidence.append(_again_words(again))
    is_one_file = again is not None and again.rounds.text.startswith("while ")  # not over files
    if limit is not None:
        evidence.append(limit.evidence)
    all_of_it = reads_all(index, behind)
    if all_of_it is not None:
        evidence.append(all_of_it.evidence)
    collate = _own_collate(behind)
    if collate is not None:
        evidence.append(f"they are in the collate_fn, {frame_words(collate)}, when they were seen")
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=owner.process,
        costs=share,
        summary=(
            _summary_of_order(owner, behind, ahead, share, at)
            if ahead
            else _summary(owner, workers, share, limit, at)
        ),
        evidence=tuple(evidence),
        cause=(
            ("" if ahead else _TOO_SLOW)
            + (f" {all_of_it.cause}" if all_of_it is not None else "")
            + (f"{'' if ahead else ' '}{limit.cause}" if limit is not None else "")
            + (_UNPACKS if unpacks else "")
            + (_READ_AGAIN if is_one_file else "")
            + (" Main gives the GPU no work meanwhile." if owner.gpus else "")
        ),
        advice=(_READ_ONCE if is_one_file else "")
        + (f"{all_of_it.advice} " if all_of_it is not None else "")
        + _advice(limit, place.words if place and place.is_main else "", unpacks=unpacks)
        + (_COLLATES.format(place=frame_words(collate)) if collate is not None else ""),
    )


def _special_finding(
    index: Index,
    owner: Process,
    workers: Sequence[Process],
    evidence: tuple[str, ...],
    share: float | None,
) -> Finding | None:
    """The finding of workers that are not slow by what they do for an item; `None` for others."""
    imports = [line for each in workers if (line := _is_importing(index, each))]
    if 2 * len(imports) > len(workers):
        return _finding_of_imports(owner, workers, evidence, share, imports[0])
    if (dropped := _dropped(index, owner)) is not None:
        return _finding_of_dropped(owner, dropped, evidence, share)
    if (shared := shared_cpu(index, workers)) is not None and shared.is_waited_for:
        return _finding_of_shared_cpu(owner, workers, evidence, share, shared)
    return None


def _summary(
    owner: Process, workers: Sequence[Process], share: float | None, limit: _Limit | None, at: str
) -> str:
    """That main waits for data, how long where that is known, and what its workers do."""
    if share is not None:
        return f"{called(owner)} waits for data {share:.0%} of the time{_of_workers(workers, at)}"
    does = "not idle" if limit is not None and limit.provider else "at work"
    return f"{called(owner)} waits for data, and {_all_of(workers)} {does}{at}"


def _evidence(
    index: Index,
    owner: Process,
    workers: Sequence[Process],
    share: float | None,
    loaders: Sequence[Loader],
    loads: Sequence[float],
) -> list[str]:
    """What was seen of the wait and of the workers; `loads` is the cpu use of those known."""
    evidence = []
    if share is not None:
        evidence.append(f"main waited {share:.0%} of the last minute in next(loader)")
    else:
        seen = wait_share(owner, index.history) or 0.0
        evidence.append(f"main was waiting for a batch in {seen:.0%} of the samples")
    if loads:
        mean = sum(loads) / len(loads)
        evidence.append(f"{counted(len(workers), 'worker')} at {mean:.0f}% cpu on average")
    waiting = [x for x in loaders if x.outstanding is not None]
    evidence += [f"{x.outstanding} batches outstanding, {x.parked or 0} ready" for x in waiting[:1]]
    top = merge(workers)
    if top.groups:
        evidence.append(f"workers: {top.sentence}")
    for worker in workers[:SHOWN]:
        if (words := doing_words(index, worker)) is not None:
            evidence.append(f"{called(worker)}: {words}")
    if share is not None and share < 1:
        evidence.append(f"without this wait main would be at most {times_faster(share)} as fast")
    return evidence


def _reopened(workers: Sequence[Process], index: Index) -> Reopened | None:
    """A file that a worker opens anew in each round, where its stack shows that."""
    for worker in workers:
        main = main_thread(worker)
        found = reopened(index, main.stack) if main is not None else None
        if found is not None:
            return found
    return None


def _again_words(found: Reopened) -> str:
    """That a file is opened once more in each round of a loop."""
    at = frame_words(found.opened_in._replace(line=found.opened.line))
    rounds = frame_words(found.rounds_in._replace(line=found.rounds.line))
    return (
        f"`{found.opened.text}` at {at} is reached anew in each round of `{found.rounds.text}` at "
        f"{rounds}: if it is the same file, it is read from its start each time"
    )


def _ahead(index: Index, workers: Sequence[Process]) -> Sequence[Process]:
    """The workers that are idle for most of the time, where some others are not; else none.

    Main waits for data all the same: it takes batches in order, and theirs are not next.
    """
    idle = [each for each in workers if idle_share(index, each) >= AHEAD_SHARE]
    return idle if len(idle) < len(workers) else []


def _limit_of_order(behind: Sequence[Process], ahead: Sequence[Process]) -> _Limit:
    """Why idle workers do not help: main waits for a batch that another one has to make."""
    names, others = all_called(behind), counted(len(ahead), "other worker")
    verb = "is" if len(ahead) == 1 else "are"
    return _Limit(
        f"{others} {verb} idle for most of the time",
        f"The DataLoader hands out batches in turn and returns them in order, so main waits for "
        f"those of {names}, whose samples take longer, while the batches of the {others} are ready "
        "or not yet asked for. More workers would be idle as well.",
        f"Give every worker as much to do: what makes the samples of {names} expensive has to be "
        "spread over all workers (shuffle, or divide by size), or be done once, offline. From "
        "torch 2.6 on, DataLoader(in_order=False) returns batches as they finish; their order is "
        "then not reproducible.",
    )


def _summary_of_order(
    owner: Process,
    behind: Sequence[Process],
    ahead: Sequence[Process],
    share: float | None,
    at: str,
) -> str:
    """That main waits for some workers while others are idle."""
    of_time = f" {share:.0%} of the time" if share is not None else ""
    is_one = len(behind) == 1
    works = at.removeprefix(": they ") or "work"
    works = works.replace("work", "works", 1) if is_one else works
    return (
        f"{called(owner)} waits for data{of_time}: {all_called(behind)} {works}, while "
        f"{counted(len(ahead), 'other worker')} {'is' if len(ahead) == 1 else 'are'} idle"
    )


_TOO_SLOW = "The workers together produce batches more slowly than the training loop uses them."


def _is_importing(index: Index, worker: Process) -> str:
    """The line at which a worker imports now, if it has done hardly anything else; else empty."""
    account = index.snapshot.account.processes.get(worker.process)
    if account is None or not account.uncounted or account.uncounted[0].now.what != IMPORTS:
        return ""
    seen = account.main.whole().seen
    known = sum(s for each, s in seen.items() if each.place or each.what)
    imports = sum(s for each, s in seen.items() if each.what == IMPORTS)
    return account.uncounted[0].now.place if imports >= IMPORTING_PART * known else ""


def _finding_of_shared_cpu(
    owner: Process,
    workers: Sequence[Process],
    evidence: tuple[str, ...],
    share: float | None,
    shared: SharedCpu,
) -> Finding:
    """Describe a wait for workers that take turns on one cpu, which another finding is about."""
    of_time = f" {share:.0%} of the time" if share is not None else ""
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=owner.process,
        costs=share,
        effect_of="cpu-affinity-collapse",
        summary=(
            f"{called(owner)} waits for data{of_time}: its {len(workers)} workers take turns on "
            f"one of {shared.cpus} cpus"
        ),
        evidence=evidence,
        cause=(
            f"The workers wait for that cpu {shared.waits:.0%} of the time on average. That "
            "part of it is not spent on what they compute for an item."
        ),
        advice=(
            "Let the workers use the other cpus first. Whether an item takes too long, or more "
            "workers are needed, shows only then."
        ),
    )


def _finding_of_imports(
    owner: Process,
    workers: Sequence[Process],
    evidence: tuple[str, ...],
    share: float | None,
    place: str,
) -> Finding:
    """Describe a wait for workers that have not begun to work."""
    of_time = f" {share:.0%} of the time" if share is not None else ""
    verb = "imports" if len(workers) == 1 else "import"
    at = f" at {place}" if place else ""
    method = workers[0].start_method
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=owner.process,
        summary=(
            f"{called(owner)} waits for data{of_time}, and its "
            f"{'worker' if len(workers) == 1 else f'{len(workers)} workers'} still {verb} "
            f"modules{at}"
        ),
        evidence=evidence,
        cause=(
            "The workers have done hardly anything else."
            f"{f' {_START_OF[method]}' if method in ('spawn', 'forkserver') else ''}"
        ),
        advice=(
            "Start workers once: make the DataLoader before the loop over the epochs, with "
            "persistent_workers=True. Let the main module import only what workers need, and the "
            "rest below if __name__ == '__main__'."
        ),
    )


def _advice(limit: _Limit | None, place: str, *, unpacks: bool) -> str:
    """What to change, at the line where the workers work mostly; empty if that is not known."""
    if unpacks:
        return _UNPACK_ONCE.format(place=place)
    less_work = _LESS_WORK_AT.format(place=place) if place else _LESS_WORK
    return f"{_MORE_WORKERS} {less_work}" if limit is None else limit.advice or less_work


def _own_collate(workers: Sequence[Process]) -> Frame | None:
    """The program's function that makes a batch of the items, if all workers are in it."""
    found = [
        inner
        for worker in workers
        if (main := main_thread(worker)) is not None
        for inner, outer in pairwise(own_frames(main.stack))
        if calls((outer,), "_utils/fetch.py:fetch") and not is_library(inner)
        if inner.function.rpartition(".")[2] not in _GETS_ITEMS
    ]
    return found[0] if found and len(found) == len(workers) else None


def _decompress(index: Index, workers: Sequence[Process]) -> bool:
    """Whether workers decompress for most of their computing that stacks have shown."""
    found = [
        (each.activity.what, each.share)
        for worker in workers
        for each in shares(index, worker)
        if is_computing(each.activity) and each.activity.place
    ]
    known = sum(share for _, share in found)
    unpacking = (DECOMPRESSION, SEEKING)
    return sum(share for what, share in found if what in unpacking) > known / 2


def _place_now(workers: Sequence[Process]) -> Place | None:
    """The line at which most workers were last seen; `None` where they are at different ones.

    Few stacks are taken on a loaded machine, so that the account may have no line of their work.
    """
    threads = [thread for each in workers if (thread := main_thread(each)) is not None]
    found = Counter(place for each in threads if (place := own_place(each)) is not None)
    for words, count in found.most_common(1):
        return Place(words, count / len(workers))
    return None


def _of_workers(workers: Sequence[Process], at: str) -> str:
    """The workers' line as the end of a summary: `, its 2 workers work mostly at data.py:25 f`."""
    if not at:
        return ""
    verb, _, rest = at.removeprefix(": they ").partition(" ")
    if len(workers) == 1:
        return f": its worker {verb}s {rest}"
    return f": its {len(workers)} workers {verb} {rest}"


class _FirstWait(Struct, frozen=True):
    """From the start of a set of workers until main had its first batch."""

    seconds: float | None
    """`None` where no reading found main waiting: it may have been shorter than their distance, or
    main was still busy starting the workers."""
    is_over: bool = True

    @property
    def words(self) -> str:
        """`2.5 s`, `590 ms so far`, `not seen`."""
        if self.seconds is None:
            return "not seen"
        return f"{seconds_text(self.seconds)}{'' if self.is_over else ' so far'}"


class _Starts(Struct, frozen=True):
    """Workers that are started again and again, and how long main waits for them each time."""

    waits: Sequence[_FirstWait]
    """One for each set of workers."""
    share: float
    """Of the time from the first start to now, at least."""
    workers: int
    """In each set."""
    span_s: float
    method: str | None
    times: int
    """How often they were started, also before the watch, ..."""
    times_s: float
    """... within so many seconds."""
    imports: str
    """The line at which workers were found importing; empty if none was."""


def _start_ups(index: Index, owner: Process, workers: Sequence[Process]) -> _Starts | None:
    """The sets of workers that main has started; `None` of fewer than two, or if none was watched.

    A set's start-up ends at the first reading that does not find main waiting for a batch. The
    times of starts are known of the time before the watch as well.
    """
    snapshot = index.snapshot
    polls = index.history.of(owner.process, "loader_wait")
    if len(polls) < 2:
        return None
    sets = []
    for group in generations(workers):
        born_s = group[0].sample.born_wall_s
        if born_s is not None:
            sets.append((snapshot.at_s - (snapshot.wall_s - born_s), group))
    watched = [each for each in sets if each[0] >= polls[0].at_s]
    before = sets[: len(sets) - len(watched)]
    if len(sets) < STARTS or not watched:
        return None
    span_s = snapshot.at_s - watched[0][0]
    if len(watched) < STARTS:
        # Another loader's workers live on, and those that crashed are replaced for that.
        last = before[-1][1]
        if any(not each.is_gone or (each.ended and each.ended.exit_code) for each in last):
            return None
        span_s = max(span_s, watched[0][0] - before[-1][0])
    ends = [at_s for at_s, _ in watched[1:]] + [snapshot.at_s]
    waits = [
        _first_wait(polls, at_s, end, is_last=end == snapshot.at_s)
        for (at_s, _), end in zip(watched, ends, strict=True)
    ]
    method = next((each.start_method for each in workers if each.start_method), None)
    share = sum(each.seconds or 0.0 for each in waits) / max(span_s, 1.0)
    is_all = len(watched) >= STARTS
    starts_s = snapshot.at_s - (watched if is_all else sets)[0][0]
    times = len(watched) if is_all else len(sets)
    imports = [place for each in workers if (place := _import_place(index, each))]
    place = max(imports, key=imports.count) if imports else ""
    return _Starts(
        waits, share, max(len(group) for _, group in sets), span_s, method, times, starts_s, place
    )


def _import_place(index: Index, worker: Process) -> str:
    """The line at which a worker was found importing, `main.py:5 <module>`; empty if it was not."""
    account = index.snapshot.account.processes.get(worker.process)
    if account is None or not account.uncounted:
        return ""
    seen = account.main.whole().seen
    found = {each: seconds for each, seconds in seen.items() if each.what == IMPORTS and each.place}
    return max(found, key=found.__getitem__).place if found else ""


def _first_wait(polls: Series, from_s: float, to_s: float, *, is_last: bool) -> _FirstWait:
    """The time until two readings in a row do not find main waiting for a batch.

    A reading just after the start may still find main starting the workers, and any other may find
    it awake for a moment.
    """
    has_waited = False
    since_s: float | None = None
    for point in polls[first_at(polls, from_s) : first_at(polls, to_s)]:
        if point.value >= 1:
            has_waited, since_s = True, None
        elif since_s is not None:
            return _FirstWait(since_s - from_s)
        elif has_waited:
            since_s = point.at_s
    return _FirstWait(to_s - from_s, is_over=not is_last) if has_waited else _FirstWait(None)


def _finding_of_starts(owner: Process, starts: _Starts) -> Finding:
    """Describe a loop that waits for the start of its workers again and again."""
    waits = ", ".join(each.words for each in starts.waits[-5:])
    least = "at least " if any(each.seconds is None for each in starts.waits) else ""
    by = f" by {starts.method}" if starts.method else ""
    lines = own_lines(owner)
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=owner.process,
        subject="start-up",
        summary=(
            f"{called(owner)} starts its {counted(starts.workers, 'worker')} again and again"
            f"{iterated_at(owner)}, and "
            f"waits for their first batch {least}{starts.share:.0%} of the time"
        ),
        evidence=(
            f"workers were started{by} {starts.times} times in the last "
            f"{seconds_text(starts.times_s)}",
            f"main waited after each start until it had a batch: {waits}",
            f"without this wait main would be at most {times_faster(starts.share)} as fast",
            *((f"workers import modules at {starts.imports}",) if starts.imports else ()),
            *((f"{called(owner)} is at {lines}",) if lines else ()),
        ),
        cause=(
            f"Each iteration over the DataLoader starts new workers{by}, which end with it. "
            f"{_START_OF.get(starts.method or 'fork', _START_OF['fork'])} While that happens, main "
            "has nothing to do."
        ),
        advice=(
            "Make the DataLoader once, before the loop over the epochs, with "
            "persistent_workers=True: then the workers live from one epoch to the next. "
            "num_workers=0 is quicker for data whose pass takes less than such a start."
        ),
    )


_START_OF: Mapping[str, str] = {
    "spawn": (
        "Before its first batch each of them starts a Python of its own, imports torch and the "
        "modules of the program again, and unpickles the dataset."
    ),
    "forkserver": (
        "Before its first batch each of them imports what the server has not preloaded, such as "
        "torch and the modules of the program, and unpickles the dataset."
    ),
    "fork": "Each of them fetches a whole batch before main gets the first one.",
}


class _Limit(NamedTuple):
    """What keeps further workers from making the loader faster."""

    evidence: str
    cause: str
    advice: str
    """Empty where less work is the only remedy."""
    provider: str = ""
    """The process that the workers wait for much of the time."""


def _limit(
    index: Index, owner: Process, workers: Sequence[Process], loads: Sequence[float]
) -> _Limit | None:
    """The limit that was observed: all cpus in use, or one process or lock all wait for."""
    cpus = index.snapshot.host.usable_cpus
    if cpus and sum(loads) >= ALL_CPUS * 100 * cpus:
        return _Limit(
            f"the workers use {sum(loads) / 100:.1f} of {cpus} usable cpus",
            "They use all cpus, so more workers would not help.",
            "",
        )
    asked = _asked(index, owner, workers)
    if asked is not None:
        return asked
    waited = [core_share(index, worker) for worker in workers]
    if waited and sum(waited) >= SHORT_OF_CORES * len(workers):
        runnable = index.snapshot.host.runnable
        at_once = f"; {runnable} threads of the machine can run at the moment" if runnable else ""
        return _Limit(
            f"the workers wait for a free core {sum(waited) / len(waited):.0%} of the time"
            f"{f', of {cpus} usable' if cpus else ''}{at_once}",
            "For much of the time no core is free for them, so more workers would not help.",
            "",
        )
    if cpus and len(workers) >= cpus and sum(loads) >= MOST_CPUS * 100 * cpus:
        return _Limit(
            f"{counted(len(workers), 'worker')} for {counted(cpus, 'usable cpu')}, of which they "
            f"use {sum(loads) / 100:.1f}",
            "There are as many workers as cpus, and they compute most of the time: more of them "
            "would share the same cpus.",
            "",
        )
    waits: Counter[tuple[str, tuple[ProcessId, ...]]] = Counter()
    ids = {worker.process for worker in workers}
    for edge in wait_graph(index).edges:
        others = tuple(each for each in edge.providers if each not in ids)
        is_lock = edge.kind == "semaphore"
        is_one = len(others) == 1 and others[0] != owner.process
        if edge.waiter in ids and not edge.is_ordinary and (is_lock or is_one):
            waits[edge.what if is_lock else "", () if is_lock else others] += 1
    (what, others), count = next(iter(waits.most_common(1)), (("", ()), 0))
    if count < 2 or 2 * count <= len(workers):
        return None
    provider = index.snapshot.get(others[0]) if others else None
    name = called(provider) if provider is not None else what
    return _Limit(
        f"{count} of {len(workers)} workers wait for {name}",
        f"Most workers wait for {name}, one after the other: more workers would wait as well.",
        _ASK_LESS.format(name=name),
    )


def _asked(index: Index, owner: Process, workers: Sequence[Process]) -> _Limit | None:
    """The one process for whose answers the workers wait much of the time."""
    found: defaultdict[ProcessId, float] = defaultdict(float)
    for worker in workers:
        for each in shares(index, worker):
            providers = each.activity.providers
            if each.activity.kind == "waiting" and len(providers) == 1:
                found[providers[0]] += each.share / len(workers)
    for process in (owner, *workers):
        found.pop(process.process, None)
    identity, share = max(found.items(), key=itemgetter(1), default=(None, 0.0))
    provider = index.snapshot.get(identity)
    if provider is None or share < ASKED_SHARE:
        return None
    name = called(provider)
    words = doing_words(index, provider)
    return _Limit(
        f"the workers wait {share:.0%} of the time for {name}{f': {words}' if words else ''}",
        f"The workers wait for {name}, which answers one after the other: more workers would wait "
        "as well.",
        _ASK_LESS.format(name=name),
        name,
    )


_ASK_LESS = (
    "Reduce what the workers ask of {name}: keep a copy in each worker, ask for many items at once "
    "and only for what is needed, or hold the lock for less time. The workers' stacks show the "
    "line."
)


_MORE_WORKERS = (
    "Use more workers (num_workers), up to the number of cpus; each takes memory of its own."
)
_LESS_WORK = (
    "Move work out of the workers (decode and resize once, offline), or read larger blocks. The "
    "workers' stacks show where they spend their time."
)
_UNPACKS = (
    " They decompress a file for each item. What is compressed has no direct access: a part of it, "
    "such as one slice of an array of an .npz, costs as much as all of it, or all up to that part."
)
_READ_AGAIN = (
    " Likely they read one file again and again: it is opened in each round of the loop above, and "
    "then read from its start. Where a round skips what earlier ones have taken, it takes longer "
    "than they did."
)
_READ_ONCE = (
    "Keep the file, or the generator that reads it, open from one round to the next, or keep where "
    "each round ended (tell() and seek(), an index of the lines), unless each round is to read "
    "another file. "
)
_UNPACK_ONCE = (
    "Convert the data once to files without compression, mapped at {place}: an .npy file with "
    "numpy.load(path, mmap_mode='r') reads only the part that is used. Or keep what was "
    "decompressed last in the worker, and let items of one file follow each other."
)
_GETS_ITEMS = frozenset(("__getitem__", "__getitems__", "__iter__", "__next__", "<listcomp>"))
"""What `fetch` calls for the items; what else it calls is the collate_fn (torch 2.6 to 2.14)."""
_COLLATES = (
    " The collate_fn is at {place}: compute what depends on single items once, and keep it in "
    "files or in the dataset; do the rest in one operation for the whole batch."
)
_LESS_WORK_AT = (
    "Do less for each item at {place}: what several items share (a file, an index, a table) is "
    "loaded once and kept in the worker, and what does not change is computed once, offline."
)
