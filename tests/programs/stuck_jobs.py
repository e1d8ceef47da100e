"""Jobs that make no progress, one for each cause, and healthy jobs that look the same for a while.

Usage: `stuck_jobs.py CASE`. Prints `ready` once its processes have started.
"""

import contextlib
import fcntl
import multiprocessing
import os
import queue
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

FORK = multiprocessing.get_context("fork")
LONG_S = 600.0
BLOCK_BYTES = 1 << 20


def ready() -> None:
    print("ready", flush=True)


def silent_peer() -> socket.socket:
    """A connection to a server that accepts it and never answers, run by another session."""
    program = (
        "import socket, sys, time; server = socket.create_server(('127.0.0.1', 0));"
        "print(server.getsockname()[1], flush=True); held = server.accept(); time.sleep(600)"
    )
    server = detached([sys.executable, "-c", program])
    assert server.stdout is not None
    return socket.create_connection(("127.0.0.1", int(server.stdout.readline())))


def detached(argv: list[str]) -> subprocess.Popen[bytes]:
    """A process outside of the job: its parent has exited, and it ends with the process group."""
    double = "import subprocess, sys; subprocess.Popen(sys.argv[1:])"
    return subprocess.Popen([sys.executable, "-c", double, *argv], stdout=subprocess.PIPE)


def fetch(results) -> None:
    connection = silent_peer()
    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
    results.put(connection.recv(100))


def socket_outside() -> None:
    """Main waits for a worker's result, the worker for the answer of a server outside."""
    results = FORK.SimpleQueue()
    FORK.Process(target=fetch, args=(results,), daemon=True).start()
    ready()
    print(results.get())


def doze(results) -> None:
    time.sleep(LONG_S)
    results.put(1)


def sleeping_worker() -> None:
    """Main waits for a worker that sleeps."""
    results = FORK.SimpleQueue()
    FORK.Process(target=doze, args=(results,), daemon=True).start()
    ready()
    print(results.get())


def compute(results) -> None:
    end_s = time.monotonic() + LONG_S
    while time.monotonic() < end_s:
        sum(range(1000))
    results.put(1)


def computing_worker() -> None:
    """Healthy: main waits for a worker that computes."""
    results = FORK.SimpleQueue()
    FORK.Process(target=compute, args=(results,), daemon=True).start()
    ready()
    print(results.get())


def lock_file() -> str:
    return os.path.join(tempfile.mkdtemp(), "cache.lock")


def flock_outside() -> None:
    """Main waits for a lock on a file that a process outside of the job holds."""
    path = lock_file()
    program = (
        "import fcntl, sys, time; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX);"
        "print('held', flush=True); time.sleep(600)"
    )
    holder = detached([sys.executable, "-c", program, path])
    assert holder.stdout is not None
    holder.stdout.readline()
    with open(path, "a") as file:
        ready()
        fcntl.flock(file, fcntl.LOCK_EX)


