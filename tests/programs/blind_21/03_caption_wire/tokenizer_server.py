import logging
import os
import re
import socketserver
import threading
import zlib

import wire

log = logging.getLogger("tokenizer")
WORD = re.compile(r"\w+|[^\w\s]")


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        served = 0
        try:
            while True:
                text = wire.recv_text(self.request)
                ids = [zlib.crc32(w.lower().encode()) % self.server.vocab for w in WORD.findall(text)]
                wire.send_text(self.request, " ".join(map(str, ids)))
                served += 1
                if served % 200 == 0:
                    log.info("%s: %d captions", self.client_address, served)
        except (EOFError, ConnectionError):
            log.info("%s left after %d captions", self.client_address, served)


class TokenizerServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, vocab):
        super().__init__(("127.0.0.1", 0), Handler)
        self.vocab = vocab


def serve(vocab, port_conn, max_seconds):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", force=True)
    limit = threading.Timer(max_seconds, os._exit, (0,))
    limit.daemon = True
    limit.start()
    server = TokenizerServer(vocab)
    port_conn.send(server.server_address[1])
    server.serve_forever()
