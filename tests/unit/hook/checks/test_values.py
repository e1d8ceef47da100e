from __future__ import annotations

import collections
import gc
import json
import sys
import threading
import time
import weakref
from collections.abc import Callable
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mpwatch.hook import checks, requests, wire
from mpwatch.hook.checks import values
from mpwatch.hook.safe import one_call

pytestmark = pytest.mark.xdist_group("torch")

STEP = 12


class Level(IntEnum):
    LOW = 1


class Hostile:
    """Calls nothing may happen to it."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)

    def __eq__(self, other: object) -> bool:
        raise AssertionError

    def __len__(self) -> int:
        raise AssertionError

    __hash__ = None  # type: ignore[assignment]


class HostileKind(type):
    """A metaclass whose classes can be neither compared nor hashed."""

    def __eq__(cls, other: object) -> bool:
        raise AssertionError

    def __hash__(cls) -> int:
        raise AssertionError

    def __getattribute__(cls, name: str) -> Any:
        raise AssertionError(name)


class Unequal(metaclass=HostileKind):
    pass


class Slotted:
    __slots__ = ("count", "unset")

    def __init__(self) -> None:
        self.count = 3


def elsewhere(read: Callable[[], Any]) -> Any:
    """What a function returns on another thread, while this one waits."""
    found: list[Any] = []
    caller = threading.get_ident()

    def work() -> None:
        # The caller's frames are as deep as they stay once it joins.
        waits = ("join", "_wait_for_tstate_lock")
        while next(each[2] for each in one_call.frames() if each[0] == caller) not in waits:
            time.sleep(0.001)
        found.append(read())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]


def asked(function: str, *names: str, tid: int | None = None) -> dict[str, Any]:
    """The values of names in the innermost frame of a function of this file."""
    tid = tid or threading.get_native_id()
    wanted = [[tid, __file__, function, list(names)]]
    frames = json.loads(elsewhere(lambda: values.read(wanted)))
    return frames[0]["values"] if frames else {}


def test_numbers_lengths_and_types_are_read() -> None:
    step, rate, is_first, nothing, big, level = 60, 0.5, True, None, 1 << 80, Level.LOW
    text, raw, rows, table = "secret", b"ab", [1, 2, 3], {"a": 1}
    last = collections.deque([1, 2], maxlen=2)
    counts: collections.Counter[str] = collections.Counter("aab")
    groups: collections.defaultdict[str, int] = collections.defaultdict(int)
    hostile, infinite = Hostile(), float("nan")

    found = asked(
        "test_numbers_lengths_and_types_are_read",
        *("step", "rate", "is_first", "nothing", "big", "level", "text", "raw", "rows", "table"),
        *("last", "counts", "groups", "hostile", "infinite", "absent"),
    )

    assert found == {
        "step": {"type": "int", "number": step},
        "rate": {"type": "float", "number": rate},
        "is_first": {"type": "bool", "number": is_first},
        "nothing": {"type": "NoneType"},
        "big": {"type": "int"},
        "level": {"type": "Level"},
        "text": {"type": "str", "length": len(text)},
        "raw": {"type": "bytes", "length": len(raw)},
        "rows": {"type": "list", "length": len(rows)},
        "table": {"type": "dict", "length": len(table)},
        "last": {"type": "deque", "length": len(last)},
        "counts": {"type": "Counter", "length": len(counts)},
        "groups": {"type": "defaultdict", "length": len(groups)},
        "hostile": {"type": "Hostile"},
        "infinite": {"type": "nan"},
    }
    assert nothing is None
    assert big > level
    assert type(hostile) is Hostile
    assert infinite != infinite


def test_attributes_are_read_without_properties(torch: Any) -> None:
    class Trainer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.state = SimpleNamespace(step=60, slotted=Slotted())
            self.register_buffer("mean", torch.zeros(2))

        @property
        def computed(self) -> int:
            raise AssertionError

    trainer = Trainer()

    found = asked(
        "test_attributes_are_read_without_properties",
        *("trainer.state.step", "trainer.state.slotted.count", "trainer.state.slotted.unset"),
        *("trainer.mean", "trainer.computed", "trainer.absent", "STEP", "trainer.state.step.real"),
    )

    assert found == {
        "trainer.state.step": {"type": "int", "number": 60},
        "trainer.state.slotted.count": {"type": "int", "number": 3},
        "trainer.mean": {"type": "Tensor", "has_graph": False},
        "STEP": {"type": "int", "number": STEP},
    }
    assert trainer.state.step == 60


def test_a_class_that_can_be_neither_compared_nor_hashed_is_named() -> None:
    unequal = object.__new__(Unequal)

    found = asked(
        "test_a_class_that_can_be_neither_compared_nor_hashed_is_named",
        *("unequal", "unequal.step"),
    )

    assert found == {"unequal": {"type": "Unequal"}}
    assert type(unequal) is Unequal


def test_whether_a_tensor_carries_a_graph_is_read(torch: Any) -> None:
    class OwnTensor(torch.Tensor):  # type: ignore[misc]
        pass

    weight = torch.nn.Parameter(torch.ones(2))
    loss, plain, own = (weight * 2).sum(), torch.ones(1), OwnTensor()
    losses, state, empty = [0, loss], (plain, plain), ()

    found = asked(
        "test_whether_a_tensor_carries_a_graph_is_read",
        *("weight", "loss", "plain", "own", "losses", "state", "empty"),
    )

    assert found == {
        "weight": {"type": "Parameter", "has_graph": False},
        "loss": {"type": "Tensor", "has_graph": True},
        "plain": {"type": "Tensor", "has_graph": False},
        "own": {"type": OwnTensor.__qualname__},
        "losses": {"type": "list", "length": len(losses), "has_graph": True},
        "state": {"type": "tuple", "length": len(state), "has_graph": False},
        "empty": {"type": "tuple", "length": len(empty)},
    }
    assert loss.item() == 4 * plain.item()
    assert type(own) is OwnTensor


class Touchy(str):
    """A text that no other thread than the one that made it may compare."""

    __slots__ = ()
    owner = threading.get_ident()

    def __eq__(self, other: object) -> bool:
        assert threading.get_ident() == self.owner
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class TouchySpace(dict[str, Any]):
    """A namespace that runs code of the program when it is asked."""

    def get(self, *_: object) -> Any:
        raise AssertionError


def test_a_class_that_is_named_like_a_tensor_runs_no_code(torch: Any) -> None:
    called: list[str] = []

    class Descriptor:
        def __get__(self, instance: object, owner: object) -> bool:
            called.append("descriptor")
            return True

    class Named:
        requires_grad = property(lambda self: called.append("property"))
        is_leaf = Descriptor()

    class Derived(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_function__(cls, *_: object, **__: object) -> bool:
            called.append("torch function")
            return True

    for kind in (Named, Derived):
        kind.__module__, kind.__qualname__ = "torch", "Tensor"
    bare = type("Tensor", (), {"__module__": "torch"})()
    named, derived = Named(), Derived()
    called.clear()

    found = asked(
        "test_a_class_that_is_named_like_a_tensor_runs_no_code", "named", "derived", "bare"
    )

    assert found == {name: {"type": "Tensor"} for name in ("named", "derived", "bare")}
    assert called == []
    assert (type(named), type(derived)) == (Named, Derived)
    assert type(bare).__name__ == "Tensor"


def test_names_that_are_no_plain_strings_are_not_compared() -> None:
    class Keyed:
        pass

    keyed, plain = Keyed(), Keyed()
    keyed.__dict__[Touchy("step")] = 1
    plain.__dict__["step"] = 2
    in_class: Any = type("InClass", (), {Touchy("step"): 1})()
    space: dict[str, Any] = {"ask": asked, Touchy("step"): 3}
    exec(compile("def ask_here():\n return ask('ask_here', 'step')", __file__, "exec"), space)

    found = asked(
        "test_names_that_are_no_plain_strings_are_not_compared",
        *("keyed.step", "plain.step", "in_class.step"),
    )

    assert found == {"plain.step": {"type": "int", "number": plain.step}}  # type: ignore[attr-defined]
    assert space["ask_here"]() == {}
    assert (keyed.__dict__["step"], in_class.step) == (1, 1)


def test_a_namespace_of_another_class_is_read_without_its_methods() -> None:
    class Keyed:
        pass

    keyed = Keyed()
    keyed.__dict__ = TouchySpace(step=1)
    space = TouchySpace(ask=asked, step=3)
    exec(compile("def ask_here():\n return ask('ask_here', 'step')", __file__, "exec"), space)

    found = asked("test_a_namespace_of_another_class_is_read_without_its_methods", "keyed.step")

    assert found == {"keyed.step": {"type": "int", "number": 1}}
    assert space["ask_here"]() == {"step": {"type": "int", "number": 3}}
    assert type(keyed) is Keyed


@pytest.mark.parametrize(
    "wanted",
    [None, 5, "frames", {"a": 1}, [5], [[1, "f", "g"]], [[1, "f", "g", 5]], [[[], {}, [], [{}]]]],
)
def test_a_request_of_another_form_is_answered_with_an_error(wanted: Any) -> None:
    asking = {"ask": "values", "id": 1, "frames": wanted}
    hook: Any = SimpleNamespace()

    answer = elsewhere(lambda: requests.answer(hook, asking))

    assert answer["id"] == 1
    assert "error" in answer or json.loads(answer[wire.AS_TEXT]["frames"]) == []


def test_names_of_another_form_are_answered_with_an_error() -> None:
    names: Any = [5, {}]
    tid, function = threading.get_native_id(), "test_names_of_another_form_are_answered"
    asking = {"ask": "values", "frames": [[tid, __file__, f"{function}_with_an_error", names]]}
    hook: Any = SimpleNamespace()

    assert elsewhere(lambda: requests.answer(hook, asking))["error"].startswith("values: ")


class Thing:
    """Something whose end is noticed."""


def test_what_a_function_lets_go_of_is_freed_at_once() -> None:
    thing: Thing | None = Thing()
    ends = weakref.ref(thing) if thing is not None else None
    assert ends is not None

    for _ in range(2):
        found = asked("test_what_a_function_lets_go_of_is_freed_at_once", "thing")
        assert found == {"thing": {"type": "Thing"}}

    thing = None
    assert ends() is None


def test_what_a_caller_lets_go_of_is_freed_at_once() -> None:
    kept = [Thing()]
    ends = weakref.ref(kept[0])

    def inner() -> dict[str, Any]:
        return asked("test_what_a_caller_lets_go_of_is_freed_at_once", "kept")

    assert inner() == {"kept": {"type": "list", "length": 1}}
    kept.clear()
    assert ends() is None


def test_the_dict_of_a_program_that_calls_locals_stays_as_it_is() -> None:
    step = 1
    mine = locals()
    step = 2

    found = asked("test_the_dict_of_a_program_that_calls_locals_stays_as_it_is", "step")

    assert found == {"step": {"type": "int", "number": step}}
    assert mine["step"] == 1


def test_after_a_read_locals_has_all_variables() -> None:
    step, name = 1, "a"

    assert asked("test_after_a_read_locals_has_all_variables", "step")
    again = locals()

    assert (again["step"], again["name"]) == (step, name)


def test_a_debugger_that_begins_after_a_read_changes_no_variable() -> None:
    def trace(frame: Any, event: str, arg: Any) -> Any:
        return trace

    step = 5
    assert asked("test_a_debugger_that_begins_after_a_read_changes_no_variable", "step")
    step = 6
    before: Any = sys.gettrace()
    own = sys._getframe()
    sys.settrace(trace)
    own.f_trace = trace
    try:
        later = step
        assert asked("test_a_debugger_that_begins_after_a_read_changes_no_variable", "step") == {
            "step": {"type": "int", "number": 6}
        }
    finally:
        sys.settrace(before)
        own.f_trace = before

    assert (step, later) == (6, 6)


def test_variables_of_closures_are_read() -> None:
    step = 3

    def inner(rows: list[int]) -> dict[str, Any]:
        def innermost() -> int:
            return len(rows) + step

        assert innermost() == 5
        return asked("inner", "rows", "step", "innermost")

    assert inner([1, 2]) == {
        "rows": {"type": "list", "length": 2},
        "step": {"type": "int", "number": step},
        "innermost": {"type": "function"},
    }


def test_without_ctypes_only_global_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    step = 3
    monkeypatch.delitem(sys.modules, "ctypes")

    found = asked("test_without_ctypes_only_global_variables_are_read", "step", "STEP")

    assert found.keys() == ({"STEP", "step"} if sys.version_info >= (3, 13) else {"STEP"})
    assert step == 3


def test_a_module_keeps_its_variables() -> None:
    space: dict[str, Any] = {"ask": lambda: asked("<module>", "step", "self_made.step")}
    text = "step = 7\nself_made = type('Made', (), {})()\nself_made.step = 8\nfound = ask()\n"

    exec(compile(text, __file__, "exec"), space)

    assert space["found"] == {
        "step": {"type": "int", "number": 7},
        "self_made.step": {"type": "int", "number": 8},
    }
    assert space["step"] == 7


def test_another_function_than_asked_for_is_not_read() -> None:
    step = 1
    assert asked("some_other_function", "step") == {}
    assert asked("test_another_function_than_asked_for_is_not_read", "step", tid=1) == {}
    assert step == 1


def test_while_functions_come_and_go_no_destructor_runs_on_the_reading_thread() -> None:
    freed_on: set[int] = set()
    until = threading.Event()

    class Noted:
        def __del__(self) -> None:
            freed_on.add(threading.get_ident())

    def work(depth: int) -> int:
        thing = Noted()
        if depth:
            return work(depth - 1)
        time.sleep(0.002)  # in which the other thread reads
        return id(thing)

    def run() -> None:
        while not until.is_set():
            work(5)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    tids = [thread.native_id for thread in threads]
    own: list[int] = []
    shown = []

    def read() -> None:
        own.append(threading.get_ident())
        for _ in range(300):
            wanted = [[tid, __file__, "work", ["thing", "depth"]] for tid in tids]
            shown.append(values.read(wanted))

    elsewhere(read)
    until.set()
    for thread in threads:
        thread.join()

    assert own[0] not in freed_on
    assert any('Noted"' in each for each in shown)


class Registry:
    handlers: dict[int, int] = {}  # noqa: RUF012  # it is for all objects


entries: list[int] = []
hostile = Hostile()


class Lazy(ModuleType):
    """A module that loads something when it is asked for an attribute."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)


