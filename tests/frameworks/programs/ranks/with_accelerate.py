"""A training of accelerate; `failing`: gather_object on the main process only."""

import sys
import time

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = torch.utils.data.DataLoader(torch.ones(400, 10), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, batch in enumerate(loader):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        if "failing" in sys.argv and step == 20 and accelerator.is_main_process:
            print("fault", flush=True)
            print(gather_object([loss.item()]))
        time.sleep(0.1)
    losses = accelerator.gather(loss.detach().reshape(1))
    print("result", accelerator.process_index, len(losses), flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
