import logging
import queue
import threading

import torch

from generate import BatchGenerator
from model import Decoder, Encoder

log = logging.getLogger("server")


class ModelServer:
    """Embeddings are answered on the main thread, chat completions on a generation thread."""

    def __init__(self, requests, replies, max_tokens):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.requests = requests
        self.replies = replies
        self.max_tokens = max_tokens
        self.encoder = Encoder().eval()
        self.decoder = Decoder().eval()
        self.chat_queue = queue.Queue()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._generate, name="generate", daemon=True)

    def _next_request(self, timeout=None):
        try:
            if timeout is not None:
                return self.chat_queue.get(timeout=timeout)
            return self.chat_queue.get_nowait()
        except queue.Empty:
            return None

    def _generate(self):
        batch_generator = None
        batch_results = {}
        while not self.stop.is_set():
            timeout = None if batch_generator is not None else 0.1
            request = self._next_request(timeout)
            if request is not None:
                if batch_generator is None:
                    batch_generator = BatchGenerator(self.decoder, self.max_tokens)
                uid = batch_generator.insert(request["tokens"])
                batch_results[uid] = request
                log.info("chat request %d joined the batch", request["id"])
                continue
            if batch_generator is not None:
                for uid, tokens in batch_generator.step():
                    req = batch_results.pop(uid)
                    self.replies["chat"].put({"id": req["id"], "tokens": tokens})
                    log.info("chat request %d finished", req["id"])

    def run(self):
        self.thread.start()
        log.info("ready")
        while True:
            request = self.requests.get()
            if request is None:
                break
            if request["kind"] == "chat":
                self.chat_queue.put(request)
            else:
                vec = self.encoder.embed(request["tokens"])
                self.replies["embed"].put({"id": request["id"], "embedding": vec})
        self.stop.set()
        self.thread.join()
