"""Fits one image with gaussians: gradient steps, densification and pruning."""
import logging
import time

import torch

from gaussians import Gaussians
from optimizer_manager import OptimizerManager


def scene_image(name, size):
    gen = torch.Generator().manual_seed(sum(map(ord, name)))
    y, x = torch.meshgrid(torch.linspace(0, 1, size), torch.linspace(0, 1, size), indexing="ij")
    image = torch.zeros(size, size, 3)
    for _ in range(12):
        f, phase, colour = torch.rand(2, generator=gen) * 14, torch.rand(1, generator=gen) * 6, torch.rand(3, generator=gen)
        image += torch.sin(f[0] * x + f[1] * y + phase)[..., None] * colour
    return torch.stack([x, y], -1).reshape(-1, 2), image.reshape(-1, 3)


class SplatTrainer:
    def __init__(self, scene, args):
        self.args = args
        self.gen = torch.Generator().manual_seed(args.seed)
        self.points, self.pixels = scene_image(scene, args.image_size)
        self.gaussians = Gaussians(args.gaussians, args.features, self.gen)
        self.manager = OptimizerManager(self.gaussians)

    def step(self):
        pick = torch.randint(len(self.points), (self.args.rays,), generator=self.gen)
        loss = (self.gaussians.render(self.points[pick]) - self.pixels[pick]).abs().mean()
        loss.backward()
        self.gaussians.note_gradients()
        self.manager.step()
        return loss.item()

    def densify_and_prune(self):
        g = self.gaussians
        chosen = g.grad_norm.topk(self.args.densify).indices
        clones = {n: p.detach()[chosen].clone() for n, p in g.params.items()}
        clones["means"] += 0.01 * torch.randn(clones["means"].shape, generator=self.gen)
        self.manager.add(clones)
        surplus = len(g) - self.args.gaussians
        order = g.params["opacity"].detach().squeeze(1).argsort(descending=True)
        self.manager.delete(order[:len(g) - surplus].sort().values)
        g.grad_norm.zero_()


def fit_scene(scene, args, results):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {scene} %(message)s")
    torch.set_num_threads(1)
    trainer = SplatTrainer(scene, args)
    started = time.monotonic()
    for iteration in range(1, args.iterations + 1):
        loss = trainer.step()
        if iteration % args.densify_every == 0:
            trainer.densify_and_prune()
        if iteration % args.report_every == 0:
            results.put((scene, iteration, loss, len(trainer.gaussians), time.monotonic() - started))
