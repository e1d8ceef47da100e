"""PYTHONPATH as `mpwatch run` sets it, and as it is restored for the program."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mpwatch.hook.startup import sitecustomize

FOLDER = sitecustomize.DIRECTORY


@pytest.mark.parametrize("value", [None, "", "/a", "/a:/b", ":/a", "/a:", "::", FOLDER + "more"])
def test_variables_that_the_program_had_set_are_restored(value: str | None) -> None:
    added = sitecustomize.added(value)

    assert added.split(":")[0].startswith(FOLDER)
    assert sitecustomize.without(added) == value
    assert sitecustomize.added(added) == added


@pytest.mark.parametrize("value", [None, "", "/a", "/a:/b"])
@pytest.mark.parametrize("edit", ["/x:{}", "{}:/x", "/x:{}:/y"])
def test_entries_that_a_script_has_added_since_stay(value: str | None, edit: str) -> None:
    edited = edit.format(sitecustomize.added(value))

    assert sitecustomize.without(edited) == edit.format(value or "")


def test_a_value_without_the_folder_is_left_alone() -> None:
    assert sitecustomize.without(None) is None
    assert sitecustomize.without("/a::/b") == "/a::/b"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["train.py"], True),
        (["-m", "torch.distributed.run", "train.py"], True),
        (["-u", "train.py", "mpwatch"], True),
        (["-m", "mpwatch", "dump", "1"], False),
        (["/venv/bin/mpwatch", "run", "x"], False),
        (["-c", "from multiprocessing.spawn import spawn_main; spawn_main()"], False),
        (["-s", "-c", "from multiprocessing.resource_tracker import main;main(3)"], False),
        (["-c", "from joblib.externals.loky.backend.resource_tracker import main; main(4)"], False),
        (["-c", "from multiprocess.spawn import spawn_main; spawn_main()"], True),
        (["/x/torch/_inductor/compile_worker/__main__.py", "--kind=fork"], False),
        (["-m", "joblib.externals.loky.backend.popen_loky_posix"], True),
        ([], True),
    ],
)
def test_helpers_and_mpwatch_itself_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, words: list[str], wanted: bool
) -> None:
    monkeypatch.setattr("sys.orig_argv", ["python", *words])

    assert sitecustomize.wants_hook() is wanted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sys.implementation", SimpleNamespace(name="pypy")),
        ("sys.version_info", (3, 9, 20, "final", 0)),
        ("sys.version_info", (4, 0, 0, "final", 0)),
        ("os.path.realpath", lambda _path: "/usr/bin/uwsgi"),
    ],
    ids=["another implementation", "an old version", "a version to come", "an embedding program"],
)
def test_interpreters_that_the_hook_does_not_know_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr("sys.orig_argv", ["python", "train.py"])
    assert sitecustomize.wants_hook()
    with monkeypatch.context() as changed:
        changed.setattr(name, value)
        is_wanted = sitecustomize.wants_hook()

    assert not is_wanted
