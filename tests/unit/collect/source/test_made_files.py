"""Statements that make files with a name that the program writes out."""

from __future__ import annotations

import ast

import pytest

from mpwatch.collect.source.growth.made_files import made_files
from mpwatch.collect.source.syntax import ParsedFile


def about(*lines: str) -> list[str]:
    text = "def stage(page, folder, n):\n" + "".join(f"    {each}\n" for each in lines)
    module = ParsedFile(tuple(text.splitlines()), ast.parse(text))
    return [each.about for each in made_files("/home/me/stage.py", module)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("path = tempfile.mkdtemp(prefix='clips_')",), "clips_*; none"),
        (("path = tempfile.mkdtemp()",), "tmp*; none"),
        (("out = NamedTemporaryFile(suffix='.wav', delete=False)",), "tmp*.wav; none"),
        (("with open(f'{folder}/part-{n}.bin', 'wb') as out:", "    out.write(page)"), None),
        (("path = os.path.join(folder, f'part-{n}.bin')", "np.save(path, page)"), None),
        (("path = folder / f'part-{n}.bin'", "path.write_bytes(page)"), None),
        (("torch.save(page, f'part-{n}.bin')",), None),
        (("os.makedirs(f'{folder}/run-{n}')",), "run-*; none"),
        (
            ("path = mkdtemp(prefix='a_')", "if n > 3:", "    shutil.rmtree(path)"),
            "a_*; if n > 3: in line 3",
        ),
        (("path = mkdtemp(prefix='a_')", "shutil.rmtree(path)"), "a_*; "),
        (("path = mkdtemp(prefix='a_')", "known.remove(n)"), "a_*; "),
        (("path = mkdtemp(prefix='a_')", "atexit.register(shutil.rmtree, path)"), "a_*; "),
        (("path = mkdtemp(prefix='a_')", "if n:", "    run(['rm', path])"), "a_*; "),
        (("path = mkdtemp(prefix='a_')", "if exists(path):", "    rmtree(path)"), "a_*; "),
        (("np.save(f'part-{n}.bin', page)", "keep_last(folder, n)"), "part-*.bin; "),
        (("np.save(f'part-{n}.bin', page)", "pages.trim_to(n)"), "part-*.bin; "),
        (
            ("with TemporaryDirectory() as at:", "    np.save(f'{at}/part-{n}.bin', page)"),
            "part-*.bin; ",
        ),
    ],
)
def test_the_name_and_what_removes_it(lines: tuple[str, ...], expected: str | None) -> None:
    assert about(*lines) == [expected or "part-*.bin; none"]


@pytest.mark.parametrize(
    "line",
    [
        "out = NamedTemporaryFile(suffix='.wav')",
        "page = open(f'part-{n}.bin').read()",
        "np.save(page, page)",
        "image = Image.open('part.bin', 'w')",
        "model.save()",
    ],
)
def test_what_makes_no_file_of_a_known_name(line: str) -> None:
    assert about(line) == []
