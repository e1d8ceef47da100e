import json
import os


class ConfigFile:
    """Hyperparameters that may be edited while the run is going."""

    DEFAULT = {"epsilon": 0.3, "lr": 1e-3, "episode_length": 40}

    def __init__(self, path):
        self.path = path
        if not os.path.exists(path):
            self.write(self.DEFAULT)

    def read(self):
        with open(self.path) as f:
            return json.load(f)

    def write(self, values):
        tmp = self.path + ".new"
        with open(tmp, "w") as f:
            json.dump(values, f)
        os.replace(tmp, self.path)

    def mtime(self):
        return os.stat(self.path).st_mtime_ns
