"""The benchmark as a ready-to-use dataset: ``from problems import the_dataset``."""
import hashlib
import json
import logging
import os

from settings import Settings
from tables import Table

log = logging.getLogger("evalcode.problems")

_settings = Settings(workdir=os.environ.get("EVALCODE_WORKDIR", "."))


def token_id(word):
    return int(hashlib.md5(word.encode()).hexdigest(), 16) % _settings.vocab_size


def encode(item):
    ids = [token_id(w) for w in item["prompt"].split()][:_settings.max_len]
    ids += [0] * (_settings.max_len - len(ids))
    return {"task_id": item["task_id"], "input_ids": ids}


def load_raw(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


the_dataset = Table(load_raw(_settings.raw_path))
log.info("loaded %d rows from %s", len(the_dataset), os.path.basename(_settings.raw_path))
the_dataset = the_dataset.map(encode, num_proc=_settings.num_proc)
