import json
import os
import random

WORDS = [f"w{i:04d}" for i in range(3000)]


def _episode(rng):
    text = " ".join(rng.choices(WORDS, k=rng.randint(8, 30)))
    reply = text.split()[: rng.randint(3, 6)] + rng.choices(WORDS, k=3)
    return {"text": text, "labels": [" ".join(reply)], "episode_done": True}


def write_corpus(folder, shards, episodes=1200):
    """One jsonl file per shard, as the scraper writes them."""
    for s in range(shards):
        rng = random.Random(s)
        with open(os.path.join(folder, f"train-{s:02d}.jsonl"), "w") as f:
            for i in range(episodes):
                ep = _episode(rng)
                if s == 1 and i == 487:
                    ep = {"text": ep["text"], "deleted": True, "episode_done": True}
                f.write(json.dumps(ep) + "\n")
