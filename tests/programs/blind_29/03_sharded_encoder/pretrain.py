import logging
import time

import torch
import torch.distributed as dist

from model import SpeechEncoder
from sharding import average_gradients


def utterances(batch, frames, n_mels, n_units, generator):
    units = torch.randint(n_units, (batch, frames), generator=generator)
    mels = torch.sin(units.unsqueeze(-1) * torch.arange(1, n_mels + 1) * 0.05)
    return mels + 0.3 * torch.randn(batch, frames, n_mels, generator=generator), units


def run_rank(rank, world, store_port, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    log = logging.getLogger("pretrain")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{store_port}", rank=rank, world_size=world)

    torch.manual_seed(args.seed)
    model = SpeechEncoder(layers=args.layers, layerdrop=args.layerdrop)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    torch.manual_seed(args.seed + rank)
    generator = torch.Generator().manual_seed(args.seed + rank)

    model.train()
    start = time.monotonic()
    for step in range(1, args.steps + 1):
        mels, units = utterances(args.batch_size, 60, 40, 64, generator)
        masked = mels * (torch.rand(mels.shape[:2]) > args.mask_prob).unsqueeze(-1)
        loss = torch.nn.functional.cross_entropy(model(masked).flatten(0, 1), units.flatten())
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model.stem)
        average_gradients(model.head)
        optimizer.step()
        if rank == 0 and step % args.log_every == 0:
            log.info("step %d loss %.4f (%.2f s/step)", step, loss.item(), (time.monotonic() - start) / step)
    dist.destroy_process_group()
