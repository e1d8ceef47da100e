"""A list-of-rows table with a parallel map, shard per process."""
import logging
from multiprocessing import get_context

log = logging.getLogger("evalcode.tables")


def _apply_shard(function, rank, rows):
    return rank, [function(row) for row in rows]


class Table:
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, key):
        return self.rows[key]

    def shard(self, num_shards, index):
        n = len(self.rows)
        return self.rows[n * index // num_shards:n * (index + 1) // num_shards]

    def map(self, function, num_proc=None):
        if not num_proc or num_proc == 1:
            return Table([function(row) for row in self.rows])
        log.info("map(%s, num_proc=%d)", function.__name__, num_proc)
        shards = [None] * num_proc
        with get_context("fork").Pool(num_proc) as pool:
            pending = [pool.apply_async(_apply_shard, (function, rank, self.shard(num_proc, rank)))
                       for rank in range(num_proc)]
            for result in pending:
                rank, rows = result.get()
                shards[rank] = rows
                log.info("map: shard %d/%d done", rank + 1, num_proc)
        return Table([row for rows in shards for row in rows])
