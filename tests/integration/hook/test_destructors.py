"""The program's local variables are never freed on the hook's thread, whatever is requested."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.conftest import PROGRAMS
from tests.integration.hook.client import Client, wait_for_sockets
from tests.integration.hook.guest import Guest

pytestmark = pytest.mark.slow


def test_no_local_variable_of_the_program_is_freed_on_the_hooks_thread(runtime: Path) -> None:
    asked = 0
    kinds: set[str] = set()
    with Guest("8", program="hook_destructors.py") as guest:
        assert guest.hear() == "ready"
        with Client(wait_for_sockets(runtime, 1)[guest.process.pid]) as client:
            client.hello()
            frames = 0
            with contextlib.suppress(EOFError, OSError):  # the program has ended
                while True:
                    threads = client.ask("stacks")["threads"]
                    frames += len(threads)
                    client.ask("gauges")
                    wanted = [
                        [each["tid"], str(PROGRAMS / "hook_destructors.py"), function, names]
                        for each in threads
                        for function, names in (("local", ["thing"]), ("work", ["until_s"]))
                    ]
                    for frame in client.ask("values", frames=wanted)["frames"]:
                        kinds |= {value["type"] for value in frame["values"].values()}
                    asked += 1
        code, said = guest.finish()

    assert (code, said.splitlines()[-1]) == (0, "True []")
    assert asked > 20
    assert frames > asked
    assert "float" in kinds
