"""Admission of rollout groups: how far sampling may run ahead of training."""
import time


class Admission:
    """A group may start only if it can still be trained within the allowed number of steps.

    Group number n is trained in step n // groups_per_batch, oldest first. It is admitted once
    that step is at most max_steps_off_policy ahead of the version of the learner.
    """

    def __init__(self, ctx, groups_per_batch, max_steps_off_policy):
        self.groups_per_batch = groups_per_batch
        self.max_steps_off_policy = max_steps_off_policy
        self.condition = ctx.Condition()
        self.version = ctx.Value("l", 0, lock=False)
        self.started = ctx.Value("l", 0, lock=False)
        self.waited = ctx.Array("d", 16, lock=False)

    def _open(self):
        step = self.started.value // self.groups_per_batch
        return step - self.version.value <= self.max_steps_off_policy

    def admit(self, sampler):
        begin = time.monotonic()
        with self.condition:
            self.condition.wait_for(self._open)
            number = self.started.value
            self.started.value += 1
            self.waited[sampler] += time.monotonic() - begin
            return number, self.version.value

    def advance(self):
        with self.condition:
            self.version.value += 1
            self.condition.notify_all()
