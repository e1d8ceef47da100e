import argparse
import logging
import multiprocessing as mp
import tempfile
import time

from compactor import ShardFeed, compact

log = logging.getLogger("compact")


class CompactionService:
    def __init__(self, out_dir, workers):
        self.out_dir = out_dir
        self.pool = mp.Pool(workers)
        self.submitted = 0

    def submit(self, shard):
        self.pool.apply_async(compact, (shard, self.out_dir))
        self.submitted += 1

    def close(self):
        self.pool.close()
        self.pool.join()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--shards", type=int, default=130)
    p.add_argument("--interval", type=float, default=1.0)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    service = CompactionService(tempfile.mkdtemp(prefix="compact_"), args.workers)
    for shard in ShardFeed(args.shards):
        service.submit(shard)
        if service.submitted % 10 == 0:
            log.info("submitted %d shards", service.submitted)
        time.sleep(args.interval)
    service.close()
    log.info("finished, %d shards in %s", service.submitted, service.out_dir)


if __name__ == "__main__":
    main()
