import logging
import logging.handlers
import os
import time

import torch
from torch.utils.data import IterableDataset, get_worker_info

from annotations import AnnotationParser, AnnotationSource


def init_worker(worker_id, log_dir):
    """Warnings of a loader go to its own log file instead of the console."""
    handler = logging.handlers.RotatingFileHandler(os.path.join(log_dir, f"loader{worker_id}.log"),
                                                   maxBytes=2_000_000, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.getLogger("py.warnings").addHandler(handler)
    logging.getLogger("py.warnings").propagate = False
    logging.captureWarnings(True)
    torch.set_num_threads(1)


class MaskStream(IterableDataset):
    def __init__(self, args):
        self.args = args

    def __iter__(self):
        worker = get_worker_info()
        a = self.args
        source = AnnotationSource(a.seed + worker.id, a.width, a.height)
        parse = AnnotationParser(a.width, a.height, a.grid)
        began = time.monotonic()
        for count, record in enumerate(source):
            cells, category = parse(record)
            yield torch.from_numpy(cells), category
            ahead = count / a.rate - (time.monotonic() - began)
            if ahead > 0.05:
                time.sleep(ahead)
