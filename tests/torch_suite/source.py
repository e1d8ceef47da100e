"""The tests from Debian's source package; apt needs no configuration and no rights for that."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

FILES = ("test_multiprocessing.py", "test_multiprocessing_spawn.py", "test_dataloader.py")
"""Test files that import nothing from their folder."""
MIRROR = "http://deb.debian.org/debian"


def fetch(cache: Path, suite: str) -> Path:
    """The folder with the tests of one release, downloaded if they are not there yet."""
    folder = cache / suite
    if all((folder / name).exists() for name in FILES):
        return folder
    (folder / "lists/partial").mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").write_text(f"deb-src {MIRROR} {suite} main\n")
    _apt(folder, "update")
    _apt(folder, "source", "--download-only", "pytorch")
    (archive,) = folder.glob("pytorch_*.orig.tar.*")
    with tarfile.open(archive) as package:
        for member in package:
            path = Path(member.name)
            if path.parts[1:-1] == ("test",) and path.name in FILES:
                file = package.extractfile(member)
                assert file is not None
                (folder / path.name).write_bytes(file.read())
    return folder


def _apt(folder: Path, *arguments: str) -> None:
    """Run apt-get on lists of its own, for that one release."""
    settings = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder,
        # Where the clock or the mirror is late, an old list is as good: the files are hashed.
        "Acquire::Check-Valid-Until": "no",
    }
    options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    subprocess.run(["apt-get", "-q", *options, *arguments], cwd=folder, check=True, timeout=900)
