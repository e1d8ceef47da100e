import logging
import queue
import threading
import time

log = logging.getLogger("control")


class OperatorConsole(threading.Thread):
    def __init__(self, commands, progress, good_enough, settle=5.0):
        super().__init__(daemon=True)
        self.commands = commands
        self.progress = progress
        self.good_enough = good_enough
        self.settle = settle

    def run(self):
        first = None
        while True:
            epoch, loss = self.progress.get()
            first = first or time.time()
            if loss < self.good_enough and time.time() - first > self.settle:
                log.info("loss %.3f at epoch %d is fine, stop early", loss, epoch)
                self.commands.put("stop")
                return


class StopController:
    def __init__(self, rank, commands, progress):
        self.rank = rank
        self.commands = commands
        self.progress = progress
        self.should_stop = False

    def on_epoch_end(self, epoch, loss):
        if self.rank != 0:
            return
        self.progress.put((epoch, loss))
        try:
            self.should_stop = self.commands.get_nowait() == "stop"
        except queue.Empty:
            pass