def take_and_sleep(path: str, held) -> None:
    with open(path, "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        held.set()
        time.sleep(LONG_S)


def lockf_in_the_job() -> None:
    """Main waits for a lock on a file that its worker holds, which sleeps."""
    path, held = lock_file(), FORK.Event()
    FORK.Process(target=take_and_sleep, args=(path, held), daemon=True).start()
    held.wait()
    with open(path, "a") as file:
        ready()
        fcntl.lockf(file, fcntl.LOCK_EX)


def beat() -> None:
    while True:
        time.sleep(0.5)


def build(path: str, done) -> None:
    """Release the lock by closing the file, of which the child that was started has a copy."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        FORK.Process(target=beat, daemon=False).start()
    done.set()
    time.sleep(LONG_S)


def acquire(path: str) -> None:
    with open(path, "a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                time.sleep(0.1)


def flock_of_a_child() -> None:
    """Main tries for a lock whose taker has closed the file, and whose child has inherited it."""
    path, done = lock_file(), FORK.Event()
    FORK.Process(target=build, args=(path, done)).start()
    done.wait()
    ready()
    acquire(path)


def keep_transaction(path: str, held) -> None:
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("CREATE TABLE jobs (name)")
        connection.execute("BEGIN IMMEDIATE")
        held.set()
        time.sleep(LONG_S)


def database() -> None:
    """Main waits for a database in which its worker has a transaction open."""
    path, held = lock_file().replace("cache.lock", "jobs.db"), FORK.Event()
    FORK.Process(target=keep_transaction, args=(path, held), daemon=True).start()
    held.wait()
    connection = sqlite3.connect(path, timeout=LONG_S, isolation_level=None)
    ready()
    connection.execute("BEGIN IMMEDIATE")


def put_on(items) -> None:
    while True:
        items.put(b"x")


def full_queues() -> None:
    """Main puts an item back into the full queue that only main reads."""
    items = FORK.Queue(maxsize=2)
    for _ in range(2):
        FORK.Process(target=put_on, args=(items,), daemon=True).start()
    ready()
    while True:
        item = items.get()
        time.sleep(0.1)
        items.put(item)
        items.put(item)


def nested_calls() -> None:
    """All threads of a pool wait for calls that they have submitted to the same pool."""
    pool = ThreadPoolExecutor(2)
    ready()

    def part() -> int:
        time.sleep(0.1)
        return pool.submit(abs, 1).result()

    print(list(map(Future.result, [pool.submit(part) for _ in range(4)])))


def take_in_turns(path: str, lock) -> None:
    while True:
        with open(path, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with lock:
                time.sleep(1.0)
        time.sleep(0.05)


def turns() -> None:
    """Healthy: processes take turns at a lock of a file; each waits most of the time."""
    path, lock = lock_file(), FORK.Lock()
    workers = [FORK.Process(target=take_in_turns, args=(path, lock)) for _ in range(4)]
    for worker in workers:
        worker.start()
    ready()
    workers[0].join()


def fail_before_set(event) -> None:
    raise SystemExit(3)


def event_of_the_dead() -> None:
    """Main waits for an event that only an exited worker could have set."""
    context = multiprocessing.get_context("spawn")
    event = context.Event()
    context.Process(target=fail_before_set, args=(event,), daemon=True).start()
    ready()
    event.wait()


def take_any_status(number, frame) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def poll_until_ended(workers) -> None:
    for each in workers:
        each.start()
    ready()
    while any(each.is_alive() for each in workers):
        time.sleep(0.5)


def reaped_children() -> None:
    """Main polls children whose exit status its handler of SIGCHLD has taken."""
    signal.signal(signal.SIGCHLD, take_any_status)
    poll_until_ended([FORK.Process(target=os.getpid) for _ in range(2)])


def polled_children() -> None:
    """Main polls a child that works; its handler of SIGCHLD has taken the status of another one."""
    signal.signal(signal.SIGCHLD, take_any_status)
    FORK.Process(target=os.getpid).start()
    poll_until_ended([FORK.Process(target=compute, args=(None,), daemon=True)])


def receive_all(source) -> None:
    with contextlib.suppress(EOFError):
        while True:
            source.recv()


def copied_pipe_ends() -> None:
    """A reader waits for the end of a pipe of which it has inherited the writing end itself."""
    source, sink = FORK.Pipe(duplex=False)
    reader = FORK.Process(target=receive_all, args=(source,), daemon=True)
    reader.start()
    writer = FORK.Process(target=sink.send, args=("last",))
    writer.start()
    sink.close()
    writer.join()
    ready()
    reader.join()


def fed_reader() -> None:
    """The same reader, but the one that writes lives and does so again and again."""
    source, sink = FORK.Pipe(duplex=False)
    FORK.Process(target=receive_all, args=(source,), daemon=True).start()
    ready()
    until_s = time.monotonic() + LONG_S
    while time.monotonic() < until_s:
        sink.send(sum(range(100_000)))
        time.sleep(0.05)


def cross(first, second, held, other_held) -> None:
    with first:
        held.set()
        other_held.wait()
        with second:
            pass


def crossed_locks() -> None:
    """Two processes take the same two locks in opposite order."""
    locks = FORK.Lock(), FORK.Lock()
    events = FORK.Event(), FORK.Event()
    one = FORK.Process(target=cross, args=(*locks, *events), daemon=True)
    other = FORK.Process(target=cross, args=(*locks[::-1], *events[::-1]), daemon=True)
    one.start()
    other.start()
    ready()
    one.join()


def settle(lock) -> None:
    lock.acquire()
    refresh(lock)
    lock.release()


def refresh(lock) -> None:
    lock.acquire()
    lock.release()


def acquired_twice() -> None:
    """Two processes want a lock that one of them has acquired, and acquires once more."""
    lock = FORK.Lock()
    workers = [FORK.Process(target=settle, args=(lock,), daemon=True) for _ in range(2)]
    for worker in workers:
        worker.start()
    ready()
    workers[0].join()


def flush_slowly(guard, held) -> None:
    while True:
        with guard:
            held.set()
            time.sleep(0.5)


def report(guard) -> None:
    with guard:
        pass


def lock_lost_at_fork() -> None:
    """A child wants a lock that a thread of its parent held when it was forked."""
    guard, held = threading.Lock(), threading.Event()
    threading.Thread(target=flush_slowly, args=(guard, held), daemon=True).start()
    held.wait()
    child = FORK.Process(target=report, args=(guard,), daemon=True)
    child.start()
    ready()
    child.join()


def take(tasks) -> None:
    while True:
        print(tasks.get())


def renewed_readers() -> None:
    """Main ends readers that are idle, and so in get(), by terminate(), and starts others."""
    tasks = FORK.Queue()
    reader = FORK.Process(target=take, args=(tasks,), daemon=True)
    reader.start()
    ready()
    while True:
        time.sleep(12.0)
        reader.terminate()
        reader.join()
        reader = FORK.Process(target=take, args=(tasks,), daemon=True)
        reader.start()
        tasks.put("a task")


def produce(items, fails: bool) -> None:
    for number in range(100):
        if fails and number == 3:
            raise ValueError("a damaged file")
        items.put(number)


def ended_writer() -> None:
    """Main takes items from several processes in turn, and one of them has failed."""
    queues = []
    for number in range(3):
        queues.append(FORK.Queue(2))
        FORK.Process(target=produce, args=(queues[-1], number == 1), daemon=True).start()
    ready()
    while True:
        for each in queues:
            each.get()


_MODULE = """
import multiprocessing

def encode(item):
    return item + 1

with multiprocessing.get_context("fork").Pool(2) as pool:
    encoded = pool.map_async(encode, range(10)).get()
"""


def imported_pool() -> None:
    """Main waits for a pool while it imports the module whose function the pool has to send."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "encodes_at_import.py"), "w") as file:
            file.write(_MODULE)
        sys.path.insert(0, folder)
        ready()
        __import__("encodes_at_import")


def exit_with_unread_queue() -> None:
    """Main has put more on a queue than the pipe holds, no process reads it, and main exits."""
    items = FORK.Queue()
    items.put(b"x" * BLOCK_BYTES)
    ready()


def update(lock, depth: int) -> None:
    with lock:
        if depth:
            update(lock, depth - 1)


def lock_twice() -> None:
    """Main takes a lock that it holds already."""
    ready()
    update(FORK.Lock(), 1)


def thread_lock_twice() -> None:
    """Main takes a lock of its own threads that it holds already; another thread runs."""
    threading.Thread(target=time.sleep, args=(LONG_S,), daemon=True).start()
    ready()
    update(threading.Lock(), 1)


def stopped_worker() -> None:
    """Main waits for a worker that a signal has stopped."""
    results = FORK.SimpleQueue()
    worker = FORK.Process(target=doze, args=(results,), daemon=True)
    worker.start()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    ready()
    print(results.get())


def served() -> None:
    """Healthy: a server waits for the next request of a client outside that asks for nothing."""
    server = socket.create_server(("127.0.0.1", 0))
    program = (
        "import socket, sys, time;"
        "held = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); time.sleep(600)"
    )
    detached([sys.executable, "-c", program, str(server.getsockname()[1])])
    connection, _ = server.accept()
    ready()
    connection.recv(100)


def serve(requests, answers) -> None:
    while True:
        answers.put(requests.get())


def idle_workers() -> None:
    """Healthy: workers wait for work while main sleeps until the next batch of it."""
    requests, answers = FORK.Queue(), FORK.Queue()
    for _ in range(2):
        FORK.Process(target=serve, args=(requests, answers), daemon=True).start()
    requests.put(1)
    answers.get()
    ready()
    time.sleep(LONG_S)


def idle_pool() -> None:
    """Healthy: main computes in threads, and the pool it keeps has nothing to do."""
    with FORK.Pool(2) as pool:
        pool.map(abs, range(4))
        ready()
        compute(queue.SimpleQueue())


def joined_service() -> None:
    """Healthy: main joins a child that waits for connections."""

    def listen() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, contextlib.suppress(OSError):
            server.accept()

    child = FORK.Process(target=listen, daemon=True)
    child.start()
    ready()
    child.join()


def prompt() -> None:
    """Healthy: a person is asked."""
    ready()
    input("continue? ")


CASES = (
    acquired_twice,
    computing_worker,
    copied_pipe_ends,
    crossed_locks,
    database,
    ended_writer,
    event_of_the_dead,
    exit_with_unread_queue,
    fed_reader,
    flock_of_a_child,
    flock_outside,
    full_queues,
    idle_pool,
    idle_workers,
    imported_pool,
    joined_service,
    lock_lost_at_fork,
    lock_twice,
    lockf_in_the_job,
    nested_calls,
    polled_children,
    prompt,
    reaped_children,
    renewed_readers,
    served,
    sleeping_worker,
    socket_outside,
    stopped_worker,
    thread_lock_twice,
    turns,
)

if __name__ == "__main__":
    {case.__name__: case for case in CASES}[sys.argv[1]]()
