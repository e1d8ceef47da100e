"""Drawing of toned lines as strips, with cached styles."""

from __future__ import annotations

from typing import ClassVar, Literal

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.scroll_view import ScrollView
from textual.strip import Strip

from mpwatch.tui.elements.styled_text import Line

Align = Literal["left", "right"]
_PREFIX = "canvas--"


def joined(segments: list[Segment]) -> Strip:
    """Segments with equal neighbours merged, since each is sent with its full style."""
    out: list[Segment] = []
    for segment in segments:
        if not segment.text:
            continue
        if out and out[-1].style == segment.style:
            out[-1] = Segment(out[-1].text + segment.text, segment.style)
        else:
            out.append(segment)
    return Strip(out)


class LineCanvas(ScrollView):
    """Draws toned lines; subclasses decide the content and its place."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"{_PREFIX}{name}"
        for name in (
            "title",
            "dim",
            "good",
            "accent",
            "trend",
            "chosen",
            "warning",
            "critical",
            "block",
            "block-other",
            "header",
            "sorted",
            "cursor",
            "cursor-blurred",
        )
    }

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._tones: dict[str, Style] = {}
        self._plain_style: Style | None = None

    def notify_style_update(self) -> None:
        """Forget the styles when the theme or a pseudo class changes."""
        self._tones = {}
        self._plain_style = None
        super().notify_style_update()

    @property
    def base_style(self) -> Style:
        """The style of lines, cached because it is composed from all widgets behind."""
        if self._plain_style is None:
            self._plain_style = self.rich_style
        return self._plain_style

    def tone_style(self, tone: str) -> Style:
        """What a tone adds to the style of its line."""
        if not tone:
            return Style.null()
        found = self._tones.get(tone)
        if found is None:
            found = self._blended(_PREFIX + tone)
            self._tones[tone] = found
        return found

    def toned(self, base: Style, tone: str) -> Style:
        """A tone on top of the style of its line.

        On a reversed line a tone would colour the background, so it is omitted there.
        """
        return base if not tone or base.reverse else base + self.tone_style(tone)

    def _blended(self, name: str) -> Style:
        """A component's style with its colour blended into the background.

        A partial style drops transparency, so muted text would not look muted; the whole style
        brings the widget's own background, which must not cover that of a cursor line.
        """
        whole = self.get_component_rich_style(name)
        own = self.get_component_rich_style(name, partial=True)
        return own + Style(color=whole.color) if own.color is not None else own

    def segments(self, content: Line, width: int, align: Align, base: Style) -> list[Segment]:
        """A line as segments of exactly `width` cells."""
        used = 0
        out: list[Segment] = []
        for span in content:
            size = len(span.text) if span.text.isascii() else cell_len(span.text)
            style = self.toned(base, span.tone)
            if used + size > width:
                left = width - used - 1
                text = set_cell_size(span.text, left) + "…" if left >= 0 else ""
                out.append(Segment(text, style))
                used = width if left >= 0 else used
                break
            out.append(Segment(span.text, style))
            used += size
        if used < width:
            blank = Segment(" " * (width - used), base)
            if align == "left":
                out.append(blank)
            else:
                out.insert(0, blank)
        return out

    def strip_of(self, content: Line, base: Style) -> Strip:
        """A whole line as wide as the widget, moved by the horizontal scroll."""
        strip = joined([Segment(s.text, self.toned(base, s.tone)) for s in content])
        left = self.scroll_offset.x
        return strip.crop_extend(left, left + self.size.width, base)
