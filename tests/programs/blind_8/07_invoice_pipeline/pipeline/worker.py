import logging
import multiprocessing as mp
import time
from concurrent.futures import ThreadPoolExecutor

import torch

log = logging.getLogger("invoices")
RATES = {"EUR": 1.0, "USD": 0.92, "CHF": 1.05}


class PartitionWorker(mp.Process):
    def __init__(self, index, inbox, results):
        super().__init__(name=f"partition-{index}", daemon=True)
        self.index = index
        self.inbox = inbox
        self.results = results

    def run(self):
        torch.set_num_threads(1)
        self.model = torch.nn.Linear(16, 1)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="consume") as pool:
            pool.submit(self._consume)
            while True:
                time.sleep(10)
                log.info("alive")

    def _consume(self):
        while True:
            job = self.inbox.get()
            self.results.put((self.index, self._score(job)))

    def _score(self, job):
        amounts = torch.zeros(16)
        for i, line in enumerate(job["lines"]):
            amounts[i] = line["net"] * RATES[job["currency"]]
        with torch.no_grad():
            return self.model(amounts).item()
