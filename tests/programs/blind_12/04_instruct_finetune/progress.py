"""Progress bar for the console (the part of tqdm that we need)."""
import sys
import time


class ProgressBar:
    def __init__(self, total, desc="", disable=False, every=10):
        self.total = total
        self.desc = desc
        self.disable = disable
        self.every = every
        self.n = 0
        self.start = time.time()
        self.postfix = ""

    def set_postfix(self, **kw):
        if not self.disable:
            self.postfix = " ".join(f"{k}={v:.4f}" for k, v in kw.items())

    def update(self, n=1):
        if self.disable:
            return
        self.n += n
        if self.n % self.every == 0:
            rate = self.n / (time.time() - self.start)
            print(f"{self.desc}: {self.n}/{self.total} [{rate:.2f}it/s {self.postfix}]", file=sys.stderr, flush=True)
