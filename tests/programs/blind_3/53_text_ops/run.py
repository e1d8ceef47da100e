import argparse, logging, os, random, string, tempfile, time

class NestedDataset:
    def __init__(self, rows, cache_dir): self.rows, self.cache_dir = rows, cache_dir
    def map(self, fn):
        fd, path = tempfile.mkstemp(prefix="hf_datasets-", dir=self.cache_dir)
        out = []
        with os.fdopen(fd, "w") as f:
            for r in self.rows:
                out.append(fn(r))
                f.write(out[-1] + "\n")
        return NestedDataset(out, self.cache_dir)

OPS = [str.strip, str.lower, lambda s: s.replace("e", "3"), lambda s: s[::-1]]

def main():
    p = argparse.ArgumentParser(); p.add_argument("--shards", type=int, default=240)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="juicer-") as cache:
        for k in range(a.shards):
            ds = NestedDataset(["".join(random.choices(string.ascii_letters, k=20)) * 40 for _ in range(500)], cache)
            for op in OPS:
                ds = ds.map(op)
            logging.info("shard %d: %d rows", k, len(ds.rows))
            time.sleep(0.4)

if __name__ == "__main__":
    main()
