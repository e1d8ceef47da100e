import os
import pickle
import time


class ResultStore:
    """Cache of query results shared by all workers; one file per (query, repository)."""

    def __init__(self, root):
        self.root = root

    def _path(self, query, repo):
        return os.path.join(self.root, "%s-%d.pkl" % (query, repo))

    def put(self, query, repo, rows):
        tmp = self._path(query, repo) + ".%d" % os.getpid()
        with open(tmp, "wb") as f:
            pickle.dump(rows, f)
        os.replace(tmp, self._path(query, repo))

    def get(self, query, repo):
        try:
            with open(self._path(query, repo), "rb") as f:
                return pickle.load(f)
        except FileNotFoundError:
            return None

    def wait_for(self, query, repo):
        rows = self.get(query, repo)
        while rows is None:
            time.sleep(0.25)
            rows = self.get(query, repo)
        return rows
