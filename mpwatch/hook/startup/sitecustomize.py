"""Loads the hook into the Python programs of a job that `mpwatch run` started.

`mpwatch run` puts this folder in front of PYTHONPATH, and the hook puts it into the environment of
each program that a process starts (`points/environment.py`). So an interpreter of the job imports
this file as its `sitecustomize` (https://docs.python.org/3/library/site.html). The file then

- removes the folder from `sys.path` and from `os.environ`. The environment of the C library keeps
  it, and so does a child that inherits that environment;
- loads the hook, unless `wants_hook` says no;
- imports the program's own `sitecustomize`, if it has one.

Interpreters started with -I or -E ignore PYTHONPATH, and those with -S import no `sitecustomize`:
they run without the hook. Any interpreter of the job may read this file, so its syntax is that of
Python 2.7 as well, and it imports nothing of mpwatch.
"""

import os
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # noqa: F401 - for comments

NAME = "_mpwatch_startup"
"""The entry of `sys.modules` that has the hook pass itself on to programs started from here."""
DIRECTORY = os.path.dirname(os.path.abspath(__file__))
VARIABLE = "PYTHONPATH"
# The value of the variable also contains its former value, so that it can be restored exactly.
_BEFORE_NOTHING = DIRECTORY
_BEFORE_EMPTY = DIRECTORY + "/"
_BEFORE_TEXT = DIRECTORY + "/."
_HELPERS = ("from multiprocessing.", ".resource_tracker import main", ".forkserver import main")
"""The code of multiprocessing's own processes, and of its copies in loky and multiprocess. Spawned
children get the hook from their parent, which knows more about them; the others do without."""
_COMPILE_WORKER = "torch/_inductor/compile_worker/"
_RUNNER = os.path.join(os.path.dirname(DIRECTORY), "run.py")
_PYTHONS = ((3, 10), (3, 15))
"""First and last version that the hook supports."""
ONCE = (
    "wants_hook", "_is_mpwatch", "_restore", "_load", "_start",
    "_HELPERS", "_COMPILE_WORKER", "_RUNNER", "_PYTHONS",
)  # fmt: skip
"""What is not needed any more once the hook is loaded."""
problem = ""
"""Why the hook could not be loaded."""
_inherited = None  # type: str | None
"""What this process was started with, until the hook is loaded."""


def added(value):  # type: (str | None) -> str
    """PYTHONPATH with this folder in front.

    Args:
        value: As the program has it; `None` if it is not set.
    """
    value = without(value)
    if value is None:
        return _BEFORE_NOTHING
    return _BEFORE_TEXT + ":" + value if value else _BEFORE_EMPTY


def without(value):  # type: (str | None) -> str | None
    """PYTHONPATH as it would be without mpwatch, also where a program has extended it since.

    An empty part stays where the variable was unset or empty before: `PYTHONPATH=$PYTHONPATH:more`
    gives `:more` then, and Python takes the empty part for the current directory.
    """
    if value is None or value == _BEFORE_NOTHING:
        return None
    empty = (_BEFORE_NOTHING, _BEFORE_EMPTY)
    parts = [part for part in value.split(":") if part != _BEFORE_TEXT]
    return ":".join("" if part in empty else part for part in parts)


def pass_on(value):  # type: (str | None) -> None
    """Have programs that inherit the environment of the C library load the hook.

    `os.environ` stays as it is.

    Args:
        value: PYTHONPATH as the program has it.
    """
    global _inherited
    wanted = added(value)
    if wanted != _inherited:  # writing disturbs threads that read meanwhile (setenv(3))
        posix.putenv(VARIABLE, wanted)
    _inherited = None


def stop():  # type: () -> None
    """Have programs started from now on run without the hook."""
    sys.modules.pop(NAME, None)
    value = os.environ.get(VARIABLE)
    if value is None:
        posix.unsetenv(VARIABLE)
    else:
        posix.putenv(VARIABLE, value)


def wants_hook():  # type: () -> bool
    """Whether this process is one that the hook supports, and gets it here."""
    if not _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]:
        return False
    if sys.implementation.name != "cpython":
        return False
    # A debugger or a server that embeds Python is left alone.
    if not os.path.basename(os.path.realpath("/proc/self/exe")).startswith("python"):
        return False
    words = sys.orig_argv[1:]
    if any(helper in word for word in words[:8] for helper in _HELPERS):
        return False
    if any(_COMPILE_WORKER in word or word == _RUNNER for word in words[:8]):
        return False
    return not _is_mpwatch(words)


def _is_mpwatch(words):  # type: (list[str]) -> bool
    """Whether the program is mpwatch itself."""
    for before, word in zip([""] + words, words):
        if before == "-m" or not word.startswith("-"):
            return os.path.basename(word) == "mpwatch"
    return False


def _restore():  # type: () -> None
    """Give `os.environ` and `sys.path` what they would hold without mpwatch."""
    global _inherited
    _inherited = value = os.environ.get(VARIABLE, "")
    original = without(value)
    # Neither `del` nor an assignment to `os.environ`: they would change the C library's as well.
    data = getattr(os.environ, "_data", None)
    encode = getattr(os.environ, "encodevalue", str)
    if data is None:
        data = vars(os.environ)["data"]  # Python 2
    if original is None:
        data.pop(VARIABLE.encode(), None)
    else:
        data[VARIABLE.encode()] = encode(original)
    parts = value.split(":")
    for index, entry in reversed(list(enumerate(sys.path))):
        if entry and os.path.abspath(entry) == DIRECTORY:
            here = os.getcwd()
            was_empty = len(parts) > 1 and _BEFORE_TEXT not in parts and here not in sys.path
            sys.path[index : index + 1] = [here] if was_empty else []
            sys.path_importer_cache.pop(entry, None)


def _load():  # type: () -> None
    """Load the hook; the program runs in any case."""
    global problem
    hook = os.path.dirname(DIRECTORY)
    path = os.path.join(hook, "lifecycle", "path_loader.py")
    namespace = {"__name__": "mpwatch_startup"}  # type: dict[str, Any]
    try:
        with open(path, "rb") as file:
            text = file.read()
        exec(compile(text, path, "exec", dont_inherit=True), namespace)
        namespace["load"](hook, "run")
        problem = namespace["reason"]
    except Exception as error:  # noqa: BLE001 - it would be printed; nothing of the program runs here
        problem = type(error).__name__ + ": " + str(error)


def _start():  # type: () -> None
    """Do what the docstring of this file says.

    Raises:
        ImportError: The program has no `sitecustomize`. `site` expects that; whatever the
            program's own one raises passes as well.
    """
    sys.modules[NAME] = sys.modules.pop("sitecustomize")
    _restore()
    if wants_hook():
        _load()
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401


if __name__ == "sitecustomize":
    _start()
