"""Token generation with a tensor parallel decoder."""
import torch
from torch import nn

from parallel import ParallelMLP


class Block(nn.Module):
    def __init__(self, dim, heads, hidden, rank, world, generator):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Parameter(torch.randn(3 * dim, dim, generator=generator) / dim ** 0.5, requires_grad=False)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = ParallelMLP(dim, hidden, rank, world, generator)

    def forward(self, x):
        t, d = x.shape
        q, k, v = (self.norm1(x) @ self.qkv.T).view(t, 3, self.heads, d // self.heads).permute(1, 2, 0, 3)
        att = nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        x = x + att.permute(1, 0, 2).reshape(t, d)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, args, rank, world):
        super().__init__()
        gen = torch.Generator().manual_seed(args.weights_seed)
        self.embed = nn.Parameter(torch.randn(args.vocab, args.dim, generator=gen), requires_grad=False)
        self.blocks = nn.ModuleList(
            Block(args.dim, args.heads, 4 * args.dim, rank, world, gen) for _ in range(args.layers))
        self.norm = nn.LayerNorm(args.dim)

    def forward(self, tokens):
        x = self.embed[tokens]
        for block in self.blocks:
            x = block(x)
        return self.norm(x[-1]) @ self.embed.T / x.shape[-1] ** 0.5


class TokenGenerator:
    def __init__(self, model, stop_tokens):
        self.model = model
        self.stop_tokens = set(stop_tokens)

    @torch.inference_mode()
    def generate(self, prompt_tokens, temperature=1.0, max_tokens=256):
        tokens = list(prompt_tokens)
        produced = 0
        while produced < max_tokens:
            logits = self.model(torch.as_tensor(tokens))
            if temperature == 0.0:
                predicted = int(torch.argmax(logits))
            else:
                probs = torch.softmax(logits / temperature, dim=-1)
                predicted = int(torch.multinomial(probs, num_samples=1))
            produced += 1
            if predicted in self.stop_tokens:
                break
            tokens.append(predicted)
            yield predicted
