import logging
import multiprocessing as mp
import os
import threading
import time

from archives import unpack

log = logging.getLogger("installer")


def exit_with_parent(every=2.0):
    """Ends this process soon after its parent is gone."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(every)
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


class InstallAgent(mp.Process):
    """One management worker. Only a few agents may write into the environment at a time."""

    def __init__(self, number, requests, results, slots, repository, environment):
        super().__init__(name="agent-%d" % number, daemon=True)
        self.requests = requests
        self.results = results
        self.slots = slots
        self.repository = repository
        self.environment = environment
        self.installed = 0

    def install(self, plugin):
        archive = os.path.join(self.repository, plugin + ".wgn")
        self.slots.acquire()
        started = time.time()
        digest = unpack(archive, os.path.join(self.environment, plugin))
        time.sleep(0.2)  # pip install --no-deps
        self.slots.release()
        return digest, time.time() - started

    def run(self):
        exit_with_parent()
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
        while True:
            plugin = self.requests.get()
            if plugin is None:
                break
            try:
                digest, took = self.install(plugin)
            except Exception as e:
                log.error("could not install %s: %s", plugin, e)
                self.results.put((plugin, "failed", str(e)))
                continue
            self.installed += 1
            log.info("installed %s (%s) in %.2f s", plugin, digest[:10], took)
            self.results.put((plugin, "installed", digest))
        log.info("leaving after %d installs", self.installed)
