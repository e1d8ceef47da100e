"""Starts the reward model replicas and adjusts their number."""
import logging
import multiprocessing as mp

from replica import serve_replica

log = logging.getLogger("deployment")


class Deployment:
    def __init__(self, vocab):
        self.ctx = mp.get_context("fork")
        self.vocab = vocab
        self.ports = self.ctx.Queue()
        self.replicas = {}

    def start(self, count):
        for i in range(count):
            name = f"reward-{i}"
            stop = self.ctx.Event()
            proc = self.ctx.Process(target=serve_replica, args=(name, self.vocab, self.ports, stop), name=name, daemon=True)
            proc.start()
            self.replicas[name] = (proc, stop)
        found = dict(self.ports.get() for _ in range(count))
        return [("127.0.0.1", found[name]) for name in sorted(found)]

    def scale_to(self, count):
        for name in sorted(self.replicas)[count:]:
            proc, stop = self.replicas.pop(name)
            stop.set()
            proc.join()
        log.info("reward model scaled to %d replicas", count)
