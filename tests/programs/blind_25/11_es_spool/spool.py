"""File based task spool: tasks are claimed with a rename, so that any number of workers can share it."""
import os
import pickle


class Spool:
    def __init__(self, root):
        self.root = root
        self.dirs = {d: os.path.join(root, d) for d in ("pending", "claimed", "done")}
        for d in self.dirs.values():
            os.makedirs(d, exist_ok=True)

    def _write(self, folder, name, obj):
        tmp = os.path.join(self.root, f".{name}.tmp")
        with open(tmp, "wb") as f:
            pickle.dump(obj, f, protocol=pickle.HIGHEST_PROTOCOL)
        os.rename(tmp, os.path.join(self.dirs[folder], name))

    def put_task(self, name, task):
        self._write("pending", name, task)

    def claim(self):
        """The oldest pending task as (name, task), or None."""
        for name in sorted(os.listdir(self.dirs["pending"])):
            held = os.path.join(self.dirs["claimed"], name)
            try:
                os.rename(os.path.join(self.dirs["pending"], name), held)
            except FileNotFoundError:
                continue
            with open(held, "rb") as f:
                return name, pickle.load(f)
        return None

    def finish(self, name, result):
        self._write("done", name, result)
        os.unlink(os.path.join(self.dirs["claimed"], name))

    def collect(self):
        out = {}
        for name in os.listdir(self.dirs["done"]):
            path = os.path.join(self.dirs["done"], name)
            with open(path, "rb") as f:
                out[name] = pickle.load(f)
            os.unlink(path)
        return out
