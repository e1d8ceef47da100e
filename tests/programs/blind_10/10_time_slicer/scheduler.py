import logging
import os
import signal
import time

log = logging.getLogger("slicer")


class SliceScheduler:
    """Lets one trial at a time have the machine; the rest are suspended."""

    def __init__(self, processes, slice_seconds):
        self.processes = processes
        self.slice_seconds = slice_seconds

    def suspend(self, process):
        os.kill(process.pid, signal.SIGSTOP)

    def resume(self, process):
        os.kill(process.pid, signal.SIGCONT)

    def run(self, slices):
        for process in self.processes:
            process.start()
        time.sleep(1.0)
        for process in self.processes:
            self.suspend(process)
        for number in range(slices):
            current = self.processes[number % len(self.processes)]
            log.info("slice %d goes to %s", number, current.name)
            self.resume(current)
            time.sleep(self.slice_seconds)
            self.suspend(current)
        self.shutdown()

    def shutdown(self):
        for process in self.processes:
            process.terminate()
            self.resume(process)
            process.join()
