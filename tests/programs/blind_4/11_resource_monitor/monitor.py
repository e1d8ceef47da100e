import logging
import threading
import time

import psutil

log = logging.getLogger("monitor")


class ResourceMonitor(threading.Thread):
    """Samples memory and CPU of this process while a model is being trained."""

    def __init__(self, interval=2.0):
        super().__init__(name="resource-monitor")
        self.interval = interval
        self.samples = []
        self.stopped = False

    def run(self):
        proc = psutil.Process()
        while not self.stopped:
            self.samples.append((time.time(), proc.cpu_percent(), proc.memory_info().rss))
            time.sleep(self.interval)

    def stop(self):
        self.stopped = True
        self.join()
        peak = max(rss for _, _, rss in self.samples)
        log.info("%d samples, peak rss %.0f MB", len(self.samples), peak / 2 ** 20)
