import argparse
import json
import logging
import sys
import time

import torch

from beam import Beam
from seq2seq import Summarizer

log = logging.getLogger("summarize")


def parse_args():
    ap = argparse.ArgumentParser(description="Summarise a collection with beam search")
    ap.add_argument("--device", default="cuda:0")
    ap.add_argument("--documents", type=int, default=4000)
    ap.add_argument("--encode-batch", type=int, default=16)
    ap.add_argument("--index-documents", type=int, default=960, help="documents encoded for the index")
    ap.add_argument("--beam-size", type=int, default=6)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--max-length", type=int, default=90)
    ap.add_argument("--output", default="summaries.jsonl")
    return ap.parse_args()


def read_documents(count, batch, seed=4, vocab=4000, read_time=0.08):
    gen = torch.Generator().manual_seed(seed)
    for start in range(0, count, batch):
        time.sleep(read_time)
        yield start, torch.randint(4, vocab, (min(batch, count - start), 200), generator=gen)


@torch.no_grad()
def build_index(model, args):
    """Mean encoder states, to find near duplicates."""
    states = []
    for _, documents in read_documents(args.index_documents, args.encode_batch):
        _, last = model.encode(documents.to(args.device))
        states.append(torch.nn.functional.normalize(last, dim=-1).cpu())
    states = torch.cat(states)
    return int(((states @ states.T) > 0.999).sum()) - len(states)


@torch.no_grad()
def decode_batch(model, documents, args):
    memory, last = model.encode(documents.to(args.device))
    memory = memory.repeat_interleave(args.beam_size, dim=0)
    hidden = last.repeat_interleave(args.beam_size, dim=0)
    beams = [Beam(args.beam_size, args.device) for _ in range(len(documents))]
    for _ in range(args.max_length):
        tokens = torch.cat([b.current() for b in beams])
        logp, hidden = model.step(tokens, hidden, memory)
        logp = logp.view(len(beams), args.beam_size, -1)
        order = []
        for i, beam in enumerate(beams):
            order.append(beam.advance(logp[i]) + i * args.beam_size)
        hidden = hidden[torch.cat(order)]
        if all(b.done(args.max_length) for b in beams):
            break
    return [b.result() for b in beams]


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(2)
    model = Summarizer().to(args.device).eval()
    log.info("%d near duplicates in the index", build_index(model, args))
    started, finished = time.time(), 0
    with open(args.output, "w") as out:
        for start, documents in read_documents(args.documents, args.batch, seed=9):
            for offset, tokens in enumerate(decode_batch(model, documents, args)):
                out.write(json.dumps({"document": start + offset, "summary": tokens}) + "\n")
            finished += len(documents)
            rate = finished / (time.time() - started)
            log.info("%d documents, %.2f documents/s", finished, rate)


if __name__ == "__main__":
    main()
