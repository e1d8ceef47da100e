import logging
import time

from tiling.pyramid import TILES

log = logging.getLogger("export.render")


def render_area(area, fmt, dry_run=False):
    written = 0
    for zoom, tiles in sorted(TILES.items()):
        for x, y, weight in tiles:
            if not dry_run:
                time.sleep(0.002 + 0.004 * weight)
            written += 1
        log.info("%s: zoom %d rendered as %s (%d so far)", area, zoom, fmt, written)
    return written
