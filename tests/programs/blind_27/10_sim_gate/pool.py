import logging
import queue

import torch.multiprocessing as mp

from simulator import simulate

log = logging.getLogger("pool")


class SimulatorPool:
    def __init__(self, count):
        self.gate = mp.Event()
        self.frames = mp.Queue()
        self.ready = mp.Semaphore(0)
        self.sims = []
        for idx in range(count):
            proc = mp.Process(target=simulate, args=(idx, self.gate, self.frames, self.ready),
                              name=f"sim-{idx}", daemon=True)
            proc.start()
            self.sims.append(proc)

    @property
    def size(self):
        return len(self.sims)

    def wait_ready(self):
        for _ in self.sims:
            self.ready.acquire()

    def resume(self):
        self.gate.set()

    def pause(self):
        self.gate.clear()

    def gather(self, settle=0.15):
        """Everything that the simulators have produced in this round."""
        out = []
        while True:
            try:
                out.extend(self.frames.get(timeout=settle))
            except queue.Empty:
                return out

    def shrink(self, count):
        while len(self.sims) > count:
            proc = self.sims.pop()
            proc.terminate()
            proc.join()
            log.info("%s retired (exit code %s)", proc.name, proc.exitcode)

    def close(self):
        self.shrink(0)
