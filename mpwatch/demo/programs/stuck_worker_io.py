"""Read samples from a server that has stopped answering.

Neither the reader nor the DataLoader has a timeout: one worker waits for bytes that do not arrive,
and the main process for the batch of that worker.
"""

import itertools
import socket
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended

ANSWERS = 60
PAUSE_S = 3.0


def serve(listener):
    """A storage server that stops answering after some requests and keeps its connections.

    Mended, it only pauses there, and then answers.
    """
    silent = []
    for count in itertools.count():
        connection, _ = listener.accept()
        if mended() and count == ANSWERS:
            time.sleep(PAUSE_S)
        if mended() or count < ANSWERS:
            connection.sendall(b"x" * 64)
            connection.close()
        else:
            silent.append(connection)


class Remote(Dataset):
    def __init__(self, address):
        self.address = address

    def __len__(self):
        return 100_000

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
        time.sleep(0.1)


if __name__ == "__main__":
    main()
