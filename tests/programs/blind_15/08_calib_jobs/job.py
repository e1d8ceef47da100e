import logging
import os
import time

import numpy as np


class Job:
    def __init__(self, recipe, task, logdir, antennas):
        self.label = "%s.%s" % (recipe, task)
        self.task = task
        self.antennas = antennas
        self.log = self.setup_job_log(logdir)

    def setup_job_log(self, logdir):
        logger = logging.getLogger("job." + self.label)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        handler = logging.FileHandler(os.path.join(logdir, self.task + ".log"))
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        return logger

    def run(self):
        self.log.info("start %s with %d antennas", self.task, self.antennas)
        rng = np.random.default_rng(abs(hash(self.label)) % 2 ** 32)
        vis = rng.normal(size=(self.antennas, self.antennas, 64)) + 1.0
        gains = np.ones(self.antennas)
        chi2 = 0.0
        for it in range(6):
            model = gains[:, None, None] * gains[None, :, None]
            resid = vis - model
            gains += 0.05 * resid.mean(axis=(1, 2))
            chi2 = float((resid ** 2).mean())
            self.log.debug("iteration %d chi2 %.5f", it, chi2)
            time.sleep(0.008)
        self.log.info("done, chi2 %.5f", chi2)
        return chi2
