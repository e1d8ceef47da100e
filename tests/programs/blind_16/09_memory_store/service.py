import logging
import random
import time

from connection import SerializedConnection

log = logging.getLogger("genesis")


def session(path, index, end, busy_timeout):
    """One agent session: stores what it sees in bursts."""
    db = SerializedConnection(path, busy_timeout)
    rng = random.Random(index)
    random.seed(index)
    stored, shown = 0, time.monotonic()
    while time.time() < end:
        for _ in range(rng.randint(1, 6)):
            text = " ".join(rng.choices(("user", "asked", "file", "test", "plan", "note"), k=30))
            with db.transaction() as conn:
                conn.execute("INSERT INTO memories (session, created, content, salience) VALUES (?, ?, ?, 1.0)",
                             (f"mcp-{index}", time.time(), text))
            stored += 1
        if time.monotonic() - shown > 15:
            shown = time.monotonic()
            log.info("%d memories stored, %d retries", stored, db.retries)
        time.sleep(rng.expovariate(4))
    log.info("session over: %d memories, %d retries", stored, db.retries)
    db.close()


def consolidate(path, end, every, busy_timeout):
    """Lets old memories fade and merges them, now and then, in one transaction."""
    db = SerializedConnection(path, busy_timeout)
    while time.time() + every < end:
        time.sleep(every)
        start = time.monotonic()
        with db.transaction() as conn:
            ids = [row[0] for row in conn.execute("SELECT id FROM memories ORDER BY id DESC LIMIT 150")]
            for number in ids:
                conn.execute("UPDATE memories SET salience = salience * 0.95 WHERE id = ?", (number,))
                time.sleep(0.01)  # similarity search in the vector index
        log.info("consolidated %d memories in %.2f s", len(ids), time.monotonic() - start)
    db.close()
