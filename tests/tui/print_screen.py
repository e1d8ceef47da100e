"""Prints a page of a scripted job: `python -m tests.tui.print_screen 120x36 loader_job 2`.

A last argument that ends with `.svg` is the file to write a picture to instead.
"""

from __future__ import annotations

import asyncio
import sys

from mpwatch.tui.app import MpwatchApp
from tests.tui import scripted
from tests.tui.screen_text import screen_text


async def look(size: str, world: str, keys: list[str], svg: str | None) -> None:
    width, height = (int(part) for part in size.split("x"))
    snapshot = getattr(scripted, world)()
    app = MpwatchApp(scripted.ScriptedSource(snapshot), title="train.py")
    async with app.run_test(size=(width, height)) as pilot:
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        if svg:
            with open(svg, "w") as out:
                out.write(app.export_screenshot())
        else:
            print(screen_text(app))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    picture = arguments.pop() if arguments[-1].endswith(".svg") else None
    asyncio.run(look(arguments[0], arguments[1], arguments[2:], picture))
