"""The head: starts an agent on each node, keeps what they send, asks them, and ends them.

Driven by one thread that calls `Head.step`. What a node sends is checked, sanitized and bounded
(`mpwatch.nodes.wire.messages`, `mpwatch.nodes.wire.summary`); nothing of it is executed.
"""

from __future__ import annotations

import os
import resource
import selectors
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from mpwatch.collect.process.fds import raise_own_limit
from mpwatch.nodes.head.node import Keep, Node, NodeView, unfinished
from mpwatch.nodes.launchers.launch import (
    GRACE_S,
    CannotLaunch,
    ChangingNodes,
    Launch,
    Pipes,
)
from mpwatch.nodes.wire.messages import (
    SNAPSHOTS_ON_THE_WAY,
    Answer,
    Ask,
    Close,
    Do,
    Next,
    Open,
    Refusal,
    SnapshotPart,
    Summary,
)
from mpwatch.nodes.wire.view_codec import VERSION

STEP_S = 0.1
"""How long one step receives; between two, callers see to what else is due."""
STARTING_LIMIT = 16
"""So many agents are started at the same time: a login node dislikes more."""
BURST = 4
"""So many are started at once, if the last start was long enough ago."""
SPACING_S = 0.05
"""Mean time from one start to the next. An sshd, also that of a jump host, refuses connections
at random while ten are not authenticated yet (MaxStartups in sshd_config(5), OpenSSH 9.2), and a
host takes 0.2 s for that."""
HELD_UP_S = 5.0
"""A node that has not answered after so long is waited for beside the others: hosts that hang keep
no other host from being started. The more nodes hang, the shorter (`Head._holding_up`)."""
HELD_UP_LEAST_S = 1.0
FOLLOW_S = 1.0
"""Interval at which an engine whose nodes join and leave is asked for them."""
RESERVED_DESCRIPTORS = 64
"""For what else a head opens: programs being started, a recording, the terminal."""
CHECK_S = 0.05
"""Interval at which all nodes are looked after; a thousand of them send at as many moments."""
UNSENT_LIMIT = 64
"""Requests about an opened job that wait for a node that does not read; older ones are dropped."""

Receive: TypeAlias = Callable[[SnapshotPart | Refusal], None]
"""Called on the thread of the head; returns at once."""


def free_descriptors() -> int:
    """How many descriptors this process can still open for nodes, its soft limit raised."""
    raise_own_limit()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return soft - len(os.listdir("/proc/self/fd")) - RESERVED_DESCRIPTORS


class Shortage(NamedTuple):
    """More nodes than this process has descriptors for."""

    sentence: str
    fix: str
    """A command that raises the limit."""


def shortage(launches: Sequence[Launch]) -> Shortage | None:
    """Whether there are too few descriptors for all nodes; those beyond are not started."""
    free = free_descriptors()
    needed = sum(launch.descriptors for launch in launches)
    if needed <= free:
        return None
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    counts = accumulate(launch.descriptors for launch in launches)
    fit = sum(count <= free for count in counts)
    return Shortage(
        f"{len(launches)} nodes take {needed} descriptors and {hard} is the hard limit of this "
        f"shell: only the first {fit} nodes are read.",
        _raise_limit(hard - free + needed),
    )


