import json
import random
import time

from store import RequestStore


def generate(payload, rng):
    time.sleep(0.08)
    return " ".join(rng.choice(("the", "a", "red", "dog", "runs")) for _ in range(payload["max_tokens"]))


def sampler_main(db, index):
    store = RequestStore(db)
    rng = random.Random(index)
    while True:
        row = store.claim()
        if row is None:
            time.sleep(0.05)
            continue
        request_id, payload = row
        store.finish(request_id, {"text": generate(json.loads(payload), rng), "sampler": index})
