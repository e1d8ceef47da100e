"""Engine and detokenizer processes."""
import logging
import os
import threading

import torch
import torch.nn as nn

from ipc import Channel

log = logging.getLogger("engine")


def limit_walltime(seconds):
    timer = threading.Timer(seconds, lambda: os._exit(0))
    timer.daemon = True
    timer.start()


class TinyLM(nn.Module):
    def __init__(self, vocab, dim, layers):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 8, 4 * dim, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocab)

    @torch.no_grad()
    def next_token(self, ids):
        return int(self.head(self.blocks(self.emb(ids))[:, -1]).argmax(-1))


class Engine:
    def __init__(self, args, device):
        self.args, self.device = args, device
        torch.manual_seed(0)
        self.model = TinyLM(args.vocab, args.dim, args.layers).to(device).eval()
        self.generate([1, 2, 3], 2)

    def generate(self, prompt, max_tokens):
        out = list(prompt)
        for _ in range(max_tokens):
            window = torch.tensor([out[-self.args.context:]], device=self.device)
            out.append(self.model.next_token(window))
        return out[len(prompt):]


def engine_main(args, sock, to_detok, ready):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    limit_walltime(args.time_limit)
    torch.set_num_threads(1)
    channel = Channel(sock)
    engine = Engine(args, "cuda" if torch.cuda.is_available() else "cpu")
    log.info("engine ready")
    ready.set()
    while True:
        request = channel.recv()
        tokens = engine.generate(request["prompt"], request["max_tokens"])
        to_detok.put((request["id"], tokens))


def detokenizer_main(args, from_engine, to_frontend):
    limit_walltime(args.time_limit)
    while True:
        request_id, tokens = from_engine.get()
        text = " ".join(f"w{t}" for t in tokens)
        to_frontend.put((request_id, text))
