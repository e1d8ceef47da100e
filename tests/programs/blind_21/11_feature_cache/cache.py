"""On-disk feature cache shared by the extraction workers.

Entries are spread over a fixed number of sections (first hex digit of the key), every section has a
lock of its own so that workers touching different sections do not wait for each other. Hit/miss
counters and the total size are kept in one place for the whole cache.
"""
import contextlib
import hashlib
import logging
import os

import numpy as np

log = logging.getLogger("cache")


class CacheStatistics:
    def __init__(self, ctx):
        self.lock = ctx.RLock()
        self.hits = ctx.Value("q", 0, lock=False)
        self.misses = ctx.Value("q", 0, lock=False)
        self.size = ctx.Value("q", 0, lock=False)

    def register_hit(self):
        with self.lock:
            self.hits.value += 1

    def register_miss(self, nbytes):
        self.misses.value += 1
        self.size.value += nbytes

    def snapshot(self):
        return self.hits.value, self.misses.value, self.size.value


class CacheSection:
    def __init__(self, ctx, root, name):
        self.path = os.path.join(root, name)
        self.lock = ctx.RLock()
        os.makedirs(self.path, exist_ok=True)

    def file_for(self, key):
        return os.path.join(self.path, key + ".npy")

    def load(self, key):
        path = self.file_for(key)
        if not os.path.exists(path):
            return None
        os.utime(path)
        return np.load(path)

    def store(self, key, array):
        path = self.file_for(key)
        with open(path + ".tmp", "wb") as fh:
            np.save(fh, array)
        os.replace(path + ".tmp", path)
        return os.path.getsize(path)

    def entries(self):
        for name in os.listdir(self.path):
            if not name.endswith(".npy"):
                continue
            full = os.path.join(self.path, name)
            with contextlib.suppress(FileNotFoundError):
                st = os.stat(full)
                yield st.st_mtime, st.st_size, full


class FeatureCache:
    def __init__(self, ctx, root, max_bytes, n_sections=8):
        self.max_bytes = max_bytes
        self.stats = CacheStatistics(ctx)
        self.sections = [CacheSection(ctx, root, f"{i:x}") for i in range(n_sections)]

    @staticmethod
    def key(name, size, config):
        return hashlib.sha1(f"{name}|{size}|{config}".encode()).hexdigest()

    def section_for(self, key):
        return self.sections[int(key[:2], 16) % len(self.sections)]

    def get_or_compute(self, key, compute):
        section = self.section_for(key)
        with section.lock:
            found = section.load(key)
            if found is not None:
                self.stats.register_hit()
                return found
            array = compute()
            nbytes = section.store(key, array)
            with self.stats.lock:
                self.stats.register_miss(nbytes)
                if self.stats.size.value > self.max_bytes:
                    self.clean(self.max_bytes * 8 // 10)
            return array

    @contextlib.contextmanager
    def all_sections(self):
        with contextlib.ExitStack() as stack:
            for section in self.sections:
                stack.enter_context(section.lock)
            yield

    def clean(self, target):
        log.info("cache holds %.1f MB, cleaning to %.1f MB", self.stats.size.value / 1e6, target / 1e6)
        with self.all_sections():
            entries = sorted(e for s in self.sections for e in s.entries())
            total = sum(size for _, size, _ in entries)
            for _, size, path in entries:
                if total <= target:
                    break
                os.unlink(path)
                total -= size
            self.stats.size.value = total
