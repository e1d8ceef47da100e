"""Ask a server in all workers through a connection that was opened before they were forked.

They share one connection: an answer goes to whichever worker reads first, which drops it where it
was the other's, and the other waits for ever.
"""

import multiprocessing
import socket
import struct
import time

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from mpwatch.demo.bounds import begin, mended

SAMPLES = 4000
REQUEST = struct.Struct("q")
ANSWER = struct.Struct("qq")


def serve(listener):
    """Answer the requests of each client in turn."""
    clients = []
    listener.setblocking(False)
    while True:
        time.sleep(0.001)
        try:
            client, _ = listener.accept()
            client.setblocking(False)
            clients.append(client)
        except BlockingIOError:
            pass
        for client in tuple(clients):
            try:
                request = client.recv(REQUEST.size)
            except BlockingIOError:
                continue
            if request:
                (number,) = REQUEST.unpack(request)
                client.sendall(ANSWER.pack(number, number * number))
            else:
                clients.remove(client)
                client.close()


class Squares(Dataset):
    """A sample is what the server answers."""

    def __init__(self, address):
        self.address = address
        self.client = socket.create_connection(address)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        self.client.sendall(REQUEST.pack(index))
        number = -1
        while number != index:
            number, value = ANSWER.unpack(self.client.recv(ANSWER.size, socket.MSG_WAITALL))
        return torch.tensor([index, value])


def connect_again(_worker_id):
    dataset = get_worker_info().dataset
    dataset.client = socket.create_connection(dataset.address)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    listener = socket.create_server(("127.0.0.1", 0))
    context = multiprocessing.get_context("fork")
    context.Process(target=serve, args=(listener,), daemon=True).start()
    loader = DataLoader(
        Squares(listener.getsockname()),
        batch_size=20,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context=context,
        worker_init_fn=connect_again if mended() else None,
    )
    print("ready", flush=True)
    while time.monotonic() < until_s:
        for batch in loader:
            print(f"squares up to {batch[-1, 1].item()}", flush=True)
            time.sleep(0.05)


if __name__ == "__main__":
    main()
