"""The script, module or code that a Python command line runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

ProgramKind: TypeAlias = Literal["script", "module", "code", "none"]

_LONG_WITH_VALUE = "--check-hash-based-pycs"
_TAKES_VALUE = ("-X", "-W", _LONG_WITH_VALUE)
"""Options whose value may be the next word; source: `python --help-all`, CPython 3.15."""
_STARTERS = ("mpwatch/hook/run.py",)
"""Programs that run the program named in their next argument."""


_LAUNCHER_SCRIPTS = frozenset(
    ("torchrun", "deepspeed", "accelerate", "accelerate-launch", "torchx")
)
_LAUNCHER_MODULES = frozenset(
    ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
)
"""Programs that start ranks."""
_NODE_LAUNCHERS = frozenset(("deepspeed.launcher.launch", "deepspeed.launcher.runner"))
"""Modules that the script `deepspeed` starts in its turn."""
_HELPER_CODE = re.compile(r"from ([\w.]*\b(?:multiprocessing|multiprocess|loky)\.[\w.]+) import ")
_SUBCOMMANDS = ("launch", "run")
_SWITCHES = frozenset(
    (
        *("standalone", "no-python", "run-path", "multi-gpu", "cpu", "mps", "use-deepspeed"),
        *("use-fsdp", "use-megatron-lm", "same-network", "debug", "quiet", "no-local-rank"),
        *("force-multi", "save-pid", "enable-each-rank-log"),
    )
)
"""Options of launchers without a value, with hyphens; source: `--help` of torch 2.13,
accelerate 1.0 and deepspeed 0.15."""


class PythonProgram(NamedTuple):
    """The program of a Python command line."""

    kind: ProgramKind
    text: str
    """Path of the script, name of the module, or the code itself; empty if there is none."""

    @property
    def name(self) -> str:
        """Short name: `train.py`, `-m pkg.train`, `-c`; empty if there is none."""
        if self.kind == "script":
            return os.path.basename(self.text)
        if self.kind == "module":
            return f"-m {self.text}"
        return "-c" if self.kind == "code" else ""


def python_program(cmdline: Sequence[str]) -> PythonProgram:
    """The program of a command line whose first word is an interpreter."""
    index = 1
    while index < len(cmdline):
        word = cmdline[index]
        if word in _TAKES_VALUE:
            index += 2
        elif word.startswith("--"):
            index += 1
        elif word.startswith("-") and word != "-":
            kind, value = _short_options(word)
            if kind != "none":
                rest = cmdline[index + 1] if index + 1 < len(cmdline) else ""
                return PythonProgram(kind, value or rest)
            index += 1
        elif word.endswith(_STARTERS):
            return python_program(cmdline[index:])
        else:
            return PythonProgram("script", word)
    return PythonProgram("none", "")


def job_program(cmdline: Sequence[str]) -> PythonProgram:
    """The program that the user wrote: below a launcher, the one that its ranks run."""
    program, words = python_program(cmdline), _words_of_launcher(cmdline)
    found = _launched(words) if words is not None else None
    return program if found is None else found[0]


def job_words(cmdline: Sequence[str]) -> str:
    """A command line for a narrow column: the program that the user wrote comes first.

    `train.py --lr 0.1, by torchrun`; a process of multiprocessing has the name of its module.
    """
    helper = _HELPER_CODE.match(python_program(cmdline).text.lstrip())
    if helper is not None:
        return helper.group(1)
    words = _words_of_launcher(cmdline)
    found = _launched(words) if words is not None else None
    if found is None:
        return command_words(cmdline)
    program, arguments = found
    launcher = python_program(cmdline)
    name = launcher.text
    if os.path.basename(cmdline[0]) in _LAUNCHER_SCRIPTS:
        name = cmdline[0]
    return f"{' '.join((program.name, *arguments))}, by {os.path.basename(name)}"


def is_launcher(cmdline: Sequence[str]) -> bool:
    """Whether this starts ranks: torchrun, torch.distributed.run, deepspeed, accelerate."""
    if cmdline and os.path.basename(cmdline[0]) in _LAUNCHER_SCRIPTS:
        return True
    program = python_program(cmdline)
    if program.kind == "module":
        return program.text in _LAUNCHER_MODULES
    return program.kind == "script" and os.path.basename(program.text) in _LAUNCHER_SCRIPTS


def _words_of_launcher(cmdline: Sequence[str]) -> Sequence[str] | None:
    """What follows the name of a launcher; `None` if it is another program."""
    if cmdline and os.path.basename(cmdline[0]) in _LAUNCHER_SCRIPTS:
        return cmdline[1:]
    program = python_program(cmdline)
    is_of_node = program.kind == "module" and program.text in _NODE_LAUNCHERS
    if not (is_of_node or is_launcher(cmdline)):
        return None
    at = next(n for n, word in enumerate(cmdline) if word.endswith(program.text))
    return cmdline[at + 1 :]


def _launched(words: Sequence[str]) -> tuple[PythonProgram, Sequence[str]] | None:
    """The program among the arguments of a launcher, with its own arguments.

    Options that are not known are taken to have a value, which no script is.
    """
    kind: ProgramKind = "script"
    index = 0
    while index < len(words):
        word = words[index]
        if not word.startswith("-"):
            if index or word not in _SUBCOMMANDS:
                return PythonProgram(kind, word), words[index + 1 :]
        elif word in ("-m", "--module"):
            kind = "module"
        elif "=" not in word and word.lstrip("-").replace("_", "-") not in _SWITCHES:
            value = words[index + 1] if index + 1 < len(words) else "-"
            index += not value.startswith("-") and not value.endswith(".py")
        index += 1
    return None


def command_words(cmdline: Sequence[str]) -> str:
    """A command line for a narrow column: the program's own path says little, and comes first."""
    return " ".join((os.path.basename(cmdline[0]), *cmdline[1:])) if cmdline else ""


def isolating_option(cmdline: Sequence[str]) -> str:
    """The option by which an interpreter ignores PYTHONPATH or `sitecustomize`; empty if none.

    `-I` and `-E` ignore the variable, `-S` imports no `sitecustomize` (CPython 3.15).
    """
    return next((f"-{letter}" for letter, _ in _options(cmdline) if letter in "IES"), "")


def has_x_option(cmdline: Sequence[str], names: Sequence[str]) -> bool:
    """Whether `-X NAME` or `-X NAME=VALUE` is among the options of an interpreter."""
    return any(
        letter == "X" and value.partition("=")[0] in names for letter, value in _options(cmdline)
    )


def _options(cmdline: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The short options before the program, with the values of those that take one.

    As the interpreter reads them (`_PyOS_GetOpt`, CPython 3.15): several in one word, and a value
    attached or in the next word.
    """
    words = iter(cmdline[1:])
    for word in words:
        if word == _LONG_WITH_VALUE:
            next(words, "")
        elif word == "--" or word == "-" or not word.startswith("-"):
            return
        elif not word.startswith("--"):
            for position, letter in enumerate(word[1:], start=2):
                if letter not in "cmWX":
                    yield letter, ""
                    continue
                yield letter, word[position:] or next(words, "")
                if letter in "cm":
                    return
                break


def _short_options(word: str) -> tuple[ProgramKind, str]:
    """The program in a cluster of options like `-um` or `-Bcprint(1)`: its kind, attached value."""
    for position, letter in enumerate(word[1:], start=2):
        if letter in "XW":
            break
        if letter == "m":
            return "module", word[position:]
        if letter == "c":
            return "code", word[position:]
    return "none", ""
