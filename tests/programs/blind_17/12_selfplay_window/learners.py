import logging
import time

import numpy as np
import torch
import torch.nn.functional as F

from network import PolicyValueNet


class Learner:
    def __init__(self, config, replay, storage):
        self.config, self.replay, self.storage = config, replay, storage
        torch.manual_seed(config.seed)
        self.net = PolicyValueNet(config.board, config.hidden)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=config.lr)
        self.training_step = 0
        self.log = logging.getLogger("learner")

    def send_weights(self):
        weights = {k: v.detach().numpy().copy() for k, v in self.net.state_dict().items()}
        self.storage.set(weights, self.training_step)

    def learn(self):
        self.send_weights()

        while self.replay.size() < self.config.stored_before_train:
            time.sleep(1)

        while self.training_step < self.config.training_steps:
            loss = self.update(self.replay.sample_batch(self.config.batch_size))
            self.training_step += 1
            if self.training_step % self.config.send_weights == 0:
                self.send_weights()
            if self.training_step % 100 == 0:
                self.log.info("training step %d loss %.4f", self.training_step, loss)

    def update(self, batch):
        obs = torch.from_numpy(np.stack([b[0] for b in batch]))
        actions = torch.tensor([b[1] for b in batch])
        returns = torch.tensor([b[2] for b in batch], dtype=torch.float32)
        logits, value = self.net(obs)
        adv = (returns - value).detach()
        logp = F.log_softmax(logits, -1).gather(1, actions[:, None]).squeeze(1)
        loss = -(adv * logp).mean() + 0.5 * F.mse_loss(value, returns)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def run_learner(config, replay, storage):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    Learner(config, replay, storage).learn()
