"""The command line: parse arguments, run one command, print a failure as one sentence.

Every command imports what it needs when it runs: `mpwatch ps` must not pay for the dashboard.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Iterator, Sequence

_PYTHON = "Python {}.{}".format(*sys.version_info)
if sys.version_info < (3, 10):  # noqa: UP036 - a single file may be run by any Python
    sys.exit(f"mpwatch: Python 3.10 or newer is needed, and this is {_PYTHON}.")

from mpwatch.cli.arguments import parse  # noqa: E402
from mpwatch.cli.failures import EXIT_INTERRUPTED, EXIT_USAGE, Failure, describe  # noqa: E402

_OF_ONE_PYTHON = frozenset(("msgspec._core", "tomli"))
"""What a single file lacks where it is run by a Python of another minor version than made it: the
extension module, and what only Python 3.10 needs."""
_NO_MEMORY = "There is not enough memory for mpwatch itself."
START = 200_000
"""Net allocations that start a collection, in place of Python's 700 (2,000 from 3.13). The start of
a command and one sample need fewer."""
RUNNING = 50_000
"""The same for a dashboard: such a collection takes 20 ms.

Each sample of a job allocates thousands of small values, and reference counts free those of the
sample before; cycles are rare. With a collection every 700 objects, the collector took a tenth of
the cpu time of a dashboard (64 workers, Python 3.11), and a tenth of its start."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 fine, 1 findings at or above `--fail-on`, 2 usage, 3 no such process, 4 not permitted, 5 not a
    Python process, 130 interrupted.
    """
    if argv is not None:
        with rarely_collected():
            return _run(parse(argv))
    gc.set_threshold(START, *gc.get_threshold()[1:])
    code = _run(parse(sys.argv[1:]))
    # The process ends now: a collection at the usual threshold, and those of the interpreter as it
    # ends, would free nothing that is still needed, and take 30 of 240 ms of cpu of `mpwatch ps`.
    gc.freeze()
    return code


@contextlib.contextmanager
def rarely_collected() -> Iterator[None]:
    """Collect rarely inside the context; restores the thresholds, for callers of `main`."""
    before = gc.get_threshold()
    gc.set_threshold(START, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def set_aside_what_is_loaded() -> None:
    """Exclude all existing objects (modules, classes, styles) from later collections.

    For long-running commands, once everything is imported.
    """
    gc.freeze()
    gc.set_threshold(RUNNING, *gc.get_threshold()[1:])


def _run(arguments: argparse.Namespace) -> int:
    """Run the parsed command and print its failure."""
    module_name, function_name = arguments.command
    try:
        module = importlib.import_module(module_name)
        code: int = getattr(module, function_name)(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has closed it (`mpwatch dump PID | head`), which is no error. The
        # interpreter must not flush again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Failure as failure:
        print(describe(failure), file=sys.stderr)
        return failure.exit_code
    except MemoryError:
        print(describe(Failure(_NO_MEMORY, "ulimit -v unlimited")), file=sys.stderr)
        return EXIT_USAGE
    except ModuleNotFoundError as error:
        if error.name not in _OF_ONE_PYTHON:
            raise
        print(describe(_made_by_another_python(error.name)), file=sys.stderr)
        return EXIT_USAGE
    return code


def _made_by_another_python(missing: str) -> Failure:
    return Failure(
        f"{missing} is missing: this copy of mpwatch was not made by {_PYTHON} on "
        f"{os.uname().machine}, which runs it.",
        "pip install shiv && shiv -q --compressed -c mpwatch -o mpwatch.pyz .",
    )
