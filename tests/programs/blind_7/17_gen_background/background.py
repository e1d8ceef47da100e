"""Runs a generator in a process of its own, one item ahead of the consumer."""
import logging
import multiprocessing as mp
import traceback

log = logging.getLogger(__name__)

END = "end-of-generator"


def _serve(make, conn):
    gen = make()
    while conn.recv():
        try:
            conn.send(next(gen))
        except StopIteration:
            conn.send(END)
            return
        except Exception:
            traceback.print_exc()
            conn.send(END)
            return


def background(make):
    """Yields what make() yields; the next item is prepared while the caller works."""
    ours, theirs = mp.Pipe()
    proc = mp.Process(target=_serve, args=(make, theirs), name="generator", daemon=True)
    proc.start()
    ours.send(True)
    while True:
        item = ours.recv()
        if isinstance(item, str) and item == END:
            break
        ours.send(True)
        yield item
    proc.join()
