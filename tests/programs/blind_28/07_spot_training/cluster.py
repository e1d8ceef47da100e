import logging
import os
import signal
import threading
import time

log = logging.getLogger("cluster")


class NodeAgent:
    """Looks after the ranks of one node, as the agent of a spot instance does."""

    def __init__(self, name, notice=None):
        self.name = name
        self.notice = notice
        self.ranks = []
        self.thread = None

    def adopt(self, proc):
        self.ranks.append(proc)

    def watch(self):
        if self.notice is not None:
            self.thread = threading.Thread(target=self._reclaim, name=f"agent-{self.name}", daemon=True)
            self.thread.start()

    def _reclaim(self):
        time.sleep(self.notice)
        log.info("%s: reclaim notice, terminating %d rank(s)", self.name, len(self.ranks))
        for proc in self.ranks:
            os.kill(proc.pid, signal.SIGTERM)


def parse_notices(items):
    return {node: float(after) for node, after in (item.split("@") for item in items)}
