import torch


class VariantStream:
    def __init__(self, args, seed):
        self.args = args
        self.g = torch.Generator().manual_seed(seed)
        self.w = torch.randn(args.channels, args.tasks, generator=torch.Generator().manual_seed(5))

    def batch(self):
        a = self.args
        x = torch.randn(a.batch, a.channels, a.length, generator=self.g)
        noise = torch.randn(a.batch, a.tasks, generator=self.g)
        return x, (x.mean(2) * 3 @ self.w + noise > 0).int()
