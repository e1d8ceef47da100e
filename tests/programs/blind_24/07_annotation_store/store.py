"""Annotations of a collection: an append-only journal and a compacted base file."""
import contextlib
import fcntl
import json
import os


class FileLock:
    """Advisory lock on a side file, for use by several processes."""

    def __init__(self, path):
        self.path = path
        self.fd = None

    def acquire(self):
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def release(self):
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        os.close(self.fd)
        self.fd = None


@contextlib.contextmanager
def locked(path):
    lock = FileLock(path)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


class AnnotationStore:
    def __init__(self, folder, max_journal=96 * 1024):
        self.base = os.path.join(folder, "annotations.json")
        self.journal = os.path.join(folder, "journal.jsonl")
        self.lock = os.path.join(folder, ".lock")
        self.max_journal = max_journal

    def _load_base(self):
        if not os.path.exists(self.base):
            return {}
        with open(self.base) as f:
            return json.load(f)

    def _journal_rows(self):
        if not os.path.exists(self.journal):
            return []
        with open(self.journal) as f:
            return [json.loads(line) for line in f]

    def add(self, image_id, boxes, author):
        """Appends one image's boxes; folds the journal into the base when it has become long."""
        row = {"image": image_id, "boxes": boxes, "author": author}
        with locked(self.lock):
            with open(self.journal, "a") as f:
                f.write(json.dumps(row) + "\n")
            if os.path.getsize(self.journal) > self.max_journal:
                self.compact()

    def compact(self):
        with locked(self.lock):
            merged = self._load_base()
            for row in self._journal_rows():
                merged[row["image"]] = {"boxes": row["boxes"], "author": row["author"]}
            tmp = self.base + ".new"
            with open(tmp, "w") as f:
                json.dump(merged, f)
            os.replace(tmp, self.base)
            open(self.journal, "w").close()

    def count(self):
        with locked(self.lock):
            images = set(self._load_base())
            images.update(row["image"] for row in self._journal_rows())
        return len(images)
