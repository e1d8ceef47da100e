"""One network in one process: waits for batches, trains on them, reports the mean loss."""
import logging

log = logging.getLogger("learner")


def learner_process(name, outputs, batches, losses):
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, stride=2, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, stride=2, padding=1), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(16 * 8 * 8, outputs))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    log.info("%s network ready", name)
    while True:
        work = batches.get()
        if work is None:
            return
        total = 0.0
        for images, labels in work:
            loss = torch.nn.functional.mse_loss(net(torch.from_numpy(images)), torch.from_numpy(labels))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        losses.put(total / len(work))
