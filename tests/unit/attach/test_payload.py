"""The payload and the bootstrap code that loads it, run in the process of the tests."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import marshal
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mpwatch.attach.outcomes import PayloadAnswer
from mpwatch.attach.payload import compiled_payload, program

STOWAWAY = """
reason = ""
def load(directory, started_by, compiled=None, version=None):
    global reason
    {body}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "exchange"
    folder.mkdir(mode=0o700)
    return folder


SESSION: Any = types.SimpleNamespace(
    patcher=types.SimpleNamespace(left={}),
    server=types.SimpleNamespace(path=None),
    problems=(),
)


def run(folder: Path, body: str, *, is_wanted: bool = True) -> dict[str, Any]:
    """Run the payload with this loader; its answer."""
    source = STOWAWAY.format(body=body).encode()
    contents = {
        "magic": b"",
        "action": "load",
        "hook_directory": "/hook",
        "version": "1.2",
        "modules": {"lifecycle.path_loader": ("/hook/lifecycle/path_loader.py", False, source)},
    }
    (folder / "result").unlink(missing_ok=True)
    if is_wanted:
        (folder / "payload").touch()
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        program.run(fd, contents)
    finally:
        os.close(fd)
    answer: dict[str, Any] = json.loads((folder / "result").read_bytes())
    return answer


PACKAGE = (
    "import types; return types.SimpleNamespace(current=lambda: None, version=lambda: version)"
)


def test_success_is_answered(folder: Path) -> None:
    assert run(folder, PACKAGE)["state"] == "loaded"


def test_a_hook_that_refuses_is_answered_with_its_reason(folder: Path) -> None:
    answer = run(folder, "reason = 'no room'; return None")
    assert answer == {"state": "failed", "reason": "no room"}


@pytest.mark.parametrize("error", ["OSError('disk full')", "SystemExit('disk full')"])
def test_an_error_is_answered_in_one_sentence_and_never_raised(folder: Path, error: str) -> None:
    answer = run(folder, f"raise {error}")
    assert answer["state"] == "failed"
    assert answer["reason"].endswith("disk full")


@pytest.mark.parametrize(
    "text",
    ["plain", 'q"\\', "line\nnext\x00", "\x1b[31m", "ü€", "\U0001f600", "\udcff", "x" * 9999],
)
def test_an_answer_is_bounded_json_whatever_its_texts_are(text: str) -> None:
    raw = program.as_json({"state": "failed", "reason": text})
    assert len(raw) < 7000
    assert raw.isascii()
    found = json.loads(raw)["reason"]
    assert len(found) == min(len(text), 1000)
    if text.isprintable() and len(text) < 1000 and max(text) < "\U00010000":
        assert found == text


@pytest.mark.parametrize("was_attached", [False, True])
def test_an_injection_that_is_called_off_meanwhile_unloads_the_hook_that_it_has_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, was_attached: bool
) -> None:
    package = types.SimpleNamespace(session=SESSION if was_attached else None, version=str)
    package.current = lambda: package.session
    package.uninstrument = lambda: not vars(package).update(session=None)
    monkeypatch.setitem(sys.modules, "_mpwatch_hook", package)
    monkeypatch.setattr(SESSION, "package", package, raising=False)
    monkeypatch.setitem(sys.modules, "its_session", SESSION)
    body = (
        f"import os, its_session; os.unlink({str(folder / 'payload')!r});"
        " its_session.package.session = its_session; return its_session.package"
    )
    answer = run(folder, body)
    assert answer == {"state": "failed", "reason": "it was called off"}
    assert package.session is (SESSION if was_attached else None)


def test_an_injection_that_was_called_off_before_loads_nothing(folder: Path) -> None:
    answer = run(folder, "raise ValueError('it was loaded')", is_wanted=False)
    assert answer == {"state": "failed", "reason": "it was called off"}


def test_where_no_procfs_tells_of_a_frozen_disk_the_answer_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_no_link(path: str) -> str:
        raise FileNotFoundError(path)

    package = types.ModuleType("_mpwatch_hook")
    vars(package)["current"] = lambda: SESSION
    runtime_dir = types.ModuleType("_mpwatch_hook.transport.runtime_dir")
    vars(runtime_dir)["is_frozen"] = lambda *_: True
    for module in (package, runtime_dir):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("posix.readlink", read_no_link)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        program.answer(fd, {"state": "loaded"})
    finally:
        os.close(fd)

    assert json.loads((folder / "result").read_text()) == {"state": "loaded"}


