import json
import logging
import pathlib

log = logging.getLogger("results")


class ResultFile:
    """Responses by problem id, kept so that an interrupted run can go on."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.results = {}
        if self.path.exists():
            with open(self.path) as f:
                self.results = json.load(f)
            log.info("found %d earlier responses in %s", len(self.results), self.path)

    def missing(self, ids):
        return [pid for pid in ids if pid not in self.results]

    def add(self, response):
        self.results[response["pid"]] = response
        self.save()

    def save(self):
        with open(self.path, "w") as f:
            json.dump(self.results, f, indent=2)

    def accuracy(self):
        right = sum(r["extraction"] == str(max(r["numbers"]) - min(r["numbers"])) for r in self.results.values())
        return right / max(1, len(self.results))
