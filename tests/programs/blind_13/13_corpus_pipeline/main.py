"""Two stage corpus pipeline: normalise all shards, then tokenise the merged ones."""
import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
import time

from execution import Coordinator
from stages import merged_shards, normalize_shard, raw_shards, tokenize_shard

log = logging.getLogger("pipeline")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--raw-shards", type=int, default=24)
    p.add_argument("--work-dir", default=None)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s[%(process)d] %(message)s")
    work_dir = args.work_dir or tempfile.mkdtemp(prefix="corpus-")
    started = time.monotonic()
    coordinator = Coordinator(args.workers)
    coordinator.start()
    try:
        normalized = coordinator.run_stage("normalize", normalize_shard, raw_shards(args.raw_shards, work_dir))
        tokenized = coordinator.run_stage("tokenize", tokenize_shard, merged_shards(normalized, work_dir), last=True)
        codes = coordinator.join()
    finally:
        coordinator.stop()
    manifest = {"shards": sorted(tokenized, key=lambda t: t["name"]), "tokens": sum(t["tokens"] for t in tokenized)}
    print(json.dumps(manifest))
    log.info("%d tokens in %.0f s, workers ended with %s", manifest["tokens"], time.monotonic() - started, codes)
    if args.work_dir is None:
        shutil.rmtree(work_dir, ignore_errors=True)
    return 0 if all(c == 0 for c in codes) else 1


if __name__ == "__main__":
    sys.exit(main())
