import hashlib
import logging
import os
import queue
import threading
import time


def store_process(conn_in, conn_out, bandwidth, limit):
    """Stands for the remote KV store: takes blocks, answers with an ack."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s store %(message)s")
    t = threading.Timer(limit, os._exit, (0,))
    t.daemon = True
    t.start()
    taken = 0
    while True:
        msg = conn_in.get()
        if msg is None:
            return
        ack_id, rid, block = msg
        hashlib.blake2b(block).hexdigest()
        time.sleep(len(block) / bandwidth)
        taken += 1
        if taken % 200 == 0:
            logging.info("%d blocks written", taken)
        conn_out.put((ack_id, rid))


class StoreWriter:
    def __init__(self, to_store, from_store):
        self.to_store, self.from_store = to_store, from_store

    def submit(self, ack_id, rid, host):
        self.to_store.put((ack_id, rid, host.numpy().tobytes()))

    def drain_acks(self):
        acks = []
        while True:
            try:
                acks.append(self.from_store.get_nowait())
            except queue.Empty:
                return acks
