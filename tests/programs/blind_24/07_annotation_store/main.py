"""Pre-annotates a collection with a few processes that share one annotation store."""
import argparse
import logging
import multiprocessing as mp
import tempfile
import time

from annotate import annotate
from store import AnnotationStore

log = logging.getLogger("collection")


class Run:
    def __init__(self, args, folder):
        self.args = args
        self.store = AnnotationStore(folder)
        ids = [f"img{i:06d}" for i in range(args.images)]
        self.procs = [mp.Process(target=annotate, name=f"annotator-{s}",
                                 args=(s, folder, ids[s::args.annotators], args.pause))
                      for s in range(args.annotators)]

    def start(self):
        for p in self.procs:
            p.start()

    def wait(self):
        end = time.monotonic() + self.args.hours * 3600
        for p in self.procs:
            p.join(max(0.0, end - time.monotonic()))
        late = [p for p in self.procs if p.is_alive()]
        for p in late:
            log.warning("%s is not ready in time, stopping it", p.name)
            p.terminate()
            p.join()
        return not late


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--images", type=int, default=6000)
    ap.add_argument("--annotators", type=int, default=3)
    ap.add_argument("--pause", type=float, default=0.1, help="be kind to the image server")
    ap.add_argument("--hours", type=float, default=0.036)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [collection] %(message)s")
    with tempfile.TemporaryDirectory(prefix="annot_") as folder:
        run = Run(args, folder)
        run.start()
        run.wait()
        log.info("%d images annotated", run.store.count())


if __name__ == "__main__":
    main()
