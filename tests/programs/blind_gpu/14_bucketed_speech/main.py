import argparse
import logging
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(HERE, "compile_cache")
os.environ["TRITON_CACHE_DIR"] = os.path.join(HERE, "triton_cache")
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"

import torch
import torch._dynamo

from acoustic import AcousticNet

torch._dynamo.config.suppress_errors = True
log = logging.getLogger("speech")


def parse_args():
    ap = argparse.ArgumentParser(description="Frame classification on length buckets, compiled")
    ap.add_argument("--device", default="cuda:0")
    ap.add_argument("--buckets", type=int, nargs="+", default=[160, 320, 640])
    ap.add_argument("--bucket-every", type=float, default=20.0, help="seconds until the next longer bucket joins")
    ap.add_argument("--seconds", type=float, default=100.0)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--read-time", type=float, default=0.05)
    return ap.parse_args()


class BucketLoader:
    """Starts with short utterances and lets longer buckets join one by one."""

    def __init__(self, args, started):
        self.args, self.started = args, started
        self.gen = torch.Generator().manual_seed(0)

    def open_buckets(self):
        count = 1 + int((time.time() - self.started) / self.args.bucket_every)
        return self.args.buckets[:count]

    def next(self):
        time.sleep(self.args.read_time)
        buckets = self.open_buckets()
        frames = buckets[int(torch.randint(len(buckets), (1,), generator=self.gen))]
        features = torch.randn(self.args.batch_size, frames, 80, generator=self.gen)
        return features, (features[..., :40].sum(-1) * 4).long().clamp(-100, 99) + 100


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(2)
    torch.set_float32_matmul_precision("high")
    model = AcousticNet().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    compiled = torch.compile(model, dynamic=False)
    started, seen, step = time.time(), set(), 0
    loader = BucketLoader(args, started)
    while time.time() - started < args.seconds:
        features, states = loader.next()
        begun = time.time()
        logits = compiled(features.to(args.device))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), states.to(args.device).flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        value = loss.item()
        step += 1
        if features.shape[1] not in seen:
            seen.add(features.shape[1])
            log.info("first batch of bucket %d took %.1fs", features.shape[1], time.time() - begun)
        if step % 100 == 0:
            log.info("step %d loss %.4f", step, value)
    log.info("done: %d steps, %d buckets", step, len(seen))
    torch.save(model.state_dict(), os.path.join(HERE, "acoustic.pt"))


if __name__ == "__main__":
    main()
