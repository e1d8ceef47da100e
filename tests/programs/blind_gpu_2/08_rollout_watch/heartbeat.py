import logging
import os
import signal
import threading
import time

log = logging.getLogger("heartbeat")


class HeartbeatFile:
    def __init__(self, directory, worker_id):
        self.path = os.path.join(directory, f"worker{worker_id}.beat")

    def record(self):
        with open(self.path, "w") as f:
            f.write(str(time.time()))

    def age(self):
        try:
            return time.time() - os.stat(self.path).st_mtime
        except FileNotFoundError:
            return None


class Supervisor(threading.Thread):
    """Ends workers that stopped making progress, so that they cannot hold up the run."""

    def __init__(self, processes, directory, timeout):
        super().__init__(daemon=True, name="supervisor")
        self.processes, self.timeout = processes, timeout
        self.files = {i: HeartbeatFile(directory, i) for i in processes}

    def run(self):
        while True:
            time.sleep(1.0)
            for i, proc in self.processes.items():
                age = self.files[i].age()
                if proc.is_alive() and age is not None and age > self.timeout:
                    log.warning("worker %d: heartbeat is %.1fs old, ending it", i, age)
                    os.kill(proc.pid, signal.SIGKILL)
                    proc.join(5)
