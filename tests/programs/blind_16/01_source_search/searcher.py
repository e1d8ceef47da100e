import logging
import multiprocessing as mp
import os
import re
import time

log = logging.getLogger("arrow")
_ctx = mp.get_context("fork")


class Indexer(_ctx.Process):
    """Walks the tree and hands out file names, then one end mark per worker."""

    def __init__(self, root, files, n_workers):
        super().__init__(name="indexer")
        self.root, self.files, self.n_workers = root, files, n_workers

    def run(self):
        for base, _dirs, names in os.walk(self.root):
            for name in sorted(names):
                if name.endswith(".py"):
                    self.files.put(os.path.join(base, name))
        for _ in range(self.n_workers):
            self.files.put(None)


class SearchWorker(_ctx.Process):
    def __init__(self, index, term, files, output):
        super().__init__(name=f"search-{index}")
        self.regex = re.compile(re.escape(term))
        self.files, self.output = files, output

    def run(self):
        n = 0
        while True:
            path = self.files.get()
            if path is None:
                break
            with open(path, encoding="utf-8", errors="ignore") as handle:
                for number, line in enumerate(handle, 1):
                    hit = self.regex.search(line)
                    if hit:
                        self.output.put((path, number, hit.span(), line.rstrip()))
                        n += 1
            time.sleep(0.006)  # parse
        self.output.put(None)
        log.info("finished, %d matches", n)


class Printer(_ctx.Process):
    """Formats matches as they come in and reports how many were shown."""

    def __init__(self, output, final, n_workers, limit):
        super().__init__(name="printer")
        self.output, self.final = output, final
        self.n_workers, self.limit = n_workers, limit

    def run(self):
        shown = ended = 0
        while ended < self.n_workers and shown < self.limit:
            item = self.output.get()
            if item is None:
                ended += 1
                continue
            path, number, (a, b), line = item
            text = f"{os.path.basename(path)}:{number}: {line[:a]}[{line[a:b]}]{line[b:]}"
            shown += 1
            if shown % 50 == 1:
                log.info("%s", text[:100])
        self.final.put(shown)
        log.info("printer finished, %d shown", shown)
