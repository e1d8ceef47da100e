"""The newest descriptors, threads and children of a process: what a growth consists of.

The kernel gives a new descriptor the lowest free number (open(2)), so descriptors that are never
closed have the highest ones; threads and processes have a time of start.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from mpwatch.describe.frames import frame_words, is_library
from mpwatch.describe.waits import FULL_PIPE
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.pipes import all_links, ends_among, listening_at, pipe_ends
from mpwatch.diagnose.analysis.process_queries import all_called, counted, label_stem
from mpwatch.diagnose.analysis.stack_patterns import calls
from mpwatch.model.samples import (
    THREADS_OF_A_GROUP,
    Channel,
    FdKind,
    FdLink,
    Frame,
    channel_of,
)
from mpwatch.model.snapshot import Process, Thread

KIND_NOUNS: Mapping[FdKind, str] = {
    "torch": "shared tensors",
    "shm": "shared-memory files",
    "file": "files",
    "pipe": "pipe ends",
    "socket": "sockets",
    "device": "devices",
    "gpu": "GPU device files",
    "epoll": "epoll instances",
    "event": "eventfds",
    "timer": "timerfds",
    "other": "others",
}
MOST = 0.6
"""The part of the newest that have to be alike to say what they are."""
WORTH_DETAILS = 0.3
"""The targets of descriptors are shown if so many of the newest are of that kind."""


PUT_DEPTH = 4
"""Frames within which `put` of queue.py is: a wait of threading.py is above it."""


FEEDER = "QueueFeederThre"
"""The name of feeder threads, as far as the kernel keeps it (multiprocessing/queues.py)."""
_FULL_PIPE = re.compile(rf"^{FULL_PIPE} \(.*?pipe (\d+)\)")
"""The activity of a thread in the account of time."""


class BlockedFeeder(Struct, frozen=True):
    """The pipe into which a queue's feeder thread cannot write more."""

    pipe: Channel

    @property
    def target(self) -> str:
        """`pipe:[18174]`."""
        return f"pipe:[{self.pipe.inode}]"

    def readers(self, index: Index) -> Sequence[Process]:
        """The processes that hold the reading end of the pipe."""
        ends = pipe_ends(index)  # of the pipes that some thread waits for now
        if self.pipe not in ends.readers:
            ends = ends_among(all_links(index), {self.pipe}, is_complete=ends.is_complete)
        ids = ends.readers.get(self.pipe, ())
        return [process for each in ids if (process := index.snapshot.get(each)) is not None]


def feeder_tids(process: Process) -> frozenset[int]:
    """The threads of a process that put items of its queues into pipes.

    Before Python 3.14 the kernel does not know their name: only stacks show it, and the account of
    a thread that always waits keeps the name that it began with.
    """
    return frozenset(
        thread.tid
        for thread in process.threads
        if thread.name.startswith(FEEDER) or any(each.function == "_feed" for each in thread.stack)
    )


def blocked_feeder(index: Index, process: Process) -> BlockedFeeder | None:
    """The pipe in which a feeder thread of `multiprocessing.Queue` waits for room, if one does.

    It waits there now, or did for most of the last minute: between two items it does not.
    """
    feeders = feeder_tids(process)
    for thread in process.threads:
        wait = thread.waits_on
        if wait is None or wait.kind != "pipe-write" or not wait.targets:
            continue
        pipe = channel_of(wait.targets[0])
        if thread.tid in feeders and pipe is not None:
            return BlockedFeeder(pipe)
    account = index.snapshot.account.processes.get(process.process)
    for number, each in enumerate(account.uncounted if account is not None else ()):
        is_feeder = each.tid in feeders or each.name.startswith(FEEDER)
        if account is None or not is_feeder:
            continue
        for share in account.thread(number).last_minute().shares():
            found = _FULL_PIPE.search(share.activity.what)
            if found is not None and share.share >= MOST:
                return BlockedFeeder(Channel("pipe", int(found[1])))
    return None


