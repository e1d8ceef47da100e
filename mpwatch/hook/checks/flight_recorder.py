"""Process groups, their collectives in torch's flight recorder, and models of DDP.

torch records each collective of gloo in a ring of 2000 entries, without any variable set
(`FlightRecorder.hpp`, torch 2.8 to 2.13). Its state of each process group is a few numbers: it is
read in 0.01 ms. All entries are up to 1 MB of JSON, which takes 50 ms: they are read only where no
number has changed for `STILL_NS`, and at most every `ENTRIES_NS`. Only the newest are decoded, one
at a time, because the collector counts the lists of each (`safe.one_call`).

NCCL has a recorder of its own (`_dump_nccl_trace_json`). Of that only the numbers are read: for
its entries it asks CUDA for the state of events, and may so wait for a kernel that never ends. Its
numbers took 0.03 to 0.08 ms while a kernel of all_reduce did not end (torch 2.11, NCCL 2.28.9).

Of each model that DistributedDataParallel wraps, three of its own attributes and the version of one
parameter are read, which torch raises at each change in place: gradients are reduced only if the
forward pass of the wrapper runs, and outside of `no_sync` (torch 2.1 to 2.13, `distributed.py`).
"""

from __future__ import annotations

import functools
import json
import operator
import sys
import weakref

from ..safe import exact, foreign_exceptions
from ..safe.one_call import dereference, through
from ..state.call_sites import place_here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..context import Context
    from ..safe.unpatched import System

STILL_NS = 4_000_000_000
ENTRIES_NS = 10_000_000_000
STATUS_BYTES = 8192
"""Of the state of all groups: about fifty of them. What is longer is not decoded."""
GROUPS = 16
DECODED = 64
"""Entries decoded at a time."""
TAIL_BYTES = 64 << 10
"""Of all entries as much as these take: splitting the whole would copy it."""
_ENTRY = b'{"collective_seq_id":'
"""How each entry begins: the members of an object are sorted by name (nlohmann::json)."""
_TEXT = 64
_RANKS_TEXT = 200
MODELS = 8
MODEL = "DistributedDataParallel.__init__"
_IS_TRUE = functools.partial(operator.is_, True)
_IS_FALSE = functools.partial(operator.is_, False)


class ProcessGroups:
    """The newest process groups of this process, as plain values, and the recorder to read.

    No group is kept: its last reference has to be dropped by the program.

    Args:
        recorder: `None` if this torch has none.
    """

    __slots__ = ("_facts", "_models", "_recorder", "_system")

    def __init__(self, recorder: FlightRecorder | None, system: System) -> None:
        self._facts: dict[str, dict[str, Any]] = {}
        self._models: Models | None = None
        self._recorder = recorder
        self._system = system

    def add(self, name: str, size: int, rank: int, ranks: Iterable[int], backend: str) -> None:
        """Note a group, on a thread of the program."""
        self._facts[name[:_TEXT]] = {
            "size": size,
            "rank": rank,
            "ranks": ", ".join(map(str, ranks))[:_RANKS_TEXT],
            "backend": backend[:_TEXT],
        }
        while len(self._facts) > GROUPS:
            del self._facts[next(iter(self._facts))]

    def follow_models(self, attribute: Callable[..., Any], session: Context) -> Any:
        """Note each model that DistributedDataParallel wraps from now on.

        Args:
            attribute: `lifecycle.patcher.attribute`.
            session: The hook.

        Returns:
            The function that ends it; `None` in a program that has no such models.
        """
        module = sys.modules.get("torch.nn.parallel.distributed")
        if module is None:
            return None
        self._models = Models()
        before = session.patcher.prepared
        undo = attribute(MODEL, self._models.wrap)(module, session)
        session.patcher.prepared = before
        return undo

    def show(self) -> dict[str, Any]:
        """The gauge `collectives`; see `wire`."""
        groups = dict(self._facts)
        if self._recorder is None:
            return {"groups": groups, "error": "this torch has no flight recorder to read"}
        states = self._recorder.show()
        if self._models is None:
            return {"groups": groups, "states": states}
        enqueued = sum(state["enqueued"] for state in states)
        models = self._models.show(enqueued, self._system.monotonic_ns())
        return {"groups": groups, "states": states} | ({"models": models} if models else {})


