import logging
import multiprocessing as mp
import time

from tiles import encode

log = logging.getLogger("generator")
_catalog = None


def _init(catalog):
    global _catalog
    _catalog = catalog


def _render(tile):
    return tile, encode(tile, _catalog)


def generate_tiles(catalog, tiles, total, processes, storage, report_every=10.0):
    ctx = mp.get_context("fork")
    done = empty = 0
    started = last = time.monotonic()
    last_done = 0
    with ctx.Pool(processes, initializer=_init, initargs=(catalog,)) as pool:
        for tile, data in pool.imap_unordered(_render, tiles):
            if data:
                storage.put(tile, data)
            else:
                empty += 1
            done += 1
            now = time.monotonic()
            if now - last >= report_every:
                rate = (done - last_done) / (now - last)
                log.info("%d of %d tiles (%d empty), %.0f tiles/s, eta %.0f min", done, total, empty, rate,
                         (total - done) / rate / 60)
                last, last_done = now, done
    log.info("%d tiles in %.0f s", done, time.monotonic() - started)