def own_lines(process: Process) -> str | None:
    """The lines of the program in which its main thread was last seen, innermost first.

    `train.py:31 step, called from train.py:57 main`; `None` without a stack.
    """
    stack = process.threads[0].stack if process.threads else ()
    own = [frame_words(frame) for frame in stack if not is_library(frame)]
    return ", called from ".join(own[:2]) or None


def iterated_at(process: Process) -> str:
    """The line of the program whose DataLoader its main thread iterates: ` at train.py:31 step`.

    Empty where its stack does not show that.
    """
    stack = process.threads[0].stack if process.threads else ()
    for above, frame in pairwise(stack):
        if not is_library(frame):
            is_loader = above.file.endswith("torch/utils/data/dataloader.py")
            return f" at {frame_words(frame)}" if is_loader else ""
    return ""


def newest_links(process: Process, gained: float) -> Sequence[FdLink]:
    """So many descriptors with the highest numbers; empty where the links were not read."""
    fds = process.sample.fds
    if fds is None or not fds.links:
        return ()
    ordered = sorted(fds.links, key=lambda link: link.fd)
    return ordered[-max(1, round(gained)) :]


def newest_kind(process: Process, gained: float) -> FdKind | None:
    """What most of the newest descriptors point to; `None` if that is unknown or mixed."""
    return kind_of(newest_links(process, gained))


def kind_of(links: Sequence[FdLink]) -> FdKind | None:
    """What most of some descriptors point to; `None` if that is mixed, or there are none."""
    for kind, count in Counter(link.kind for link in links).most_common(1):
        return kind if count >= MOST * len(links) else None
    return None


class NewestPairs(NamedTuple):
    """Whether most of the newest sockets have no address, as connected pairs do."""

    are_loops: bool
    """There is an epoll instance for each pair: they belong to event loops."""
    are_pairs: bool


def newest_pairs(process: Process, gained: float) -> NewestPairs:
    """What the newest sockets of a process are."""
    links = newest_links(process, gained)
    sockets = [link for link in links if link.kind == "socket"]
    unnamed = sum(link.address == "unix" for link in sockets)
    epolls = sum(link.kind == "epoll" for link in links)
    are_pairs = bool(sockets) and unnamed >= MOST * len(sockets)
    return NewestPairs(are_pairs and epolls >= len(sockets) / 3, are_pairs)


_LOG = re.compile(r"\.log$|^events\.out\.|(^|[._-])logs?\.(txt|jsonl?)$")
"""In the name of a file that a handler of logging or a writer of events keeps open."""


def are_logs(process: Process, gained: float) -> bool:
    """Whether most of the newest files of a process are log files, by their names."""
    files = [link.target for link in newest_links(process, gained) if link.kind == "file"]
    logs = sum(_LOG.search(target.rpartition("/")[2]) is not None for target in files)
    return bool(files) and logs >= MOST * len(files)


class NewestAccepted(Struct, frozen=True):
    """The newest sockets of a process that are connections which it has accepted."""

    connections: int
    port: str
    """`127.0.0.1:4000`."""
    ended: int
    """Those whose client, on this machine, has closed its end."""


def newest_accepted(process: Process, gained: float) -> NewestAccepted | None:
    """The connections that a server keeps, if most of its newest sockets are those."""
    links = [link for link in newest_links(process, gained) if link.kind == "socket"]
    listening = listening_at(process)
    accepted = [
        (link, here)
        for link in links
        if (here := _local(link)) and here.rpartition(":")[2] in listening
    ]
    if not accepted or len(accepted) < MOST * len(links):
        return None
    ports = Counter(listening[here.rpartition(":")[2]] for _, here in accepted)
    ended = sum(link.peer is None and _is_of_this_machine(link) for link, _ in accepted)
    return NewestAccepted(len(accepted), ports.most_common(1)[0][0], ended)


