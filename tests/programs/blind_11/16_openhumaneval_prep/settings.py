import json
import os
import random
from dataclasses import dataclass


@dataclass
class Settings:
    workdir: str
    num_problems: int = 1640
    vocab_size: int = 4096
    max_len: int = 96
    batch_size: int = 16
    warmup_seconds: float = 5.0
    num_proc: int = 2

    @property
    def raw_path(self):
        return os.path.join(self.workdir, "humaneval_raw.jsonl")


WORDS = ("def return for in range len list dict sum max min sorted if else not "
         "lambda x y z n k s text items numbers result index value count str int").split()


def ensure_raw_problems(settings):
    if os.path.exists(settings.raw_path):
        return
    rng = random.Random(7)
    with open(settings.raw_path, "w") as f:
        for i in range(settings.num_problems):
            body = " ".join(rng.choice(WORDS) for _ in range(rng.randint(60, 300)))
            f.write(json.dumps({"task_id": f"HumanEval/{i}", "prompt": body}) + "\n")
