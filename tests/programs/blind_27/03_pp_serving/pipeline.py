"""Virtual pipeline: rank r holds the layer chunks r, r + P, r + 2P, ..."""
import logging
import time
from collections import deque

import torch
import torch.nn as nn

logger = logging.getLogger("pipeline")


class LayerChunk(nn.Module):
    def __init__(self, dim, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.SiLU(), nn.Linear(4 * dim, dim))
                                    for _ in range(layers))

    def forward(self, hidden):
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        return hidden


class VirtualPipelineRunner:
    def __init__(self, pp, virtual_size, dim, layers):
        torch.manual_seed(pp.rank)
        self.pp, self.virtual_size, self.dim = pp, virtual_size, dim
        self.chunks = [LayerChunk(dim, layers).eval() for _ in range(virtual_size)]
        self.handles = deque()
        self.finished = 0

    def _forward(self, chunk, tensors):
        return {"hidden_states": self.chunks[chunk](tensors["hidden_states"]), "residual": tensors["hidden_states"]}

    def _send(self, tensors):
        while len(self.handles) > 8:
            self.handles.popleft()[0].wait()
        self.handles.extend(self.pp.isend_tensor_dict(tensors, self.pp.next_rank))

    @torch.no_grad()
    def run_batch(self, microbatches):
        """Runs one scheduled batch; `microbatches` is a list of token counts, the same on all ranks."""
        last = self.pp.rank == self.pp.world_size - 1
        for chunk in range(self.virtual_size):
            fold = self.pp.rank == 0 and chunk > 0
            if fold:
                inputs = [self.pp.recv_tensor_dict(self.pp.prev_rank) for _ in microbatches]
            for i, tokens in enumerate(microbatches):
                if self.pp.rank == 0:
                    tensors = inputs[i] if fold else {"hidden_states": torch.randn(tokens, self.dim)}
                else:
                    tensors = self.pp.recv_tensor_dict(self.pp.prev_rank)
                out = self._forward(chunk, tensors)
                if not (last and chunk == self.virtual_size - 1):
                    self._send(out)
        self.finished += len(microbatches)


class Engine:
    def __init__(self, runner, args):
        self.runner, self.args = runner, args
        self.gen = torch.Generator().manual_seed(args.seed)

    def schedule(self, step):
        if step < self.args.warmup_steps:
            return [int(torch.randint(1, 64, (1,), generator=self.gen))]
        prompt = int(torch.randint(256, 2048, (1,), generator=self.gen))
        budget = self.args.max_num_batched_tokens
        return [min(budget, prompt - start) for start in range(0, prompt, budget)]

    def run(self):
        tic = time.time()
        for step in range(self.args.num_steps):
            self.runner.run_batch(self.schedule(step))
            time.sleep(self.args.step_interval)
            if (step + 1) % 5 == 0:
                logger.info("step %d: %d microbatches done (%.2f s)", step + 1, self.runner.finished, time.time() - tic)
                tic = time.time()
