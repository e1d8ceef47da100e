import hashlib
import logging
import os
import threading
import time
from difflib import SequenceMatcher

log = logging.getLogger("issues")


def exit_with_parent(every=2.0):
    """Ends this process soon after its parent is gone."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(every)
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


class IssueDetector:
    """Collects the SEO problems of a crawl while it is going on."""

    def __init__(self, duplicate_threshold=0.85):
        self.duplicate_threshold = duplicate_threshold
        self.pages = []
        self.issues = []
        self.fingerprints = set()

    def add(self, page):
        self.check_title(page)
        self.check_meta(page)
        self.check_duplicates(page)
        self.pages.append(page)

    def check_title(self, page):
        n = len(page["title"])
        if n < 20 or n > 60:
            self.issues.append(("title-length", page["url"], n))

    def check_meta(self, page):
        if not page["description"]:
            self.issues.append(("missing-description", page["url"], None))

    def check_duplicates(self, page):
        text = page["text"]
        fingerprint = hashlib.md5(text.encode()).hexdigest()
        if fingerprint in self.fingerprints:
            self.issues.append(("exact-duplicate", page["url"], fingerprint))
        self.fingerprints.add(fingerprint)
        for other in self.pages:
            ratio = SequenceMatcher(None, text, other["text"]).ratio()
            if ratio >= self.duplicate_threshold:
                self.issues.append(("near-duplicate", page["url"], (other["url"], round(ratio, 3))))


def detector_main(pages, summary, threshold):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    exit_with_parent()
    detector = IssueDetector(threshold)
    window, since = 0, time.time()
    while True:
        page = pages.get()
        if page is None:
            break
        detector.add(page)
        window += 1
        if time.time() - since >= 5:
            log.info("%d pages audited, %.1f pages/s, %d issues",
                     len(detector.pages), window / (time.time() - since), len(detector.issues))
            window, since = 0, time.time()
    summary.put({"pages": len(detector.pages), "issues": len(detector.issues)})
