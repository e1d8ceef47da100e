"""Composes the lines that changed, and asks only the widgets that show on them.

Textual 8.2 has every widget that overlaps the box around all changes hand out all of its lines,
those that lie behind others included, to keep the few that changed: a third of what drawing a quiet
dashboard costs.
"""

from __future__ import annotations

from itertools import pairwise

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip


class LineCompositor(Compositor):
    """Textual's compositor, with updates of some lines that cost no more than these lines."""

    def render_partial_update(self) -> ChopsUpdate | None:
        """What has changed since the last update, `None` if nothing has."""
        regions = self._dirty_regions.copy()
        self._dirty_regions.clear()
        height = self.size.height
        spans = [span for span in self._regions_to_spans(regions) if 0 <= span[0] < height]
        if not spans:
            return None
        chops: list[dict[int, Strip | None]] = [{}] * height
        for y, left, right in spans:
            if not chops[y]:
                chops[y] = dict.fromkeys(self.cuts[y][:-1])
            self._fill(chops[y], y, left, right)
        return ChopsUpdate(chops, spans, [cuts[1:] for cuts in self.cuts])

    def _fill(self, pieces: dict[int, Strip | None], y: int, left: int, right: int) -> None:
        """Fill in the pieces of a line that lie between two columns, each from the foremost."""
        cuts = self.cuts[y]
        missing = {
            start
            for start, end in pairwise(cuts)
            if start < right and end > left and pieces[start] is None
        }
        for widget, (region, clip) in self.visible_widgets.items():
            if not missing:
                break
            shown = region.intersection(clip)
            if not shown.y <= y < shown.bottom:
                continue
            inside = [cut for cut in cuts if shown.x <= cut <= shown.right]
            if missing.isdisjoint(inside[:-1]):
                continue
            crop = Region(shown.x - region.x, y - region.y, shown.width, 1)
            (strip,) = widget.render_lines(crop)
            found = strip.divide([cut - shown.x for cut in inside[1:]])
            for start, piece in zip(inside, found, strict=False):
                if start in missing:
                    pieces[start] = piece
                    missing.remove(start)
