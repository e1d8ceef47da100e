"""One log for all processes: workers send records to the parent through a queue."""
import logging
import logging.handlers
import multiprocessing as mp

FORMAT = "%(asctime)s %(processName)-18s %(levelname)-7s %(message)s"


def start_listener(log_queue) -> logging.handlers.QueueListener:
    console = logging.StreamHandler()
    console.setFormatter(logging.Formatter(FORMAT))
    listener = logging.handlers.QueueListener(log_queue, console, respect_handler_level=True)
    listener.start()
    return listener


def parent_logger(level: str) -> logging.Logger:
    logger = logging.getLogger("ingest")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(FORMAT))
    logger.addHandler(handler)
    logger.setLevel(level)
    return logger


def attach_worker_logger(log_queue, level: str) -> logging.Logger:
    """Use the logger multiprocessing itself offers so that its own messages are kept too."""
    logger = mp.get_logger()
    for old in list(logger.handlers):
        logger.removeHandler(old)
    logger.addHandler(logging.handlers.QueueHandler(log_queue))
    logger.setLevel(level)
    logger.propagate = False
    return logger
