"""PyTorch's own tests of multiprocessing and DataLoader, without and with the hook.

    python -m tests.torch_suite --suite trixie
    python -m tests.torch_suite --suite trixie --root /srv/trixie --only test_dataloader.py

The tests come out of Debian's source package of pytorch, into a cache folder. `--root` runs them in
a directory made by debootstrap(8) that has python3-torch and python3-pytest, for versions that
nobody else has. Each test must end the same both ways; one that does not is run three times each
way, because some of them do not end the same way twice with nothing in. The exit code is the
number of tests that the hook changes, 99 at most.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.torch_suite.comparing import Difference, Outcomes, differences, summary
from tests.torch_suite.places import Place, here, root
from tests.torch_suite.running import Suite
from tests.torch_suite.source import FILES, fetch

AGAIN = 3


def main() -> int:
    options = _parse()
    folder = fetch(options.cache, options.suite)
    place: Place = root(options.root) if options.root else here(options.python)
    with place:
        place.bring(folder)
        suite = Suite(place, options.chunk, options.limit)
        print("torch and Python there:", suite.versions(), flush=True)
        found: list[Difference] = []
        for file in options.only or FILES:
            found += _compare(suite, file, options.select)
        for each in found:
            print(each)
    changed = [each for each in found if each.is_by_the_hook]
    print(f"{len(changed)} tests are changed by the hook, {len(found) - len(changed)} are flaky")
    return min(99, len(changed))


def _compare(suite: Suite, file: str, select: str) -> list[Difference]:
    """Run one file with and without the hook, and again the tests that differed."""
    names = suite.collect(file, select)
    print(f"{file}: {len(names)} tests", flush=True)
    without, with_hook = suite.run(names, False), suite.run(names, True)
    print(f"  without: {summary(without)}\n  with:    {summary(with_hook)}", flush=True)
    found = differences([without], [with_hook])
    if not found:
        return []
    suspects = [each.name for each in found]
    print(f"  again: {', '.join(suspects)}", flush=True)
    before: list[Outcomes] = [without]
    after: list[Outcomes] = [with_hook]
    for _ in range(AGAIN):
        before.append(suite.run(suspects, False))
        after.append(suite.run(suspects, True))
    return differences(before, after)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.torch_suite", description=__doc__)
    cache = Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")))
    parser.add_argument("--suite", default="trixie", help="Debian's name for a release")
    parser.add_argument("--cache", type=Path, default=cache / "mpwatch-torch-suite")
    parser.add_argument("--root", type=Path, help="a directory to run in, see above")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", action="append", metavar="FILE", choices=FILES)
    parser.add_argument("--select", default="", help="as pytest's -k")
    parser.add_argument("--chunk", type=int, default=10, help="tests in one process")
    parser.add_argument("--limit", type=float, default=180, help="seconds for one test")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
