"""A tensor parallel decoder stub: every rank holds a slice of each layer."""
import torch
import torch.distributed as dist


class ParallelMLP:
    def __init__(self, hidden, inner, rank, world, group, seed):
        gen = torch.Generator().manual_seed(seed)
        up = torch.randn(hidden, inner, generator=gen) / hidden ** 0.5
        down = torch.randn(inner, hidden, generator=gen) / inner ** 0.5
        part = inner // world
        self.up = up[:, rank * part:(rank + 1) * part].contiguous()
        self.down = down[rank * part:(rank + 1) * part].contiguous()
        self.group = group

    def __call__(self, x):
        out = torch.relu(x @ self.up) @ self.down
        dist.all_reduce(out, group=self.group)
        return x + out


class Decoder:
    def __init__(self, args, rank, world, group):
        gen = torch.Generator().manual_seed(args.seed)
        self.vocab = 512
        self.slots = args.max_running
        self.embedding = torch.randn(self.vocab, args.hidden, generator=gen)
        self.layers = [ParallelMLP(args.hidden, args.inner, rank, world, group, args.seed + i)
                       for i in range(args.layers)]

    @torch.no_grad()
    def decode(self, tokens):
        """One step for all slots; short batches are padded to the captured size."""
        padded = torch.zeros(self.slots, dtype=torch.long)
        padded[:len(tokens)] = torch.tensor(tokens)
        x = self.embedding[padded]
        for layer in self.layers:
            x = torch.nn.functional.layer_norm(layer(x), x.shape[-1:])
        return (x @ self.embedding.T).argmax(-1)[:len(tokens)].tolist()
