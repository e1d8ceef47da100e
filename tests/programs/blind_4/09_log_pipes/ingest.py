import random
import time


def parse_file(name):
    rng = random.Random(name)
    rows = [(rng.random(), rng.gauss(0, 1)) for _ in range(4000)]
    time.sleep(0.25)
    return len(rows), sum(1 for a, b in rows if abs(b) > 3.5)


def ingest_worker(index, files, log_conn):
    for name in files:
        rows, odd = parse_file(name)
        log_conn.send(("INFO", f"{name}: {rows} rows"))
        if odd:
            log_conn.send(("WARNING", f"{name}: {odd} rows outside 3.5 sigma"))
    log_conn.send(("INFO", f"worker {index} has finished {len(files)} files"))
