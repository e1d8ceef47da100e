import logging
import time
from multiprocessing.connection import Client

import numpy as np

log = logging.getLogger("client")


def call_server(conn, query):
    conn.send(query)
    return conn.recv()


def run_client(client_id, address, authkey, barrier, query_queue, result_queue, rate, seed):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    rng = np.random.default_rng(seed + client_id)
    conn = Client(address, authkey=authkey)
    call_server(conn, {"id": -1, "tokens": [1, 2, 3], "new_tokens": 2})  # warm-up
    barrier.wait()

    sent = 0
    while not query_queue.empty():
        time.sleep(rng.exponential(1.0 / rate))
        query = query_queue.get()
        start = time.time()
        output = call_server(conn, query)
        result_queue.put({"id": query["id"], "client": client_id, "start": start, "end": time.time(),
                          "new_tokens": len(output)})
        sent += 1
    conn.close()
    log.info("done, %d requests sent", sent)