@pytest.mark.parametrize("is_frozen", [False, True])
def test_no_answer_is_written_to_a_frozen_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_frozen: bool
) -> None:
    """A process with a thread that waits for such a disk does not end, not even by SIGKILL."""
    asked: list[tuple[object, ...]] = []

    def is_the_disk_frozen(*about: object) -> bool:
        asked.append(about)
        return is_frozen

    session = types.SimpleNamespace(system="system", identity=types.SimpleNamespace(stem="5-7"))
    package = types.ModuleType("_mpwatch_hook")
    vars(package).update(current=lambda: session)
    runtime_dir = types.ModuleType("runtime_dir")
    vars(runtime_dir).update(is_frozen=is_the_disk_frozen)
    monkeypatch.setitem(sys.modules, "_mpwatch_hook", package)
    monkeypatch.setitem(sys.modules, "_mpwatch_hook.transport.runtime_dir", runtime_dir)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        program.answer(fd, {"state": "loaded"})
    finally:
        os.close(fd)

    assert asked == [("system", str(folder.parent), "5-7")]
    assert [path.name for path in folder.iterdir()] == ([] if is_frozen else ["result"])


@pytest.mark.parametrize("body", [PACKAGE, "raise OSError('disk full')"])
def test_the_end_of_the_program_waits_for_no_injection_that_is_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    at_exit: list[Callable[[], object]] = []
    atexit = types.SimpleNamespace(
        register=lambda call, *arguments: at_exit.append(lambda: call(*arguments)),
        unregister=lambda _call: at_exit.clear(),
    )
    package = types.SimpleNamespace(current=lambda: None)
    monkeypatch.setitem(sys.modules, "atexit", atexit)
    monkeypatch.setitem(sys.modules, "_mpwatch_hook", package)

    run(folder, body)

    (wait,) = at_exit
    assert wait() is True, "it has waited in vain"


def test_while_it_runs_no_other_thread_can_fork(folder: Path) -> None:
    body = "import _imp, sys; sys.lock_was_held = _imp.lock_held(); " + PACKAGE
    run(folder, body)
    assert sys.lock_was_held  # type: ignore[attr-defined]
    del sys.lock_was_held  # type: ignore[attr-defined]
    done = threading.Event()

    def fork() -> None:
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        done.set()

    threading.Thread(target=fork).start()
    assert done.wait(20)


def test_an_import_lock_that_is_held_is_not_waited_for(folder: Path) -> None:
    import _imp

    _imp.acquire_lock()
    try:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(run, folder, PACKAGE).result(20)
    finally:
        _imp.release_lock()
    assert answer == {"state": program.LATER}


# A module that calls a function while it is imported, in the importing thread or in another.
LOOKS = "import gc, seen\nseen.answers.append(seen.ask())\n"


@pytest.fixture
def importing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, Callable[[], object]], object]]:
    """Import a module of this name; the answer given while it was half imported."""
    (tmp_path / "modules").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    seen: Any = types.ModuleType("seen")
    monkeypatch.setitem(sys.modules, "seen", seen)
    names = []

    def importing(name: str, ask: Callable[[], object]) -> object:
        seen.answers, seen.ask = [], ask
        (tmp_path / "modules" / f"{name}.py").write_text(LOOKS)
        sys.modules.pop(name, None)
        names.append(name)
        importlib.import_module(name)
        return seen.answers[0]

    yield importing
    for name in names:
        sys.modules.pop(name, None)


def on_another_thread(ask: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask).result()


Importing = Callable[[str, Callable[[], object]], object]


def test_a_program_that_is_importing_is_tried_again_later(
    folder: Path, importing: Importing
) -> None:
    assert importing("zipapp", lambda: run(folder, PACKAGE)) == {"state": program.LATER}
    assert run(folder, PACKAGE)["state"] == "loaded"


