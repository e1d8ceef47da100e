import logging
from multiprocessing.connection import wait

from storage import TrialStore

log = logging.getLogger("pruner")


def pruner_main(path, conns, slack):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s pruner %(message)s", force=True)
    store, conns = TrialStore(path), list(conns)
    while conns:
        for conn in wait(conns):
            message = conn.recv()
            if message is None:
                conns.remove(conn)
                continue
            trial, epoch, value = message
            best = store.best_at(epoch)
            store.report(trial, epoch, value)
            stop = best is not None and value > best * slack
            if stop:
                log.info("trial %d pruned at epoch %d (%.4f vs %.4f)", trial, epoch, value, best)
            conn.send(stop)
