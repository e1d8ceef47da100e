import argparse, logging
import torch
from torch.utils.data import Dataset, DataLoader

class TestSet(Dataset):
    def __len__(self): return 1_000_000
    def __getitem__(self, index): return {"index": index, "feat": torch.randn(256, 16)}

def main():
    p = argparse.ArgumentParser(); p.add_argument("--keep-every", type=int, default=2)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    index = []
    for k, sample in enumerate(DataLoader(TestSet(), batch_size=8, num_workers=1)):
        s = torch.linalg.svdvals(sample["feat"]).sum()
        if k % a.keep_every == 0:
            index.append(sample["index"])
        if k % 200 == 0:
            logging.info("batch %d norm %.1f", k, s)
    torch.save(torch.cat(index), "index.pt")

if __name__ == "__main__":
    main()
