from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import mpwatch.hook

HOOK = Path(mpwatch.hook.__file__).parent
STRIKE = "import signal; signal.raise_signal(signal.SIGUSR1)"


def die(number: int, frame: FrameType | None) -> None:
    raise RuntimeError("a worker died")


@pytest.fixture
def path_loader(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.delitem(sys.modules, "mpwatch.hook")
    namespace: dict[str, Any] = {"__name__": "aboard"}
    exec(
        compile((HOOK / "lifecycle" / "path_loader.py").read_text(), "path_loader.py", "exec"),
        namespace,
    )
    name = namespace["RENDEZVOUS"] = "_mpwatch_hook_of_this_test"
    yield namespace
    sys.modules.pop(name, None)


def a_hook(folder: Path, code: str) -> str:
    (folder / "__init__.py").write_text(f"def enter(started_by, birth):\n    {code}\n")
    (folder / "safe").mkdir()
    for name in ("foreign_exceptions.py", "exact.py"):
        (folder / "safe" / name).write_text((HOOK / "safe" / name).read_text())
    return str(folder)


def test_a_hook_that_cannot_be_attached_gives_the_reason(
    path_loader: dict[str, Any], tmp_path: Path
) -> None:
    assert path_loader["load"](a_hook(tmp_path, "raise OSError('no room')"), "attach") is None
    assert path_loader["reason"] == "OSError: no room"


def test_an_exception_of_a_signal_handler_meanwhile_reaches_the_program(
    path_loader: dict[str, Any], tmp_path: Path
) -> None:
    before = signal.signal(signal.SIGUSR1, die)
    try:
        with pytest.raises(RuntimeError, match="a worker died"):
            path_loader["load"](a_hook(tmp_path, STRIKE), "attach")
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_directory_without_a_hook_is_a_reason(
    path_loader: dict[str, Any], tmp_path: Path
) -> None:
    assert path_loader["load"](str(tmp_path / "nothing"), "attach") is None
    assert path_loader["reason"].startswith("FileNotFoundError")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "hook"
    (folder / "points").mkdir(parents=True)
    for path in (folder / "__init__.py", folder / "points" / "queues.py"):
        path.write_text("")
    return folder


def test_a_package_that_only_its_user_can_change_is_trusted(
    path_loader: dict[str, Any], package: Path
) -> None:
    assert path_loader["untrusted"](str(package)) == ""
    assert path_loader["untrusted"](str(HOOK)) == ""


@pytest.mark.parametrize("where", ["", "points", "points/queues.py", "__init__.py", ".."])
def test_a_package_that_others_can_change_is_not_loaded_by_path(
    path_loader: dict[str, Any], package: Path, where: str
) -> None:
    place = (package / where).resolve()
    place.chmod(0o777)
    assert f"{place} can be changed by other users" in path_loader["untrusted"](str(package))
    assert path_loader["load"](str(package), "spawn") is None
    assert "can be changed by other users" in path_loader["reason"]
    place.chmod(0o1777)
    is_sticky_enough = place.is_dir()  # other users cannot rename files they do not own there
    assert (path_loader["untrusted"](str(package)) == "") is is_sticky_enough


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("where", ["", "points/queues.py", ".."])
def test_a_package_of_another_user_is_not_loaded_by_path(
    path_loader: dict[str, Any], package: Path, where: str
) -> None:
    place = (package / where).resolve()
    os.chown(place, 61002, 61002)
    assert path_loader["untrusted"](str(package)) == f"{place} belongs to user 61002"


def test_a_link_on_the_way_is_followed_and_its_target_checked(
    path_loader: dict[str, Any], package: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(package.parent)
    assert path_loader["untrusted"](f"{link}/hook") == ""
    package.chmod(0o777)
    assert "can be changed by other users" in path_loader["untrusted"](f"{link}/hook")
    assert "is not an absolute path" in path_loader["untrusted"]("hook")


def test_while_compiled_modules_are_loaded_no_finder_of_the_program_is_asked(
    path_loader: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Finder:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            asked.append(name)

    monkeypatch.delitem(sys.modules, "zipapp", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    finders = list(sys.meta_path)
    name = path_loader["RENDEZVOUS"]
    code = "import zipapp\ndef enter(started_by, birth): return zipapp\n"
    modules = {
        "": ("/x/__init__.py", True, code.encode()),
    }
    package = path_loader["load"]("/x", "attach", compiled=modules)
    assert package is not None, path_loader["reason"]
    assert package.__name__ == name
    assert asked == []
    assert sys.meta_path == finders


def test_a_thread_that_is_importing_meanwhile_asks_every_finder_of_the_program(
    path_loader: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import system iterates over `sys.meta_path` without a copy (CPython before 3.14)."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    finders = list(sys.meta_path)
    code = "import sys\nasked = iter(sys.meta_path)\nnext(asked)\ndef enter(*_): return True\n"
    package = path_loader["load"](
        "/x", "attach", compiled={"": ("/x/__init__.py", True, code.encode())}
    )

    assert package is not None, path_loader["reason"]
    assert list(package.asked) == finders
