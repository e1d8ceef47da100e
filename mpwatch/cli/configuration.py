"""The user's configuration file: `$XDG_CONFIG_HOME/mpwatch/config.toml`.

    [attach]
    hook = "ask"      # or "always", "never"

    [values]
    read = true       # or false

The file controls injection into other processes, so it is refused if others can write it.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from mpwatch.cli.failures import Failure
from mpwatch.model.sanitize import clean

HookConsent: TypeAlias = Literal["ask", "always", "never"]

_ANSWERS = ("ask", "always", "never")
_LIMIT_BYTES = 1 << 16


class Configuration(Struct, frozen=True):
    """The settings in the file."""

    hook: HookConsent = "ask"
    """Whether `mpwatch attach` injects the hook."""
    values: bool = True
    """Whether values of names may be read in processes, where a finding asks for them."""


def default_path() -> str:
    """Path of the file; `$XDG_CONFIG_HOME` is used only if it is an absolute path."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    if not folder.startswith("/"):
        folder = os.path.expanduser("~/.config")
    return os.path.join(folder, "mpwatch", "config.toml")


def read_configuration(path: str | None = None) -> Configuration:
    """Read the file; without a file all settings have their defaults.

    Raises:
        Failure: The file is malformed, belongs to another user or is writable by others.
    """
    path = path or default_path()
    shown = clean(path)
    try:
        # O_NONBLOCK: opening a FIFO of that name must not block.
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return Configuration()
    except OSError as error:
        raise Failure(
            f"{shown} cannot be read: {error.strerror}.", f"ls -ld {shlex.quote(shown)}"
        ) from None
    try:
        _check(file, shown)
        raw = os.read(file, _LIMIT_BYTES + 1)
    except OSError as error:
        raise Failure(
            f"{shown} cannot be read: {error.strerror}.", f"ls -ld {shlex.quote(shown)}"
        ) from None
    finally:
        os.close(file)
    if len(raw) > _LIMIT_BYTES:
        raise Failure(f"{shown} is larger than {_LIMIT_BYTES} bytes.", _set_aside(shown))
    try:
        return _parsed(_document(raw.decode("utf-8")))
    except (ValueError, RecursionError) as error:  # TOML and UTF-8 errors are ValueErrors
        reason = clean(str(error), 300).rstrip(".")
        raise Failure(f"{shown} is malformed: {reason}.", _set_aside(shown)) from None


def _check(file: int, shown: str) -> None:
    """Refuse a file that another user could have written.

    Raises:
        Failure: Another user could.
    """
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        raise Failure(f"{shown} is not a regular file.", _set_aside(shown))
    if found.st_uid != os.geteuid():
        sentence = f"{shown} belongs to uid {found.st_uid} and not to uid {os.geteuid()}."
        raise Failure(sentence, f"chown {os.geteuid()} {shlex.quote(shown)}")
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise Failure(f"{shown} can be written by other users.", f"chmod go-w {shlex.quote(shown)}")


def _set_aside(shown: str) -> str:
    """The command after which the defaults apply."""
    return f"mv {shlex.quote(shown)} {shlex.quote(shown + '.old')}"


def _document(text: str) -> dict[str, object]:
    """The file as it is written; most users have none, and importing the reader takes 4 ms."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def _parsed(document: dict[str, object]) -> Configuration:
    """The values of the file.

    Raises:
        ValueError: A key or a value is unknown.
    """
    known = {"attach": "hook", "values": "read"}
    tables = {name: document.get(name, {}) for name in known}
    unknown = sorted(document.keys() - known.keys())
    for name, table in tables.items():
        if isinstance(table, dict):
            unknown += [f"{name}.{key}" for key in sorted(table.keys() - {known[name]})]
    if unknown:
        raise ValueError(f"there is no setting {unknown[0]!r}")
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(f"{name} is not a table")
    answer, values = (
        cast(dict[str, object], tables[name]).get(key, default)
        for (name, key), default in zip(known.items(), ("ask", True), strict=True)
    )
    if answer not in _ANSWERS:
        raise ValueError(f'attach.hook is {answer!r} and not "ask", "always" or "never"')
    if not isinstance(values, bool):
        raise ValueError(f"values.read is {values!r} and not true or false")
    return Configuration(cast(HookConsent, answer), values)