def _local(link: FdLink) -> str:
    """`127.0.0.1:4000` of a connection by TCP; empty for other sockets."""
    here, arrow, _ = (link.address or "").partition(" > ")
    return here.removeprefix("tcp ") if arrow and here.startswith("tcp ") else ""


def _is_of_this_machine(link: FdLink) -> bool:
    """Whether both ends of a connection have the same host."""
    here, _, there = (link.address or "").removeprefix("tcp ").partition(" > ")
    return here.rpartition(":")[0] == there.rpartition(":")[0]


def descriptor_words(index: Index, process: Process, gained: float) -> tuple[str, ...]:
    """What the newest descriptors point to, in words; the most frequent target where it repeats."""
    links = newest_links(process, gained)
    if not links:
        return ()
    by_kind: dict[FdKind, list[FdLink]] = {}
    for link in links:
        by_kind.setdefault(link.kind, []).append(link)
    kinds = sorted(by_kind.items(), key=lambda each: -len(each[1]))[:4]
    parts = ", ".join(
        counted(len(found), KIND_NOUNS[kind].removesuffix("s")) for kind, found in kinds
    )
    details = (
        detail
        for kind, found in kinds
        if len(found) >= WORTH_DETAILS * len(links)
        for detail in _details(index, process, kind, found)
    )
    return (f"its {len(links)} newest descriptors: {parts}", *details)


def _details(
    index: Index, process: Process, kind: FdKind, links: Sequence[FdLink]
) -> Iterator[str]:
    """Where descriptors of one kind lead."""
    if kind == "pipe":
        yield from _pipe_words(index, process, links)
    elif kind == "socket":
        yield from _socket_words(links)
    elif kind in ("file", "shm", "device"):
        yield from _file_words([link.target for link in links])


def _pipe_words(index: Index, process: Process, links: Sequence[FdLink]) -> Iterator[str]:
    """Which processes hold the other ends of new pipes."""
    ends: dict[Channel, set[bool | None]] = {}
    for link in links:
        if link.channel is not None:
            ends.setdefault(link.channel, set()).add(link.is_writable)
    both = sum(len(directions) > 1 for directions in ends.values())
    if both >= MOST * len(ends):
        yield f"both ends of {counted(both, 'pipe')} are open in this process"
        return
    others = Counter(
        other.process
        for other in index.snapshot.living()
        if other.process != process.process
        for link in other.sample.links
        if link.kind == "pipe" and link.channel in ends
    )
    holders = [each for found, _ in others.most_common(4) if (each := index.snapshot.get(found))]
    if holders:
        yield f"the other ends are held by {all_called(holders)}"
    elif all(each.sample.fds is not None for each in index.snapshot.living()):
        yield "no other process of this job holds the other ends"


def _file_words(targets: Sequence[str]) -> Iterator[str]:
    """The file or the directory that most of the new descriptors are for."""
    deleted = sum(target.endswith(" (deleted)") for target in targets)
    names = [target.removesuffix(" (deleted)") for target in targets]
    path, count = Counter(names).most_common(1)[0]
    if count > 1 and count >= MOST * len(names):
        yield f"{count} of them are {path}"
    else:
        folder, count = Counter(name.rpartition("/")[0] for name in names).most_common(1)[0]
        if count >= MOST * len(names):
            yield f"{count} of them are files in {folder or '/'}, such as {names[-1]}"
        else:
            name, count = Counter(each.rpartition("/")[2] for each in names).most_common(1)[0]
            if count >= MOST * len(names):
                yield f"{count} of them are files called {name}, such as {names[-1]}"
    if deleted:
        yield f"{deleted} of them have been deleted and still occupy space while they are open"


def _socket_words(links: Sequence[FdLink]) -> Iterator[str]:
    """The address to which most of the new sockets are connected."""
    peers = Counter(
        link.address.rpartition(" > ")[2]
        for link in links
        if link.address and link.address != "unix"
    )
    for peer, count in peers.most_common(1):
        if count >= MOST * len(links):
            yield f"{count} of them are connected to {peer}"


