import logging
import queue
import threading

import torch
import torch.multiprocessing as mp
from torch import nn

log = logging.getLogger("executor")


class Denoiser(nn.Module):
    def __init__(self, channels=4, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1), nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.SiLU(),
            nn.Conv2d(width, channels, 3, padding=1))
        self.decode = nn.Sequential(nn.Conv2d(channels, 3, 1), nn.Upsample(scale_factor=8))

    @torch.inference_mode()
    def generate(self, prompt_seed, steps, device):
        gen = torch.Generator().manual_seed(prompt_seed)
        x = torch.randn(1, 4, 56, 56, generator=gen).to(device)
        for _ in range(steps):
            x = x - 0.1 * self.net(x)
        return self.decode(x).clamp(-1, 1)


def diffusion_worker(requests, outputs):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    model = Denoiser().to(device).eval()
    while True:
        request_id, seed, steps = requests.get()
        image = model.generate(seed, steps, device)
        outputs.put((request_id, image.cpu().numpy()))


class MultiprocExecutor:
    """Owns the diffusion workers and delivers their outputs to request handlers."""

    def __init__(self, n_workers):
        ctx = mp.get_context("spawn")
        self.requests = ctx.Queue()
        self.outputs = ctx.Queue()
        self.workers = [ctx.Process(target=diffusion_worker, args=(self.requests, self.outputs),
                                    daemon=True) for _ in range(n_workers)]
        self._ready = threading.Condition()
        self._completed_outputs = {}
        self.delivered = 0

    def start(self):
        for w in self.workers:
            w.start()
        threading.Thread(target=self._output_loop, name="outputs", daemon=True).start()

    def _output_loop(self):
        while True:
            request_id, image = self.outputs.get()
            with self._ready:
                self._completed_outputs[request_id] = image
                self._ready.notify_all()

    def submit(self, request_id, seed, steps):
        self.requests.put((request_id, seed, steps))

    def wait_output_ready(self, request_id, timeout):
        with self._ready:
            if not self._ready.wait_for(lambda: request_id in self._completed_outputs, timeout):
                raise queue.Empty
            self.delivered += 1
            return self._completed_outputs.pop(request_id)
