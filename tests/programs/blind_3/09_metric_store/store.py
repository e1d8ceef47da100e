import json
import os


class DataStoreWriter:
    def __init__(self, path):
        self.f = open(path, "ab")

    def write(self, record):
        self.f.write(json.dumps(record).encode() + b"\n")
        self.f.flush()
        os.fsync(self.f.fileno())

    def close(self):
        self.f.close()


class Run:
    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.writer = DataStoreWriter(os.path.join(folder, f"run-{os.getpid()}.log"))

    def log(self, step, values):
        for key, value in values.items():
            self.writer.write({"step": step, "key": key, "value": value})
