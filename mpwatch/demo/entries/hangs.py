"""Part C: deadlocks and hangs."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="fork-with-threads-lock",
        title="fork while another thread holds a lock the child needs",
        expected=("fork-with-threads-lock",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="fork-openmp",
        title="fork after a parallel operation, and do another in the child",
        expected=("fork-openmp",),
        also=("fork-with-threads-lock",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="fork-unsafe-library",
        title="fork with the threads of OpenCV or gRPC alive",
        expected=("fork-unsafe-library",),
        not_runnable="needs a library with native threads of its own; none is a dependency here",
    ),
    Scenario(
        name="feeder-thread-drops-batch",
        title="lose a batch on its way out of a worker and wait for it",
        expected=("feeder-thread-drops-batch",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="queue-lock-held-by-dead",
        title="kill a consumer that waits for work",
        expected=("queue-lock-held-by-dead",),
        also=("worker-exited-unexpectedly",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="event-set-hangs",
        title="set an event that a killed process was waiting for",
        expected=("event-set-hangs",),
        also=("worker-exited-unexpectedly",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="barrier-of-the-dead",
        title="wait at a barrier for a process that has failed on its way there",
        expected=("event-set-hangs",),
        also=("worker-exited-unexpectedly",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="two-full-pipes",
        title="send to each other before either receives",
        expected=("standing-still",),
        shows_s=30,
    ),
    Scenario(
        name="pool-hang-after-worker-death",
        title="lose a Pool worker in the middle of a task",
        expected=("pool-hang-after-worker-death",),
        also=("worker-exited-unexpectedly",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="joinablequeue-join-hangs",
        title="join a queue one of whose consumers has died over its task",
        expected=("joinablequeue-join-hangs",),
        also=("worker-exited-unexpectedly",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="half-message",
        title="kill a process while it writes a message",
        expected=("half-message",),
        also=("worker-exited-unexpectedly",),
        layer="stacks",
        shows_s=15,
    ),
    Scenario(
        name="queue-join-feeder-deadlock",
        title="join a process before reading what it has put on a queue",
        expected=("queue-join-feeder-deadlock",),
        shows_s=15,
    ),
    Scenario(
        name="stuck-worker-io",
        title="read samples from a server that has stopped answering",
        expected=("stuck-worker-io",),
        shows_s=25,
    ),
    Scenario(
        name="fork-vs-pin-thread",
        title="fork the validation loader's workers under the training loader's pin thread",
        expected=("fork-vs-pin-thread",),
    ),
    Scenario(
        name="inherited-iterator-del",
        title="drop an inherited DataLoader iterator in a forked child",
        expected=("inherited-iterator-del",),
        also=("worker-exited-unexpectedly", "sigchld-raises-anywhere"),
        layer="hook",
        damage_s=4,
        ends="in a hang or `state does not match shutdown flag`",
    ),
)