class Models:
    """The newest models that DistributedDataParallel wraps in this process.

    None is kept: they are weak references, read by `through` on the hook's thread.
    """

    __slots__ = ("_known", "_own", "_version")

    def __init__(self) -> None:
        torch: Any = sys.modules["torch"]
        self._known: list[list[Any]] = []
        """Model, parameter, line, the state last read, and the counts when it was first read."""
        self._own = vars(torch.nn.Module)["__dict__"].__get__
        self._version = vars(torch._C.TensorBase)["_version"].__get__

    def wrap(self, original: Callable[..., Any], session: Context) -> Callable[..., Any]:
        """Note each model that is wrapped."""
        add = self.add

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - its name
            try:
                original(self, *args, **kwargs)
            except BaseException as error:
                foreign_exceptions.unframe(error)
                raise
            try:
                add(self)
            except BaseException as error:
                if not foreign_exceptions.is_ours(error):
                    raise
                session.patcher.missing["models"] = f"{type(error).__name__}: {error}"[:200]

        return __init__

    def add(self, model: Any) -> None:
        """Note a model, on a thread of the program."""
        torch = sys.modules["torch"]
        if torch._C._len_torch_function_stack():
            return  # a mode of the program intercepts reads of tensors
        for parameter in exact.attributes(model)["_module_parameters"]:
            if type(parameter) is torch.nn.Parameter and parameter.requires_grad:
                refer = weakref.ref
                self._known.append([refer(model), refer(parameter), place_here(), None, ()])
                break
        del self._known[:-MODELS]

    def show(self, enqueued: int, now_ns: int) -> list[dict[str, Any]]:
        """The member `models` of the gauge `collectives`; see `wire`.

        Args:
            enqueued: Collectives of all process groups so far.
            now_ns: CLOCK_MONOTONIC.
        """
        told = []
        for known in tuple(self._known):
            try:
                version = through(known[1:2], dereference, self._version)[0]
                state = (
                    self._read(known, "_lazy_init_ran", _IS_TRUE),
                    not self._read(known, "require_backward_grad_sync", _IS_FALSE),
                    self._read(known, "_comm_hooks", list.__len__, []) > 0,
                )
            except (TypeError, RuntimeError) as error:  # it was freed
                if not foreign_exceptions.is_ours(error):
                    raise
                self._known.remove(known)
                continue
            counts = (version, enqueued, now_ns)
            if state != known[3]:
                known[3:] = state, counts
            updates, collectives, lasting_ns = map(operator.sub, counts, known[4])
            told.append(
                {
                    "site": known[2],
                    "is_forward_run": state[0],
                    "is_reducing": state[1],
                    "has_own_hook": state[2],
                    "updates": updates,
                    "collectives": collectives,
                    "lasting_ns": lasting_ns,
                }
            )
        return told

    def _read(self, known: list[Any], name: str, step: Callable[..., Any], *without: Any) -> Any:
        """What a function written in C makes of an attribute of a model."""
        get = operator.methodcaller("get", name, *without)
        return through(known[:1], dereference, self._own, get, step)[0]


class FlightRecorder:
    """Reads the recorder of this process; used by the hook's thread."""

    __slots__ = ("_changed_ns", "_dump", "_entries", "_entries_ns", "_nccl", "_numbers", "_system")

    def __init__(
        self,
        system: System,
        dump: Callable[..., bytes],
        nccl: Callable[..., bytes] | None = None,
    ) -> None:
        self._system = system
        self._dump = dump
        self._nccl = nccl
        self._numbers: dict[str, tuple[int, int]] = {}
        self._changed_ns = 0
        self._entries: dict[str, dict[str, Any]] = {}
        self._entries_ns = 0

    def show(self) -> list[dict[str, Any]]:
        """The state of each process group; see `collectives` in `wire`.

        Raises:
            ValueError: torch has a longer or another form of it than is known here.
        """
        numbers = _numbers(self._dump)
        groups = list(numbers)
        if self._nccl is not None:
            numbers |= {f"nccl:{name}": of for name, of in _numbers(self._nccl).items()}
        now_ns = self._system.monotonic_ns()
        if numbers != self._numbers:
            self._numbers, self._changed_ns, self._entries = numbers, now_ns, {}
        elif (
            not self._entries
            and groups
            and now_ns - self._changed_ns >= STILL_NS
            and now_ns - self._entries_ns >= ENTRIES_NS
        ):
            self._entries_ns = now_ns
            self._entries = newest_entries(self._dump(includeCollectives=True), groups)
        return [
            {
                "id": name,
                "enqueued": enqueued,
                "completed": completed,
                "unchanged_ns": now_ns - self._changed_ns,
                **self._entries.get(name, {}),
            }
            for name, (enqueued, completed) in list(numbers.items())[:GROUPS]
        ]


def _numbers(dump: Callable[..., bytes]) -> dict[str, tuple[int, int]]:
    """The last collective of each process group that was enqueued, and the last that has ended."""
    text = dump(includeCollectives=False)
    if len(text) > STATUS_BYTES:
        raise ValueError(f"the state of all process groups has {len(text)} bytes")
    try:
        return {
            name: (
                int(status["last_enqueued_collective"]),
                int(status["last_completed_collective"]),
            )
            for name, status in json.loads(text)["pg_status"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its form is not known: {type(error).__name__}: {error}") from None


def newest_entries(text: bytes, ids: list[str]) -> dict[str, dict[str, Any]]:
    """Of each process group its oldest unfinished collective, or its newest if all have finished.

    Args:
        text: All entries, as the recorder writes them, oldest first.
        ids: The numbers of the groups in this process.
    """
    decode = json.JSONDecoder().raw_decode
    found: dict[str, dict[str, Any]] = {}
    ended: set[str] = set()
    for piece in reversed(text[-TAIL_BYTES:].rsplit(_ENTRY, DECODED)[1:]):
        if len(ended) == len(ids):
            break
        try:
            entry, _ = decode((_ENTRY + piece).decode("utf-8", "replace"))
            group = str(entry["pg_id"])
            if group in ended:
                continue
            if entry["retired"]:
                ended.add(group)
                if group in found:
                    continue  # those after it are unfinished, the oldest of them is there
            found[group] = _told(entry)
        except (ValueError, KeyError, TypeError, IndexError):
            continue  # cut short, or of another version
    return found


def _told(entry: dict[str, Any]) -> dict[str, Any]:
    """What is sent of one entry: plain numbers and short texts."""
    return {
        "group": str(entry["process_group"][0])[:_TEXT],
        "description": str(entry["process_group"][1])[:_TEXT],
        "operation": str(entry["profiling_name"])[:_TEXT],
        "number": int(entry["collective_seq_id"]),
        "sizes": str(entry["input_sizes"])[:_TEXT],
        "types": ", ".join(map(str, entry["input_dtypes"]))[:_TEXT],
        "is_unfinished": not entry["retired"],
        "created_wall_ns": int(entry["time_created_ns"]),
    }
