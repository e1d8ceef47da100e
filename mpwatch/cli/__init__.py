"""The command line: parse arguments, run one command, print a failure as one sentence.

Every command imports what it needs when it runs: `mpwatch ps` must not pay for the dashboard.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

_PYTHON = "Python {}.{}".format(*sys.version_info)
if sys.version_info < (3, 10):  # noqa: UP036 - a single file may be run by any Python
    sys.exit(f"mpwatch: Python 3.10 or newer is needed, and this is {_PYTHON}.")

from mpwatch.cli.arguments import parse  # noqa: E402
from mpwatch.cli.failures import EXIT_INTERRUPTED, EXIT_USAGE, Failure, describe  # noqa: E402
from mpwatch.cli.terminal import rarely_collected  # noqa: E402

_COMPILED = "msgspec._core"
"""The extension module that a single file lacks for all Pythons but the one that made it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 fine, 1 findings at or above `--fail-on`, 2 usage, 3 no such process, 4 not permitted, 5 not a
    Python process, 130 interrupted.
    """
    with rarely_collected():
        return _run(parse(sys.argv[1:] if argv is None else argv))


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
    except ModuleNotFoundError as error:
        if error.name != _COMPILED:
            raise
        print(describe(_made_by_another_python()), file=sys.stderr)
        return EXIT_USAGE
    return code


def _made_by_another_python() -> Failure:
    return Failure(
        f"{_COMPILED} is missing: this copy of mpwatch was not made by {_PYTHON} on "
        f"{os.uname().machine}, which runs it.",
        "pip install shiv && shiv -q --compressed -c mpwatch -o mpwatch.pyz .",
    )
