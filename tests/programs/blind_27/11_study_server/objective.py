import torch
import torch.nn as nn
import torch.nn.functional as F


def make_data(n=256, dim=8, seed=3):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dim, generator=gen)
    y = torch.sin(x.sum(dim=1, keepdim=True)) + 0.1 * torch.randn(n, 1, generator=gen)
    return x, y


def evaluate(params, data, steps=120):
    x, y = data
    hidden = int(params["hidden"])
    model = nn.Sequential(nn.Linear(x.shape[1], hidden), nn.Tanh(), nn.Linear(hidden, 1))
    weights = list(model.parameters())
    velocity = [torch.zeros_like(w) for w in weights]
    curve = []
    for _ in range(steps):
        loss = F.mse_loss(model(x + params["noise"] * torch.randn_like(x)), y)
        grads = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for w, v, g in zip(weights, velocity, grads):
                v.mul_(params["momentum"]).add_(g.clamp(-1.0, 1.0) + params["weight_decay"] * w)
                w.sub_(params["lr"] * v)
        curve.append(loss.item())
    with torch.no_grad():
        value = float(F.mse_loss(model(x), y))
    return value, curve


def run_worker(idx, conn):
    torch.set_num_threads(1)
    torch.manual_seed(idx)
    data = make_data()
    while True:
        conn.send(("ask", None))
        number, params = conn.recv()
        value, curve = evaluate(params, data)
        conn.send(("tell", (number, value, curve)))
