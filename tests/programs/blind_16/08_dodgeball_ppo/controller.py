import logging
import time

log = logging.getLogger("mlagents.trainers")


class TrainerController:
    """Alternates between stepping the environments and advancing the trainer."""

    def __init__(self, manager, trainer, args):
        self.manager, self.trainer, self.args = manager, trainer, args

    def run(self):
        start = time.monotonic()
        deadline = start + self.args.max_time
        steps = summaries = 0
        obs = self.manager.reset()
        try:
            while time.monotonic() < deadline:
                actions = self.trainer.act(obs)
                obs_next, rewards = self.manager.step(actions)
                steps += self.trainer.add(obs, actions, rewards)
                obs = obs_next
                if steps // self.args.summary_freq > summaries:
                    summaries = steps // self.args.summary_freq
                    log.info("%s. Step: %d. Time Elapsed: %.3f s. Mean Reward: %.3f.", self.args.run_id,
                             steps, time.monotonic() - start, self.trainer.mean_reward())
                if self.trainer.is_ready_update():
                    self.trainer.update_policy(deadline)
        finally:
            self.manager.close()
        log.info("finished after %d steps, %d policy updates", steps, self.trainer.updates)
