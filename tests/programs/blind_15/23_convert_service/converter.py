"""Worker processes that turn a document into text, markup and page pictures."""
import base64
import hashlib
import logging
import random
import signal
import time

log = logging.getLogger("converter")


class DocumentConverter:
    def __init__(self, picture_kib=160):
        self.picture_kib = picture_kib

    def convert(self, source, options):
        rng = random.Random(int(hashlib.sha256(source.encode()).hexdigest()[:12], 16))
        pages = []
        for number in range(options.get("pages", 4)):
            words = [f"word{rng.randrange(5000)}" for _ in range(600)]
            picture = rng.randbytes(self.picture_kib * 1024)
            pages.append({"number": number, "text": " ".join(words),
                          "markdown": "\n".join(f"- {w}" for w in words[:200]),
                          "image": base64.b64encode(picture).decode()})
            time.sleep(options.get("seconds_per_page", 0.05))
        return {"name": source.rsplit("/", 1)[-1], "pages": pages}


def convert_worker(index, task_queue, result_queue):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    converter = DocumentConverter()
    n = 0
    while True:
        task_id, source, options = task_queue.get()
        try:
            document = converter.convert(source, options)
            result_queue.put((task_id, "success", document))
        except Exception as e:
            result_queue.put((task_id, "failure", repr(e)))
        n += 1
        if n % 50 == 0:
            log.info("worker %d has converted %d documents", index, n)