def _raise_limit(descriptors: int) -> str:
    """The command that raises the limit of this shell to so many descriptors and some more."""
    wanted = -(-descriptors // 1024) * 1024
    return f"sudo prlimit --pid $$ --nofile={wanted}:{wanted}"


def _without_descriptors(launch: Launch, missing: int) -> Launch:
    """A node that is not started, for want of descriptors; all nodes together lack so many."""

    def refuse() -> Pipes:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise CannotLaunch(
            f"No descriptor is left for it: {hard} is the hard limit of this shell.",
            _raise_limit(hard + missing),
            "no-descriptor",
        )

    return launch._replace(open=refuse, explain=None, is_refused=None)


class Head:
    """The agents of a job."""

    def __init__(
        self,
        launches: Sequence[Launch] | ChangingNodes,
        *,
        restarts: bool = False,
        keep: Keep | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a head that has started nothing yet.

        Args:
            launches: The nodes; those that change are followed, and closed with the head.
            restarts: Start an agent again when it has ended or failed.
            keep: Called with each message that is shown: greetings, summaries that fit to the one
                before, and answers to requests.
            clock: Monotonic seconds.
        """
        self._keep = keep
        self._clock = clock
        self._descriptors = free_descriptors()
        self._selector = selectors.DefaultSelector()
        self._restarts = restarts
        self._changing = None if isinstance(launches, Sequence) else launches
        self._followed_s = clock()
        self._checked_s = self._started_s = float("-inf")
        self._nodes: dict[str, Node] = {}
        self._without: set[str] = set()
        """Nodes that are not started, for want of descriptors."""
        self._add(launches if isinstance(launches, Sequence) else launches.launches())
        self._requests = 0
        self._answers: dict[int, Answer] = {}
        self._asked: dict[int, str] = {}
        self._opened: dict[int, OpenedJob] = {}

    def step(self, timeout_s: float = STEP_S) -> None:
        """Start what is to be started, and receive for at most this long."""
        self._follow()
        self._start_some()
        heard: dict[str, Node] = {}
        for key, _ in self._selector.select(timeout_s):
            node, stream = key.data
            node.receive(stream)
            heard[node.name] = node
        if self._clock() - self._checked_s >= CHECK_S:
            self._checked_s = self._clock()
            for node in self._nodes.values():
                node.look_after()
        for node in heard.values():
            for answer in node.take_answers():
                if self._asked.pop(answer.request, None) == node.name:
                    self._answers[answer.request] = answer
                    if self._keep is not None:
                        self._keep(node.name, answer)
            for part in node.take_parts():
                opened = self._opened.get(part.view)
                if opened is not None and opened.node == node.name:
                    opened.receive(part)
        for opened in self._opened.values():
            opened.go_on(self._nodes.get(opened.node))

    def views(self) -> tuple[NodeView, ...]:
        """All nodes, in the order of the launcher."""
        return tuple(node.view() for node in self._nodes.values())

    def last_views(self) -> tuple[NodeView, ...]:
        """All nodes at the end of a watch; those that are not known by then have a problem."""
        return tuple(map(unfinished, self.views()))

    def full_summaries(self) -> Iterator[tuple[str, Summary]]:
        """The state of each node that has sent one, as one message, with the name of the node."""
        for node in self._nodes.values():
            message = node.full_summary()
            if message is not None:
                yield node.name, message

    def ask(self, name: str, what: str, **options: bool | int) -> int:
        """Ask a node for a document.

        Args:
            name: The node.
            what: See `mpwatch.nodes.wire.messages.Ask`.
            options: Further fields of the request.

        Returns:
            The number of the request, for `answer`.
        """
        self._requests += 1
        request = self._requests
        message = msgspec.convert({"request": request, "what": what, **options, "type": "ask"}, Ask)
        self._asked[request] = name
        node = self._nodes.get(name)
        if node is None or not node.send(message):
            self._asked.pop(request)
            self._answers[request] = Answer(request, problem=f"{name} does not answer.")
        return request

    def answer(self, request: int) -> Answer | None:
        """The answer to a request, once; `None` while there is none."""
        answer = self._answers.pop(request, None)
        if answer is None and request in self._asked:
            name = self._asked[request]
            node = self._nodes.get(name)
            if node is None or node.is_over:
                del self._asked[request]
                problem = node.problem if node is not None else ""
                return Answer(request, problem=problem or f"{name} has ended.")
        return answer

    def open(self, view: int, name: str, pid: int, receive: Receive) -> None:
        """Open the job of a process on a node; again whenever a new agent answers there.

        Args:
            view: A number that no job was opened with before.
            name: The node.
            pid: The process.
            receive: Called with what the node sends about it.
        """
        self._opened[view] = OpenedJob(view, name, pid, receive)

    def tell(self, message: Next | Do | Close) -> None:
        """Send a message about an opened job; one about a job that is not open is dropped."""
        opened = self._opened.get(message.view)
        if opened is not None:
            opened.tell(message)
            opened.go_on(self._nodes.get(opened.node))
            if isinstance(message, Close):
                del self._opened[message.view]

    @property
    def start_s(self) -> float:
        """How long the first message of any node may take from the start of its launcher."""
        return max((node.start_s for node in self._nodes.values()), default=0.0)

    @property
    def last_start_s(self) -> float:
        """When the last agent was started, by the clock; now, while others are to be."""
        if any(node.is_waiting for node in self._nodes.values()):
            return self._clock()
        return self._started_s

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected of any node; not so where agents are started again."""
        return not self._restarts and all(node.is_over for node in self._nodes.values())

    @property
    def is_settled(self) -> bool:
        """Whether each node has sent its first complete reading, or will not."""
        return all(node.is_settled for node in self._nodes.values())

    def close(self) -> None:
        """End all agents; returns after `GRACE_S` at the latest, and leaves none behind."""
        for node in self._nodes.values():
            node.hang_up()
        end_s = time.monotonic() + GRACE_S
        for node in self._nodes.values():
            node.wait(max(0.0, end_s - time.monotonic()))
        for node in self._nodes.values():
            node.kill()
        if self._changing is not None:
            self._changing.close()
        self._selector.close()

    def _add(self, launches: Sequence[Launch]) -> None:
        """Add the nodes that are not known yet, and start those that had no descriptors."""
        left = self._descriptors
        wanted = sum(
            e.descriptors for e in launches if e.name not in self._nodes or e.name in self._without
        )
        missing = max(0, wanted - left)
        for launch in launches:
            name = launch.name
            if name in self._nodes and name not in self._without:
                continue
            left -= launch.descriptors
            if left >= 0:
                self._descriptors = left
                self._without.discard(name)
                self._nodes[name] = self._new_node(launch)
            elif name not in self._nodes:
                self._without.add(name)
                self._nodes[name] = self._new_node(_without_descriptors(launch, missing))

    def _new_node(self, launch: Launch) -> Node:
        return Node(launch, self._selector, self._clock, self._keep)

    def _follow(self) -> None:
        """Add the nodes that have joined, and remove those that have left."""
        if self._changing is None or self._clock() - self._followed_s < FOLLOW_S:
            return
        self._followed_s = self._clock()
        launches = self._changing.launches()
        for name in self._nodes.keys() - {launch.name for launch in launches}:
            node = self._nodes.pop(name)
            node.kill()
            if name in self._without:
                self._without.remove(name)
            else:
                self._descriptors += node.descriptors
        self._add(launches)

    def _start_some(self) -> None:
        """Start the next nodes that are due, those first that never were started."""
        now_s = self._clock()
        room = STARTING_LIMIT - self._holding_up()
        count = min(room, BURST, (now_s - self._started_s) // SPACING_S)
        if count < 1:
            return
        due = [node for node in self._nodes.values() if node.is_due(self._restarts)]
        for node in sorted(due, key=lambda node: not node.is_waiting)[: int(count)]:
            self._started_s = now_s
            node.start()

    def _holding_up(self) -> int:
        """How many nodes count among those that are started at the same time.

        Not those that hang. Hanging nodes make it likelier that the next one hangs too: when as
        many hang as may be started at a time, half as long is waited for each of the others.
        """
        ages_s = [s for node in self._nodes.values() if (s := node.starting_s) is not None]
        hanging = sum(age_s >= HELD_UP_S for age_s in ages_s)
        held_up_s = max(HELD_UP_LEAST_S, HELD_UP_S / (1 + hanging / STARTING_LIMIT))
        return sum(age_s < held_up_s for age_s in ages_s)


# --- opened jobs ----------------------------------------------------------------------------------


class ViewNode(Protocol):
    """A node, as far as an opened job needs it."""

    greetings: int
    """Agents that have greeted so far."""

    @property
    def view_version(self) -> int:
        """Which version of opened jobs its agent has; 0 if none."""
        ...

    @property
    def version(self) -> str:
        """The version of mpwatch of its agent."""
        ...

    def send(self, message: Open | Next | Do | Close) -> bool:
        """Send a message; whether the node is live and takes it."""
        ...


class OpenedJob:
    """A job that is opened on a node, on the thread of the head.

    Attributes:
        node: Name of the node.
    """

    def __init__(self, view: int, node: str, pid: int, receive: Receive) -> None:
        self.node = node
        self.receive = receive
        self._view = view
        self._pid = pid
        self._greetings = 0
        self._unsent: list[Open | Next | Do | Close] = []
        self._watches: dict[str, Do] = {}

    def tell(self, message: Next | Do | Close) -> None:
        """Send a message as soon as the node takes one."""
        if isinstance(message, Do) and message.what in ("follow", "focus"):
            self._watches[message.what] = message
        self._unsent = [*self._unsent, message][-UNSENT_LIMIT:]

    def go_on(self, node: ViewNode | None) -> bool:
        """Send what is to be sent, to a new agent from the beginning; whether nothing is left."""
        if node is None:
            return False
        if node.greetings != self._greetings:
            self._greetings = node.greetings
            more = [Next(self._view)] * (SNAPSHOTS_ON_THE_WAY - 1)
            self._unsent = [Open(self._view, self._pid), *more, *self._watches.values()]
            if node.view_version != VERSION:
                self._unsent = []
                self.receive(Refusal(self._view, _too_old(self.node, node.version), is_over=True))
        while self._unsent and node.send(self._unsent[0]):
            del self._unsent[0]
        return not self._unsent


def _too_old(name: str, version: str) -> str:
    return (
        f"The mpwatch {version} of {name} cannot show its dashboard to this one: use the same "
        "version on both."
    )
