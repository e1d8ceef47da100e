import logging
import random
import time
from multiprocessing.managers import BaseManager

log = logging.getLogger("client")


class StoreManager(BaseManager):
    pass


StoreManager.register("get_store")


def connect(address, authkey, attempts=12, base=0.5, cap=8.0):
    """The store may still be loading its snapshot: try again with growing pauses."""
    for k in range(attempts):
        try:
            manager = StoreManager(address, authkey=authkey)
            manager.connect()
            return manager.get_store()
        except (ConnectionRefusedError, FileNotFoundError) as exc:
            delay = min(cap, base * 2**k) * random.uniform(0.8, 1.2)
            log.warning("store not reachable (%s), attempt %d, next in %.1fs", type(exc).__name__, k + 1, delay)
            time.sleep(delay)
    raise TimeoutError("store did not come up")
