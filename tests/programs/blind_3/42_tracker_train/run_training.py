import argparse, logging, time
import torch
from torch.utils.data import DataLoader
from video_dataset import TrackingDataset

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=30)
    p.add_argument("--samples", type=int, default=120)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    net = torch.nn.Linear(256, 4)
    opt = torch.optim.SGD(net.parameters(), 0.01)
    loader = DataLoader(TrackingDataset(a.samples), batch_size=4, num_workers=2)
    for epoch in range(a.epochs):
        for it, (x, y) in enumerate(loader):
            loss = (net(x) - y).abs().mean()
            opt.zero_grad(); loss.backward(); opt.step()
            time.sleep(0.02)
        logging.info("epoch %d loss %.4f", epoch, loss.item())

if __name__ == "__main__":
    main()
