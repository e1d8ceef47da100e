from contextlib import contextmanager
from functools import partial

import torch
from torch import nn
import torch.nn.functional as F


class LoraLayer(nn.Module):
    """A linear layer with several low-rank adapters, mixed by scalings given per token."""

    def __init__(self, base, num_adapters, rank, index):
        super().__init__()
        self.base = base
        self.index = index
        self.down = nn.Parameter(torch.randn(num_adapters, base.in_features, rank) * 0.02)
        self.up = nn.Parameter(torch.zeros(num_adapters, rank, base.out_features))

    def forward(self, x, scalings=None):
        y = self.base(x)
        if scalings is None:
            return y
        weights = scalings[:, :, self.index]
        delta = torch.einsum("btd,adr->btar", x, self.down)
        delta = torch.einsum("btar,aro,bta->bto", delta, self.up, weights)
        return y + delta


class Block(nn.Module):
    def __init__(self, dim, num_adapters, rank, index):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mix = nn.Linear(dim, dim)
        self.lora = LoraLayer(nn.Linear(dim, dim), num_adapters, rank, index)

    def forward(self, x):
        h = self.norm(x)
        context = h.cumsum(1) / torch.arange(1, h.shape[1] + 1).view(1, -1, 1)
        return x + self.lora(F.gelu(self.mix(context)))


class BaseModel(nn.Module):
    def __init__(self, vocab=512, dim=48, layers=6, num_adapters=8, rank=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, num_adapters, rank, i) for i in range(layers))
        self.head = nn.Linear(dim, vocab)

    def hidden(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, tokens):
        return self.head(self.hidden(tokens))


class XLoraClassifier(nn.Module):
    """Predicts a scaling of every adapter for each token and layer."""

    def __init__(self, dim, layers, num_adapters):
        super().__init__()
        self.layers, self.num_adapters = layers, num_adapters
        self.net = nn.Linear(dim, layers * num_adapters)

    def forward(self, hidden):
        b, t, _ = hidden.shape
        return self.net(hidden).view(b, t, self.layers, self.num_adapters).softmax(-1)


class XLoraModel(nn.Module):
    def __init__(self, model, dim=48, layers=6, num_adapters=8):
        super().__init__()
        self.model = model
        self.classifier = XLoraClassifier(dim, layers, num_adapters)

    @contextmanager
    def _enable_forward_hooks(self):
        def inject_scalings(target, args, kwargs, scalings):
            kwargs["scalings"] = scalings
            return args, kwargs

        handles_to_remove = None

        def pre_forward(module, args):
            nonlocal handles_to_remove
            tokens = args[0]
            scalings = self.classifier(self.model.embed(tokens))
            handles = []
            for layer in self.model.modules():
                if isinstance(layer, LoraLayer):
                    hook = partial(inject_scalings, scalings=scalings)
                    handles.append(layer.register_forward_pre_hook(hook, with_kwargs=True))
            handles_to_remove = handles

        forward_handle = self.model.register_forward_pre_hook(pre_forward)
        try:
            yield
        finally:
            for handle in handles_to_remove or []:
                handle.remove()
            forward_handle.remove()

    @torch.no_grad()
    def generate(self, tokens, max_new_tokens, temperature=1.0):
        with self._enable_forward_hooks():
            for _ in range(max_new_tokens):
                logits = self.model(tokens)[:, -1] / temperature
                new = torch.multinomial(logits.softmax(-1), 1)
                tokens = torch.cat([tokens, new], dim=1)
        return tokens