@pytest.mark.parametrize(("name", "is_so"), [("zipapp", True), ("their_package", False)])
def test_a_half_imported_module_counts_if_it_is_of_the_standard_library(
    importing: Importing, name: str, is_so: bool
) -> None:
    assert importing(name, program.is_importing) is is_so
    assert importing(name, lambda: on_another_thread(program.is_importing)) is is_so
    assert not program.is_importing()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_no_garbage_is_collected_during_the_load_and_collection_is_as_before_afterwards(
    folder: Path, is_enabled: bool
) -> None:
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        generations.append(info["generation"])

    gc.callbacks.append(note)
    try:
        if not is_enabled:
            gc.disable()
        answer = run(folder, "global seen; seen = [[] for _ in range(100_000)]; " + PACKAGE)
        assert gc.isenabled() is is_enabled
    finally:
        gc.enable()
        gc.callbacks.remove(note)
    assert answer["state"] == "loaded"
    assert (
        len(generations) <= 2 * 3
    )  # the postponed collection happens once, and not for each 700 objects


def piece(**changes: Any) -> bytes:
    """A payload file whose program notes that it ran, and from what."""
    note = (
        "import posix; posix.close(posix.open(%r, posix.O_CREAT | posix.O_WRONLY, dir_fd=folder))"
    )
    contents = {
        "text": note % "text",
        "code": marshal.dumps(compile(note % "compiled", "x", "exec")),
        "magic": importlib.util.MAGIC_NUMBER,
        **changes,
    }
    return marshal.dumps(contents, 2)


def bootstrap(folder: Path, pid: int = 0) -> set[str]:
    """Run the bootstrap code as a new thread would; the names that are new in the directory."""
    before = set(os.listdir(folder))
    names: dict[str, object] = {}
    try:
        exec(compiled_payload.bootstrap_text(str(folder), pid or os.getpid()), names)
    except OSError:
        assert os.listdir("/proc/self/fd")
    return set(os.listdir(folder)) - before


def test_the_bootstrap_code_runs_the_program_as_compiled_or_else_its_source(folder: Path) -> None:
    (folder / "payload").write_bytes(piece())
    (folder / "payload").chmod(0o600)
    assert bootstrap(folder) == {"compiled"}
    (folder / "payload").write_bytes(piece(magic=b"other"))
    assert bootstrap(folder) == {"text"}


def test_a_forked_child_does_not_run_an_inherited_call(folder: Path) -> None:
    (folder / "payload").write_bytes(piece())
    (folder / "payload").chmod(0o600)
    assert bootstrap(folder, pid=os.getpid() + 1) == set()


@pytest.mark.parametrize("what", ["folder", "file", "group", "link", "linked folder", "fifo"])
def test_the_bootstrap_code_runs_nothing_that_others_could_have_put_there(
    folder: Path, tmp_path: Path, what: str
) -> None:
    good = folder / "payload"
    good.write_bytes(piece())
    good.chmod(0o600)
    named = folder
    if what == "folder":
        folder.chmod(0o701)
    elif what == "file":
        good.chmod(0o602)
    elif what == "group":
        good.chmod(0o640)
    elif what == "link":
        good.rename(tmp_path / "elsewhere")
        good.symlink_to(tmp_path / "elsewhere")
    elif what == "linked folder":
        named = tmp_path / "link"
        named.symlink_to(folder)
    else:
        good.unlink()
        os.mkfifo(good, 0o600)
    assert bootstrap(named) == set()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("what", ["folder", "file"])
def test_the_bootstrap_code_runs_nothing_of_another_user(folder: Path, what: str) -> None:
    (folder / "payload").write_bytes(piece())
    (folder / "payload").chmod(0o600)
    os.chown(folder if what == "folder" else folder / "payload", 1002, 1002)
    assert bootstrap(folder) == set()


@pytest.mark.parametrize(("count", "told"), [(0, 0), (2, 2), (30, 19)])
def test_what_could_not_be_undone_is_answered_as_far_as_there_is_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch, count: int, told: int
) -> None:
    left = {
        f"module.function{number:02}": "another library has replaced it" for number in range(count)
    }
    session = types.SimpleNamespace(
        patcher=types.SimpleNamespace(left=left),
        server=types.SimpleNamespace(path=None),
        problems=(),
    )
    package = types.SimpleNamespace(
        current=lambda: session, uninstrument=lambda: True, version=lambda: "1.2"
    )
    monkeypatch.setitem(sys.modules, "_mpwatch_hook", package)

    found = PayloadAnswer.parse(program.as_json(program.unload()))

    assert found.is_success
    assert list(found.left[:told]) == [f"{name}: {why}" for name, why in list(left.items())[:told]]
    assert found.left[told:] == ((f"and {count - told} more",) if told < count else ())
