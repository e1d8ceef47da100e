"""Loader with one process per shard. The parent watches the processes and starts a new one for one that ended."""
import logging
import multiprocessing as mp
import os
import queue
import signal
import time

import numpy as np

from decoder import PackedShard

log = logging.getLogger("loader")


def read_shard(root, name, first, seq, rate, out):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    shard = PackedShard(root, name)
    rest = np.empty(0, np.int32)
    for i in range(first, len(shard)):
        rest = np.concatenate([rest, shard.read(i)])
        while len(rest) > seq:
            out.put((name, i, rest[:seq + 1]))
            rest = rest[seq:]
        time.sleep(1.0 / rate)
    out.put((name, len(shard), None))


class ShardLoader:
    def __init__(self, root, names, seq, rate, depth=256):
        self.root, self.names, self.seq, self.rate = root, names, seq, rate
        self.rows = {name: mp.Queue(maxsize=depth) for name in names}
        self.position = dict.fromkeys(names, 0)
        self.procs = {}
        # archive helpers end whenever they like; do not leave zombies behind
        signal.signal(signal.SIGCHLD, self._on_child)

    @staticmethod
    def _on_child(signum, frame):
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return

    def archive(self, path):
        """Compress a finished log file in the background."""
        os.posix_spawnp("gzip", ["gzip", "-f", path], os.environ)

    def _start(self, name):
        args = (self.root, name, self.position[name], self.seq, self.rate, self.rows[name])
        p = mp.Process(target=read_shard, args=args, daemon=True, name=f"reader-{name}")
        p.start()
        self.procs[name] = p

    def start_epoch(self):
        for name in self.names:
            self.position[name] = 0
            self._start(name)

    def check(self, open_shards):
        for name in open_shards:
            if not self.procs[name].is_alive():
                log.warning("reader of %s ended with %s, starting it again", name, self.procs[name].exitcode)
                self.position[name] += 1
                self._start(name)

    def batches(self):
        """One row of every shard that still has some, in a fixed order, so that runs can be compared."""
        open_shards = list(self.names)
        while open_shards:
            batch = []
            for name in list(open_shards):
                while True:
                    try:
                        _, pos, row = self.rows[name].get(timeout=5)
                        break
                    except queue.Empty:
                        log.info("no row from %s for 5s, readers %s", name,
                                 {n: "alive" if self.procs[n].is_alive() else "ended" for n in open_shards})
                        self.check(open_shards)
                self.position[name] = pos
                if row is None:
                    open_shards.remove(name)
                    self.procs[name].join()
                else:
                    batch.append(row)
            if batch:
                yield np.stack(batch)
