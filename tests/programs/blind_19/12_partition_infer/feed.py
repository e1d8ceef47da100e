"""Queue based feed between the partition task and the model process of one executor."""
import logging
import queue

log = logging.getLogger("feed")


class EndFeed:
    """Marks the end of the whole data set."""


class Channel:
    def __init__(self, ctx, maxsize=1024):
        self.rows = ctx.Queue(maxsize)
        self.results = ctx.Queue(maxsize)
        self.state = ctx.Value("i", 1)


class DataFeed:
    """Model side of the channel."""

    def __init__(self, channel, columns):
        self.channel = channel
        self.columns = columns
        self.done = False

    def next_batch(self, batch_size):
        batch = {c: [] for c in self.columns}
        count = 0
        while count < batch_size:
            item = self.channel.rows.get()
            if isinstance(item, EndFeed):
                self.done = True
                log.info("end of feed, %d rows left over", count)
                break
            for c, v in zip(self.columns, item):
                batch[c].append(v)
            count += 1
        return batch, count

    def should_stop(self):
        return self.done

    def batch_results(self, rows):
        for r in rows:
            self.channel.results.put(r)


class PartitionTask:
    """Task side: feeds one partition and hands back one result a row."""

    def __init__(self, channel, executor_id):
        self.channel = channel
        self.executor_id = executor_id

    def run(self, index, rows):
        log.info("executor %d: feeding partition %d (%d rows)", self.executor_id, index, len(rows))
        out = []
        for row in rows:
            self.channel.rows.put(row)
            try:
                while True:
                    out.append(self.channel.results.get_nowait())
            except queue.Empty:
                pass
        while len(out) < len(rows):
            out.append(self.channel.results.get())
        log.info("executor %d: partition %d done", self.executor_id, index)
        return out

    def close(self):
        self.channel.rows.put(EndFeed())