def of_module(file: str, *names: str) -> Any:
    wanted = [[0, file, "<module>", list(names)]]
    return json.loads(elsewhere(lambda: values.read(wanted)))


def test_global_variables_and_attributes_of_classes_are_read() -> None:
    names = ("entries", "Registry.handlers", "hostile", "hostile.state", "absent", "Unequal.x")
    entries.extend(range(3))
    Registry.handlers[1] = 1
    try:
        (found,) = of_module(__file__, *names)
    finally:
        entries.clear()
        Registry.handlers.clear()

    assert found == {
        "frame": 0,
        "line": 0,
        "values": {
            "entries": {"type": "list", "length": 3},
            "Registry.handlers": {"type": "dict", "length": 1},
            "hostile": {"type": "Hostile"},
        },
    }


def test_a_module_is_found_by_its_file_and_none_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = Lazy("lazy")
    ModuleType.__getattribute__(lazy, "__dict__")["__file__"] = "/app/lazy.py"
    ModuleType.__getattribute__(lazy, "__dict__")["rows"] = [1]
    package = ModuleType("one.two")
    package.__dict__.update(__file__="/app/one/two/__init__.py", rows=[1, 2])
    monkeypatch.setitem(sys.modules, "lazy", lazy)
    monkeypatch.setitem(sys.modules, "one.two", package)
    monkeypatch.setitem(sys.modules, "odd", hostile)

    def rows(file: str) -> Any:
        found = of_module(file, "rows")
        return found[0]["values"]["rows"]["length"] if found else None

    assert rows("/app/lazy.py") == 1
    assert rows("/app/one/two/__init__.py") == 2
    assert rows("/app/other/lazy.py") is None
    assert rows("/app/odd.py") is None
    assert rows("/app/missing.py") is None


