from __future__ import annotations

import importlib
import sys
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

import pytest

from mpwatch.hook.context import Context
from mpwatch.hook.lifecycle.patcher import Patcher, Point, attribute
from mpwatch.hook.session import Session

NAME = "mpwatch_test_of_patching"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType(NAME)
    module.work = lambda: "done"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, NAME, module)
    return module


def wrap(original: Any, session: Context) -> Any:
    return lambda: f"wrapped {original()}"


def install(session: Session, *points: Point) -> Patcher:
    session.patcher.install(points)
    return session.patcher


def fail(module: ModuleType, session: Context) -> Any:
    raise TypeError("kept elsewhere")


def test_a_hook_point_that_a_module_lacks_is_missing_with_its_reason_and_no_other(
    module: ModuleType, session: Session
) -> None:
    patcher = install(
        session,
        Point("gone", NAME, attribute("Class.method", wrap)),
        Point("changed", NAME, fail),
        Point("work", NAME, attribute("work", wrap)),
    )

    assert patcher.installed() == ["work"]
    assert module.work() == "wrapped done"
    assert patcher.missing == {
        "gone": f"AttributeError: module '{NAME}' has no attribute 'Class'",
        "changed": "TypeError: kept elsewhere",
    }


def test_an_inherited_attribute_is_not_restored_as_the_classes_own(
    module: ModuleType, session: Session
) -> None:
    module.Class = type("Class", (dict,), {})  # type: ignore[attr-defined]

    patcher = install(session, Point("get", NAME, attribute("Class.get", wrap)))

    assert patcher.missing == {"get": f"LookupError: {NAME} has no Class.get"}


def test_the_original_object_is_restored(module: ModuleType, session: Session) -> None:
    original = module.work
    patcher = install(session, Point("work", NAME, attribute("work", wrap)))

    patcher.uninstall()

    assert module.work is original
    assert patcher.installed() == []


def test_a_wrapper_over_ours_stays_and_ours_only_calls_the_original(
    module: ModuleType, session: Session
) -> None:
    patcher = install(session, Point("work", NAME, attribute("work", wrap)))
    ours = module.work

    def theirs() -> str:
        return f"theirs {ours()}"

    module.work = theirs  # type: ignore[attr-defined]
    patcher.uninstall()

    assert module.work is theirs
    assert theirs() == "theirs done"
    assert ours() == "done"
    assert list(patcher.left) == [f"{NAME}.work"]
    assert "only calls the original" in patcher.left[f"{NAME}.work"]


def test_a_module_that_is_being_imported_while_the_points_are_removed_is_found(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import system iterates over `sys.meta_path` without a copy (CPython before 3.14)."""
    patcher = install(session, Point("later", "mpwatch_test_of_later", fail))

    class Detach:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            patcher.uninstall()  # as another thread does between two finders

    place = sys.meta_path.index(PathFinder)
    finders = [*sys.meta_path[:place], Detach(), *sys.meta_path[place:]]
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.delitem(sys.modules, "zipapp", raising=False)

    assert importlib.import_module("zipapp").__name__ == "zipapp"
    assert len(sys.meta_path) == len(finders) - 1


def test_an_exception_that_the_program_raised_meanwhile_is_not_swallowed(
    module: ModuleType, session: Session
) -> None:
    def interrupted(module: ModuleType, session: Context) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install(session, Point("work", NAME, interrupted))
