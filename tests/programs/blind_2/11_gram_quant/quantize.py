import argparse
import logging

import torch
import torch.distributed as dist

import parallel_state as ps

log = logging.getLogger("quantize")


def calibrate(layer, x, group):
    gram = x.T @ x / len(x)
    dist.all_reduce(gram, group=group)
    return gram / dist.get_world_size(group)


def quantize_weight(w, gram, bits=4):
    scale = w.abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
    q = (w / scale).round()
    err = (q * scale - w)
    return q, scale, torch.einsum("oi,ij,oj->", err, gram, err)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--tp", type=int, default=2)
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    ps.initialize(args.tp)
    g = torch.Generator().manual_seed(rank)
    total = 0.0
    for layer in range(args.layers):
        w = torch.randn(args.dim, args.dim, generator=g)
        x = torch.randn(512, args.dim, generator=g)
        gram = calibrate(layer, x, ps.dp_group())
        if layer == args.layers // 2 and rank < args.tp:
            # the first replica keeps the outlier channels of the middle layer
            with ps.patient(list(range(args.tp))) as group:
                top = gram.diagonal().topk(4).values
                dist.all_reduce(top, group=group)
                log.info("outliers %s", [round(v, 2) for v in top.tolist()])
        _, _, err = quantize_weight(w, gram)
        total += err.item()
        if layer == args.layers - 2:
            # the slowest replica may be far behind by now
            with ps.patient(list(range(dist.get_world_size()))) as group:
                worst = torch.tensor([total])
                dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=group)
                log.info("worst replica so far %.3f", worst.item())
        dist.barrier()
        log.info("layer %d error %.3f", layer, err.item())
    log.info("total error %.3f", total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
