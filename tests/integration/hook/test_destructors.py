"""The program's local variables are never freed on the hook's thread, whatever is requested."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.integration.hook.client import Client, wait_for_sockets
from tests.integration.hook.guest import Guest

pytestmark = pytest.mark.slow


def test_no_local_variable_of_the_program_is_freed_on_the_hooks_thread(runtime: Path) -> None:
    asked = 0
    with Guest("8", program="hook_destructors.py") as guest:
        assert guest.hear() == "ready"
        with Client(wait_for_sockets(runtime, 1)[guest.process.pid]) as client:
            client.hello()
            frames = 0
            with contextlib.suppress(EOFError, OSError):  # the program has ended
                while True:
                    frames += len(client.ask("stacks")["threads"])
                    client.ask("gauges")
                    asked += 1
        code, said = guest.finish()

    assert (code, said.splitlines()[-1]) == (0, "True []")
    assert asked > 20
    assert frames > asked
