import argparse
import collections
import json
import logging
import os
import pathlib
import tempfile
import threading
import time

from model import WikiModel
from wiki import KINDS

log = logging.getLogger("wiki")


class Lifetime:
    """The bot host stops refresh jobs after a fixed time."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.began = time.time()

    def start(self):
        left = self.began + self.seconds - time.time()
        timer = threading.Timer(max(left, 0.0), os._exit, args=(0,))
        timer.daemon = True
        timer.start()


def parse_args():
    p = argparse.ArgumentParser(description="refresh the local wiki data of the bot")
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--pages", type=int, default=160, help="pages of each kind")
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--job-seconds", type=float, default=130)
    return p.parse_args()


def refresh(model, kind, pages, target):
    began = time.perf_counter()
    by_region = collections.Counter()
    items = []
    for item in model.full_data(kind, pages):
        items.append(item)
        by_region[item["region"]] += 1
        if len(items) % 40 == 0:
            log.info("%s: %d of %d", kind, len(items), pages)
    items.sort(key=lambda item: (item["rarity"], item["title"]))
    (target / f"{kind}.json").write_text(json.dumps(items, indent=1))
    log.info("%s refreshed: %d items in %.1fs, regions %s", kind, len(items),
             time.perf_counter() - began, dict(by_region))


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(processName)s] %(name)s %(message)s")
    lifetime = Lifetime(args.job_seconds)
    lifetime.start()
    target = pathlib.Path(tempfile.mkdtemp(prefix="wiki-"))
    model = WikiModel(args.workers, lifetime)
    for number in range(args.rounds):
        for kind in KINDS:
            refresh(model, kind, args.pages, target)
        log.info("round %d done", number)
    model.close()


if __name__ == "__main__":
    main()
