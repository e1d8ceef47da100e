from dataclasses import dataclass, field

import torch
from torch import nn
import torch.nn.functional as F


@dataclass
class ModelConfig:
    vocab_size: int = 48
    hidden_size: int = 64
    num_heads: int = 4
    layer_types: list = field(default_factory=lambda: [
        "sliding_attention", "full_attention", "chunked_attention",
        "global_attention", "dilated_attention", "local_attention"])
    rope_theta: dict = field(default_factory=lambda: {
        "sliding_attention": 8.0, "full_attention": 2000.0, "chunked_attention": 64.0,
        "global_attention": 1.0e5, "dilated_attention": 500.0, "local_attention": 20.0})
    rope_scaling: dict = field(default_factory=lambda: {
        "sliding_attention": 1.0, "full_attention": 0.25, "chunked_attention": 2.0,
        "global_attention": 0.5, "dilated_attention": 1.5, "local_attention": 0.7})

    @property
    def head_dim(self):
        return self.hidden_size // self.num_heads


class RotaryEmbedding(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layer_types = list(set(config.layer_types))
        for layer_type in self.layer_types:
            theta = config.rope_theta[layer_type]
            exponent = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
            inv_freq = config.rope_scaling[layer_type] * theta ** -exponent
            self.register_buffer(f"{layer_type}_inv_freq", inv_freq, persistent=False)

    def forward(self, positions, layer_type):
        inv_freq = getattr(self, f"{layer_type}_inv_freq")
        angles = positions[:, None].float() * inv_freq[None, :]
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + turned * sin


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.num_heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, config, layer_type):
        super().__init__()
        self.layer_type = layer_type
        self.norm1 = nn.LayerNorm(config.hidden_size)
        self.attn = Attention(config)
        self.norm2 = nn.LayerNorm(config.hidden_size)
        self.mlp = nn.Sequential(nn.Linear(config.hidden_size, 2 * config.hidden_size), nn.GELU(),
                                 nn.Linear(2 * config.hidden_size, config.hidden_size))

    def forward(self, x, cos, sin):
        x = x + self.attn(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class HybridDecoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.rotary = RotaryEmbedding(config)
        self.blocks = nn.ModuleList(Block(config, t) for t in config.layer_types)
        self.norm = nn.LayerNorm(config.hidden_size)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1])
        x = self.embed(tokens)
        for block in self.blocks:
            cos, sin = self.rotary(positions, block.layer_type)
            x = block(x, cos, sin)
        return self.head(self.norm(x))
