"""What the documents for contributors say is so: paths, numbers, sizes of folders."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    ".github/CONTRIBUTING.md",
    ".github/SECURITY.md",
    "README.md",
    "mpwatch/README.md",
    "mpwatch/hook/README.md",
    "mpwatch/nodes/README.md",
    "screenshots/README.md",
    "tests/README.md",
    "tests/benchmarks/README.md",
)
NAMED = re.compile(r"`((?:mpwatch|tests|\.github|\.ci|screenshots)/[\w./-]+)`")
MODULE = re.compile(r"\b((?:mpwatch|tests)\.[a-z_.]*[a-z_])\b(?!\()")
LINKED = re.compile(r"\]\(([^)#:]+)(?:#([\w-]+))?\)")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_that_a_document_names_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    missing: list[object] = [path for path in NAMED.findall(text) if not (ROOT / path).exists()]
    folder = (ROOT / document).parent
    missing += [link for link in LINKED.findall(text) if not _is_there(folder, *link)]

    names = [name for name in MODULE.findall(text) if not name.endswith(".pyz")]  # built by hand
    missing += [name for name in names if not _is_module(name)]

    assert missing == []


def _is_there(folder: Path, path: str, heading: str) -> bool:
    """Whether a linked file exists, and has the heading that the link names, if it names one."""
    if not heading:
        return (folder / path).exists()
    titles = re.findall(r"^#+ (.+)$", (folder / path).read_text(), re.MULTILINE)
    return heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def _is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or path.is_dir()


def test_the_map_of_the_package_fits_one_screen_and_names_every_part() -> None:
    text = (ROOT / "mpwatch/README.md").read_text()
    parts = [path.parent.name for path in (ROOT / "mpwatch").glob("*/__init__.py")]

    assert len(text.splitlines()) <= 60
    assert [part for part in parts if f"`mpwatch/{part}/`" not in text] == []


def test_the_map_of_the_package_says_how_many_modules_there_are() -> None:
    text = (ROOT / "mpwatch/README.md").read_text()
    paths = [path for path in (ROOT / "mpwatch").rglob("*.py") if path.name != "__init__.py"]
    rules = [path for path in paths if "diagnose/rules" in path.as_posix()]
    programs = [path for path in paths if "demo/programs" in path.as_posix()]
    others = len(paths) - len(rules) - len(programs)

    told = re.findall(r"[Aa]bout (\d+) (modules|rules|programs)", text)

    counts = {"modules": others, "rules": len(rules), "programs": len(programs)}
    assert {what for _, what in told} == set(counts)
    for number, what in told:
        assert abs(int(number) - counts[what]) <= counts[what] / 10, (what, counts[what])


def test_no_folder_of_the_package_has_more_modules_than_its_map_says() -> None:
    text = (ROOT / "mpwatch/README.md").read_text()
    told = re.search(r"No folder has more than (\d+)", text)
    modules = [path for path in (ROOT / "mpwatch").rglob("*.py") if path.name != "__init__.py"]
    in_folders = Counter(path.parent.relative_to(ROOT).as_posix() for path in modules)
    del in_folders[
        "mpwatch/demo/programs"
    ]  # a program for each failure: its table is the catalogue

    assert told is not None
    assert {name: n for name, n in in_folders.items() if n > int(told[1])} == {}


def test_a_template_asks_for_what_a_bug_report_needs() -> None:
    template = (ROOT / ".github/ISSUE_TEMPLATE/bug_report.yml").read_text()

    for asked in ("mpwatch doctor", "--version", "mpwatch record"):
        assert asked in template