class NewestThreads(Struct, frozen=True):
    """What most of the newest threads of a process are at."""

    words: tuple[str, ...]
    """The line of the program, or else their name."""
    fills_queue: bool
    """Whether most of them wait in `queue.Queue.put` for room in a full queue."""


def newest_threads(process: Process, gained: float) -> NewestThreads:
    """The line of the program in which most of the newest threads are, or else their name."""
    newest = _newest(process, gained)
    puts = sum(calls(each.stack[:PUT_DEPTH], "queue.py:put") for each in newest)
    fills_queue = puts >= MOST * len(newest)
    place, count = _commonest(filter(None, map(own_place, newest)))
    if count >= MOST * len(newest):
        words = [f"{count} of its {len(newest)} newest threads are at {place}"]
        if fills_queue:
            words.append(f"{puts} of them wait there in Queue.put for room in a full queue")
        return NewestThreads(tuple(words), fills_queue)
    name, count = _commonest(thread.name for thread in newest)
    if count >= MOST * len(newest):
        words = [f"{count} of its {len(newest)} newest threads are called {name}"]
        return NewestThreads(tuple(words), fills_queue)
    return NewestThreads((), fills_queue)


def are_of_groups(process: Process, gained: float) -> bool:
    """Whether most of the newest threads of a process are those of process groups."""
    newest = _newest(process, gained)
    return sum(each.name.startswith(_OF_GROUPS) for each in newest) >= MOST * len(newest)


_OF_GROUPS = (*THREADS_OF_A_GROUP, "pt_gloo_")
"""The last are those that run the collectives of a group of gloo (torch 2.13): several of each."""


def newest_stacks(process: Process, gained: float) -> list[Sequence[Frame]]:
    """The stacks of the threads that a process has started last, of those that have one."""
    return [each.stack for each in _newest(process, gained) if each.stack]


def _newest(process: Process, gained: float) -> Sequence[Thread]:
    """The threads that a process has started last, as many as it has gained."""
    started = {each.tid: each.start_ticks or 0 for each in process.sample.threads or ()}
    threads = sorted(process.threads, key=lambda each: (started.get(each.tid, 0), each.tid))
    return threads[-max(1, round(gained)) :]


def newest_children_words(index: Index, process: Process, gained: float) -> tuple[str, ...]:
    """What the newest children are, and how many have exited without being joined."""
    children = sorted(
        (each for each in children_of(index, process)), key=lambda each: each.process.start_ticks
    )
    newest = children[-max(1, round(gained)) :]
    if not newest:
        return ()
    zombies = sum(each.sample.state == "Z" for each in newest)
    label, count = _commonest(map(label_stem, newest))
    lines = [f"{count} of its {len(newest)} newest children: {label}"]
    if zombies:
        lines.append(f"{zombies} of them have exited and are not joined (zombies)")
    place, count = _commonest(filter(None, map(own_lines, newest)))
    if count >= MOST * len(newest):
        lines.append(f"{count} of them are at {place}")
    return tuple(lines)


def has_zombies(index: Index, process: Process) -> bool:
    """Whether any child of a process has exited and is not joined."""
    return any(each.sample.state == "Z" for each in children_of(index, process))


def children_of(index: Index, process: Process) -> Iterator[Process]:
    """The children of a process that the kernel still lists, zombies included."""
    return (
        each
        for each in index.snapshot.processes
        if each.parent == process.process and (not each.is_gone or each.sample.state == "Z")
    )


def own_place(thread: Thread) -> str | None:
    """The innermost frame of the program; `None` without a stack."""
    frame = next((each for each in thread.stack if not is_library(each)), None)
    return None if frame is None else frame_words(frame)


def _commonest(words: Iterable[str]) -> tuple[str, int]:
    """The most frequent of some words and how often it occurs."""
    found = Counter(words).most_common(1)
    return found[0] if found else ("", 0)
