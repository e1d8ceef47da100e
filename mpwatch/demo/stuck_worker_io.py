"""Read samples from a server that has stopped answering.

Neither the reader nor the DataLoader has a time limit: one worker waits for bytes that do not come,
and the main process for the batch of that worker.
"""

import socket
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin

ANSWERS = 60


def serve(listener):
    """A storage server that goes silent after some requests and keeps its connections."""
    silent = []
    for count in range(1000):
        connection, _ = listener.accept()
        if count < ANSWERS:
            connection.sendall(b"x" * 64)
            connection.close()
        else:
            silent.append(connection)


class Remote(Dataset):
    def __init__(self, address):
        self.address = address

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        with socket.create_connection(self.address) as connection:
            time.sleep(0.01)
            return torch.frombuffer(bytearray(connection.recv(64)), dtype=torch.uint8)


def main():
    begin(__doc__)
    listener = socket.create_server(("127.0.0.1", 0))
    loader = iter(DataLoader(Remote(listener.getsockname()), batch_size=8, num_workers=2))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    for step, _batch in enumerate(loader):
        if step == 4:
            print("ready", flush=True)


if __name__ == "__main__":
    main()
