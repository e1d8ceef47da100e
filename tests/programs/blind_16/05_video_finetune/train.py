import logging
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from dataset import IterableDatasetShard, VideoDataset

log = logging.getLogger("finetrainers")


class VideoModel(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.prompt = nn.Embedding(100, width)
        self.down = nn.Conv3d(3, width, 3, stride=(1, 2, 2), padding=1)
        self.up = nn.ConvTranspose3d(width, 3, (1, 2, 2), stride=(1, 2, 2))

    def forward(self, video, prompt):
        hidden = F.silu(self.down(video.transpose(1, 2)))
        hidden = hidden + self.prompt(prompt)[:, :, None, None, None]
        return self.up(hidden).transpose(1, 2)


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank}: %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    model = DDP(VideoModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    dataset = VideoDataset(args.clips, args.frames, args.seed)
    shard = IterableDatasetShard(dataset, args.batch_size, args.world_size, rank)
    loader = DataLoader(shard, batch_size=args.batch_size)

    step, data_time, step_time, mark = 0, 0.0, 0.0, time.perf_counter()
    while step < args.steps:
        for batch in loader:
            loaded = time.perf_counter()
            video, noise = batch["video"], torch.randn_like(batch["video"])
            loss = F.mse_loss(model(video + noise, batch["prompt"]), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            now = time.perf_counter()
            data_time, step_time, mark = data_time + loaded - mark, step_time + now - mark, now
            if rank == 0 and step % 10 == 0:
                log.info("step %d/%d, loss %.4f, %.2f s/step (data %.2f s)",
                         step, args.steps, loss.item(), step_time / 10, data_time / 10)
                data_time = step_time = 0.0
            if step == args.steps:
                break
    dist.destroy_process_group()
