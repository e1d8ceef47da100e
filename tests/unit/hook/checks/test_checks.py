from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

# Loads each check in a program with the hook, and prints which modules were loaded and files
# opened.
LOAD = """
import _thread, sys, time, mpwatch
assert mpwatch.instrument()
from mpwatch.hook import checks, current
while current().wrapper_ns is None:  # the thread of the hook measures it with one of the checks
    time.sleep(0.01)
seen, own = [], _thread.get_ident()
def hear(event, args):
    if event in ("open", "import") and _thread.get_ident() == own:
        seen.append((event, args[0]))
before = set(sys.modules)
finders = list(sys.meta_path)
sys.path_importer_cache.clear()
sys.path[:] = []
sys.addaudithook(hear)
made = {name: checks.load(name) for name in checks.NAMES}
again = {name: checks.load(name) for name in checks.NAMES}
for unloaded_once_used in ("late_attach_scan", "overhead"):
    del made[unloaded_once_used], again[unloaded_once_used]
print(seen, set(sys.modules) - before, made == again, finders == sys.meta_path)
made = list(made.values())
print(made[0].__name__, made[0].__doc__, made[0].__file__.endswith("/checks/cuda_allocator.py"))
"""


def test_checks_are_loaded_without_a_file_or_an_import() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOAD], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    assert first == "[] set() True True"
    assert second == "mpwatch.hook.checks.cuda_allocator None True"


def test_what_strips_a_module_is_freed_with_all_that_it_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mpwatch.hook import checks

    stripping = checks.module_of("strip_docs")
    monkeypatch.setattr(checks, "module_of", lambda _: stripping)

    checks.strip(ModuleType("lean"))

    assert vars(stripping) == {}


def test_the_functions_of_a_check_have_no_annotations(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpwatch.hook import checks

    monkeypatch.delitem(sys.modules, "mpwatch.hook.checks.errno_location", raising=False)
    checks.unload("errno_location")

    assert checks.load("errno_location").find.__annotations__ == {}


def test_a_check_that_was_unloaded_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpwatch.hook import checks

    monkeypatch.delitem(sys.modules, "mpwatch.hook.checks.overhead", raising=False)
    first = checks.load("overhead")

    checks.unload("overhead")

    assert vars(first) == {}
    second = checks.load("overhead")
    assert second is not first
    assert callable(second.wrapper_ns)
    checks.unload("overhead")


COUNT = """
import gc, time, mpwatch
assert mpwatch.instrument()
from mpwatch.hook import checks, current
from mpwatch.hook.safe import one_call
while current().wrapper_ns is None:
    time.sleep(0.01)
gc.set_threshold(1_000_000)
for name in checks.NAMES:
    gc.collect()
    before = gc.get_count()[0]
    checks._execute(name)
    print(name, gc.get_count()[0] - before)
print(checks.OBJECTS, one_call.RESERVE)
"""


def test_loading_a_check_makes_no_more_objects_than_the_reserve_frees() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stderr == ""
    *loaded, last = (line.split() for line in done.stdout.splitlines())
    most = max(int(count) for _, count in loaded)
    assert 100 < most <= int(last[0]) <= int(last[1])