class Key(str):
    """A name that may not be compared."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise AssertionError

    __hash__ = str.__hash__


def test_names_of_a_module_or_a_class_that_derive_from_str_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("keyed")
    module.__dict__.update({"__file__": "/app/keyed.py", "Holder": Registry})
    module.__dict__[Key("rows")] = [1]
    monkeypatch.setitem(sys.modules, "keyed", module)
    holder = type("Holder", (), {Key("rows"): [1]})
    plain = ModuleType("plain")
    plain.__dict__.update(__file__="/app/plain.py", Holder=holder)
    monkeypatch.setitem(sys.modules, "plain", plain)

    assert of_module("/app/keyed.py", "rows") == []
    assert of_module("/app/plain.py", "Holder.rows") == []


def test_a_request_has_bounds() -> None:
    rows = list(range(40))
    names = [f"rows{number}" for number in range(16)] + ["rows"]

    assert asked("test_a_request_has_bounds", *names) == {}
    wanted = [[0, "", "", []]] * 8 + [[threading.get_native_id(), __file__, "test", ["rows"]]]
    assert json.loads(elsewhere(lambda: values.read(wanted))) == []
    assert rows


def test_loading_it_and_reading_start_no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mpwatch.hook.checks.values")
    function = "test_loading_it_and_reading_start_no_collection"
    seen: list[int] = []

    def note(phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            seen.append(threading.get_ident())

    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    gc.collect()
    gc.callbacks.append(note)
    step, rows = 1, [1]
    kept: list[Thing] = []
    own: list[int] = []
    wanted = [[threading.get_native_id(), __file__, function, ["step", "rows", "own"]]]
    one_call.reserve.fill()

    def read() -> str:
        own.append(threading.get_ident())
        while gc.get_count()[0] < 560:
            kept.append(Thing())
        found: str = checks.load_on_hook_thread("values").read(wanted)
        return found

    try:
        found = elsewhere(read)
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
        checks.unload("values")

    assert len(json.loads(found)[0]["values"]) == 3, (step, rows)
    assert kept
    assert own[0] not in seen
