import random
import re

import numpy as np

WORDS = ["price", "city", "travel", "music", "review", "score", "team", "garden", "recipe", "engine"]
TOKEN = re.compile(r"[a-z]+")


def fetch_page(url, size, cache):
    """The page's text; pages of the same host share their navigation, which is kept."""
    host = url.split("/")[2]
    if host not in cache:
        rng = random.Random(host)
        cache[host] = " ".join(rng.choice(WORDS) for _ in range(20000))
    rng = random.Random(url)
    body = " ".join(rng.choice(WORDS) for _ in range(size * 20))
    return cache[host] + "\n" + body


def extract_features(text, buckets=256):
    vector = np.zeros(buckets)
    previous = ""
    for token in TOKEN.findall(text):
        vector[(sum(map(ord, previous)) * 31 + sum(map(ord, token))) % buckets] += 1
        previous = token
    return vector / max(1.0, np.linalg.norm(vector))
