import argparse
import logging
import multiprocessing as mp

from bank import BankBuilder

log = logging.getLogger("main")


class Trainer:
    def __init__(self, args):
        self.args = args
        self.ready = mp.Event()
        self.progress = mp.Value("i", 0)

    def run(self):
        builder = BankBuilder(self.args.volumes, self.args.workers, self.args.max_open_files)
        proc = mp.Process(target=builder.run, args=(self.ready, self.progress))
        proc.start()
        while not self.ready.wait(timeout=5):
            log.info("waiting for the feature bank (%d batches)", self.progress.value)
        log.info("bank is ready, training")
        proc.join()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--volumes", type=int, default=4000)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--max-open-files", type=int, default=256)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    Trainer(p.parse_args()).run()
