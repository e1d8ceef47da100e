import argparse
import logging
import socket
import time

import torch
import torch.multiprocessing as mp
from torch import nn

from accel import Accelerator
from net import PatchClassifier, make_loader


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-processes", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--train-items", type=int, default=1920)
    parser.add_argument("--eval-items", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def evaluate(model, loader):
    model.eval()
    correct = seen = 0
    with torch.no_grad():
        for images, labels in loader:
            correct += (model(images).argmax(dim=1) == labels).sum().item()
            seen += len(labels)
    model.train()
    return correct / seen


def training_function(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    log = logging.getLogger("finetune")
    torch.set_num_threads(1)
    accelerator = Accelerator(rank, args.num_processes, port)
    train_loader = make_loader(args.train_items, args.batch_size, seed=1)
    eval_loader = make_loader(args.eval_items, args.batch_size, seed=2)
    model = PatchClassifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    model, train_loader = accelerator.prepare(model, train_loader)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(args.epochs):
        started = time.time()
        for step, (images, labels) in enumerate(train_loader):
            loss = criterion(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.is_main_process and step % 10 == 0:
                log.info("epoch %d step %d/%d loss %.3f", epoch, step, len(train_loader), loss.item())
        log.info("epoch %d trained in %.1fs", epoch, time.time() - started)
        if accelerator.is_main_process:
            accuracy = evaluate(model, eval_loader)
            log.info("epoch %d: accuracy %.3f", epoch, accuracy)
        accelerator.wait_for_everyone()
    accelerator.end()


def main():
    args = get_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    processes = [mp.Process(target=training_function, args=(rank, args, port)) for rank in range(args.num_processes)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
