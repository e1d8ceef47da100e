import logging
import multiprocessing as mp
import threading
import time

from actor import actor_main

log = logging.getLogger("launcher")


class FleetLauncher:
    """Starts the actors side by side, each watched by a thread until it has settled."""

    def __init__(self, count, settle, ready_timeout):
        self.count = count
        self.settle = settle
        self.ready_timeout = ready_timeout
        self.episodes = mp.Queue(maxsize=64)
        self.actors = {}

    def _launch(self, ident):
        ready = mp.Event()
        process = mp.Process(target=actor_main, args=(ident, self.episodes, ready), name=f"actor-{ident}", daemon=True)
        process.start()
        if not ready.wait(self.ready_timeout):
            log.error("actor %d did not come up", ident)
            process.terminate()
            return
        time.sleep(self.settle)
        self.actors[ident] = process
        log.info("actor %d settled", ident)

    def launch(self):
        for ident in range(self.count):
            threading.Thread(target=self._launch, args=(ident,), name=f"launch-{ident}").start()
