from __future__ import annotations

import random

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.containers import ScrollableContainer, Vertical
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from mpwatch.tui.line_compositor import LineCompositor

WIDTH, HEIGHT = 60, 16


class Ticking(Widget):
    """Each line says how often it was drawn."""

    DEFAULT_CSS = "Ticking { height: 6; }"

    def __init__(self, letter: str, **more: str) -> None:
        super().__init__(**more)  # type: ignore[arg-type]
        self.letter = letter
        self.drawn: dict[int, int] = {}

    def render_line(self, y: int) -> Strip:
        self.drawn[y] = self.drawn.get(y, 0) + 1
        width = self.size.width
        text = "".join(f"{self.letter}{y}.{self.drawn[y]}@{at} " for at in range(width))[:width]
        return Strip([Segment(text, Style(bold=bool(y % 2)))])


class Layers(Screen[None]):
    """A page with a border, one that is scrolled, and one that lies on both."""

    def __init__(self) -> None:
        super().__init__()
        self._compositor = LineCompositor()

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Ticking("f", id="framed")
            with ScrollableContainer(id="scrolled"):
                yield Ticking("l", id="long")
        yield Ticking("o", id="over")


class Stage(App[None]):
    """Shows nothing but the layers."""

    CSS = f"""
    Layers {{ layers: below above; }}
    #framed {{ border: round red; height: 6; width: 1fr; }}
    #scrolled {{ height: 8; }}
    #long {{ height: 30; width: 150; }}
    #over {{ layer: above; width: 20; height: 5; offset: {WIDTH // 3} 4; }}
    """

    def get_default_screen(self) -> Screen[None]:
        return Layers()


def sent(update: object, height: int) -> list[tuple[int, int, int, Strip]]:
    """What an update says of each of its spans."""
    out = []
    for y, left, right in update.spans:  # type: ignore[attr-defined]
        assert 0 <= y < height
        ends, chops = update.chop_ends[y], update.chops[y]  # type: ignore[attr-defined]
        parts = [
            strip.crop(max(left, start) - start, min(right, end) - start)
            for end, (start, strip) in zip(ends, chops.items(), strict=True)
            if strip is not None and start < right and end > left
        ]
        out.append((y, left, right, Strip.join(parts).simplify()))
    return out


@pytest.mark.parametrize("seed", range(8))
async def test_an_update_of_lines_shows_what_the_whole_screen_does(seed: int) -> None:
    chance = random.Random(seed)
    app = Stage()
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        await pilot.pause()
        screen = app.screen
        compositor = screen._compositor
        screen.query_one("#scrolled").scroll_to(x=7, y=3, animate=False)
        await pilot.pause()
        for _ in range(20):
            widget = chance.choice(list(screen.query(Ticking)))
            y = chance.randrange(widget.size.height)
            left = chance.randrange(widget.size.width // 2)
            widget._set_dirty(Region(left, y, chance.randrange(1, WIDTH // 2), 1))
            compositor.update_widgets({widget})
            update = compositor.render_partial_update()
            if update is None:
                continue
            whole = [strip.simplify() for strip in compositor.render_strips()]
            for line, left, right, strip in sent(update, HEIGHT):
                assert strip == whole[line].crop(left, right).simplify()


async def test_only_widgets_that_show_where_something_changed_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str | None, Region]] = []
    known = Widget.render_lines

    def render_lines(widget: Widget, crop: Region) -> list[Strip]:
        asked.append((widget.id, crop))
        return known(widget, crop)

    app = Stage()
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        await pilot.pause()
        framed, compositor = app.screen.query_one("#framed"), app.screen._compositor
        monkeypatch.setattr(Widget, "render_lines", render_lines)
        # Within its border; the second one ends where another widget lies above the line.
        for part in (Region(0, 1, WIDTH, 1), Region(2, 3, WIDTH // 3 - 3, 1)):
            framed._set_dirty(part)
            compositor.update_widgets({framed})
            assert compositor.render_partial_update() is not None
        monkeypatch.undo()

    assert asked == [("framed", Region(0, 2, WIDTH, 1)), ("framed", Region(0, 4, WIDTH, 1))]


async def test_nothing_changed_is_no_update() -> None:
    app = Stage()
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        await pilot.pause()
        assert app.screen._compositor.render_partial_update() is None
