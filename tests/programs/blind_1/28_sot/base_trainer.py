import logging
import time
import traceback

log = logging.getLogger("base_trainer")


class BaseTrainer:
    def __init__(self, max_epochs, fail_safe=True, num_tries=40):
        self.max_epochs, self.fail_safe, self.num_tries = max_epochs, fail_safe, num_tries
        self.epoch = 0

    def train(self):
        for _ in range(self.num_tries):
            try:
                while self.epoch < self.max_epochs:
                    self.train_epoch(self.epoch + 1)
                    self.epoch += 1
                    self.save_checkpoint()
                log.info("Finished training!")
                return
            except Exception:
                log.info("Training crashed at epoch %d", self.epoch + 1)
                if not self.fail_safe:
                    raise
                log.info("Traceback for the error!\n%s", traceback.format_exc(limit=-1))
                time.sleep(1.0)
                self.load_checkpoint()
                log.info("Restarting training from last epoch ...")
