"""A job whose standard output depends on its seed alone, with processes that are killed on purpose.

    chaos_job.py SEED METHOD STRATEGY STEPS

METHOD may name what the forkserver imports before it forks: `forkserver+torch`.

Each step is printed with a digest of what it computed, the same under every start method. A worker
exits only by a command, after it has answered all earlier ones, so no message is lost without an
observer. The pid of each process that exits is printed on standard error.
"""

import contextlib
import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

WORKERS = 3
HARMLESS = {
    signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT,
    signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
}  # fmt: skip
DEADLY = sorted(map(int, signal.valid_signals() - HARMLESS))
"""All signals that end a process by default (signal(7)), with the real-time ones."""


def digest(tensor):
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()[:12]


def ignore(number, frame):
    """Handle a signal that others send to this job."""


def serve(connection):
    """Run as a worker: answer tensors with tensors until a command to crash or to end."""
    torch.set_num_threads(1)
    for number in DEADLY:
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)  # Python handles or ignores some of them
    connection.send("loaded")
    while True:
        action, value = connection.recv()
        if action == "end":
            return
        if action == "die":
            print("dies", os.getpid(), file=sys.stderr, flush=True)
            os.kill(os.getpid(), value)
        if action == "exit":
            print("dies", os.getpid(), file=sys.stderr, flush=True)
            os._exit(value)
        if action == "raise":
            try:
                raise ValueError(value)
            except ValueError as error:
                connection.send(str(error))
            continue
        if action == "fork":
            connection.send(forked(value))
            continue
        connection.send((value * 2 + 1).share_memory_())


def forked(value):
    """The exit code of a child forked by another thread."""
    codes = []

    def fork():
        pid = os.fork()
        if pid == 0:
            os._exit(value)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    return codes[0]


def square(number):
    return number * number


class Workers:
    """Worker processes, each with a pipe of its own."""

    def __init__(self, context):
        self.context = context
        self.pairs = []
        try:
            for _ in range(WORKERS):
                self.pairs.append(self.start())
            # A limit that is set while a worker imports torch would fail the job itself.
            for _, connection in self.pairs:
                connection.recv()
        except BaseException:
            self.abandon()
            raise

    def start(self):
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=serve, args=(theirs,))
        process.start()
        theirs.close()
        return process, ours

    def ask(self, index, action, value):
        connection = self.pairs[index][1]
        connection.send((action, value))
        return connection.recv()

    def kill(self, index, action, value):
        process, connection = self.pairs[index]
        connection.send((action, value))
        process.join()
        connection.close()
        self.pairs[index] = self.start()
        self.pairs[index][1].recv()
        return process.exitcode

    def end(self):
        for process, connection in self.pairs:
            connection.send(("end", None))
            process.join()
            connection.close()
        return [process.exitcode for process, _ in self.pairs]

    def abandon(self):
        """Kill them: the interpreter's exit joins workers that nobody has told to end."""
        for process, _ in self.pairs:
            process.kill()


def step(dice, workers, context, generator):
    """Do one random action; its line of output."""
    index = dice.randrange(WORKERS)
    action = dice.choice(
        ["send"] * 4 + ["die", "exit", "raise", "fork", "pool", "loader", "queue", "command"]
    )
    if action == "send":
        tensor = torch.rand(dice.choice([1, 100, 50_000]), generator=generator)
        return action, digest(workers.ask(index, "send", tensor))
    if action == "die":
        deaths = enumerate(dice.sample(DEADLY, WORKERS))
        return action, *(workers.kill(each, "die", number) for each, number in deaths)
    if action == "exit":
        return action, workers.kill(index, "exit", dice.randrange(1, 100))
    if action in ("raise", "fork"):
        return action, workers.ask(index, action, dice.randrange(1, 100))
    if action == "pool":
        with context.Pool(2) as pool:
            found = pool.map(square, range(dice.randrange(5, 50)))
            pool.close()
            pool.join()
        return action, sum(found)
    if action == "queue":
        queue = context.Queue()
        tensors = [torch.rand(64, generator=generator) for _ in range(5)]
        for tensor in tensors:
            queue.put(tensor)
        found = [digest(queue.get()) for _ in tensors]
        queue.close()
        queue.join_thread()
        return action, found[-1]
    if action == "loader":
        data = TensorDataset(torch.rand(24, 8, generator=generator))
        loader = DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context=context)
        return action, digest(torch.cat([batch for (batch,) in loader]))
    done = subprocess.run(
        [sys.executable, "-S", "-c", "print(6 * 7)"], capture_output=True, check=True
    )
    return action, done.stdout.decode().strip()


def rest(pause_s):
    """Wait between two steps, when no process starts another; for as long as a file asks for it.

    Where nobody may ask, there is no wait.
    """
    hold = os.environ.get("CHAOS_HOLD")
    if hold is None:
        return
    time.sleep(pause_s)
    while os.path.exists(hold):
        with open(f"{hold}-held", "w"):
            pass
        time.sleep(0.02)


def main():
    seed, method, strategy, steps = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGUSR1, ignore)
    # A read that torch starts its shared-memory manager with spins for ever once a signal has
    # interrupted it (start_manager in libshm, torch 2.13), so no system call is interrupted.
    signal.siginterrupt(signal.SIGUSR1, False)
    torch.set_num_threads(1)
    mp.set_sharing_strategy(strategy)
    method, _, preloaded = method.partition("+")
    context = mp.get_context(method)
    if preloaded:
        context.set_forkserver_preload([preloaded])
    dice, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    workers = Workers(context)
    print("ready", flush=True)
    try:
        for number in range(steps):
            print(number, *step(dice, workers, context, generator), flush=True)
            rest(dice.random() * 0.2)
    except BaseException:
        workers.abandon()
        raise
    # While it finalizes, the interpreter gives a signal that it handles its default action, which
    # here is death (Modules/signalmodule.c, _PySignal_Fini). One that is ignored stays ignored.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    print("end", workers.end(), flush=True)
    with contextlib.suppress(AttributeError):
        mp.active_children()


if __name__ == "__main__":
    main()
