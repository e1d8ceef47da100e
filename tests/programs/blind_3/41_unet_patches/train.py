import argparse, logging
import torch
from torch.utils.data import DataLoader
from patches import PatchDataset

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--epochs", type=int, default=40)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    net = torch.nn.Sequential(torch.nn.Conv3d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv3d(8, 1, 1))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    loader = DataLoader(PatchDataset(128), batch_size=2, num_workers=a.workers, shuffle=True)
    for epoch in range(a.epochs):
        for it, (x, y, angle) in enumerate(loader):
            loss = torch.nn.functional.mse_loss(net(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            if it % 8 == 0:
                logging.info("epoch %d it %d loss %.4f rot %s", epoch, it, loss.item(), angle.tolist())

if __name__ == "__main__":
    main()
