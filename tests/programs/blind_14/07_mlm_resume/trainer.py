import json
import logging
import math
import os
import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, RandomSampler

log = logging.getLogger("trainer")


class Trainer:
    def __init__(self, model, args, train_dataset, data_collator):
        self.model = model
        self.args = args
        self.train_dataset = train_dataset
        self.data_collator = data_collator
        self.global_step = 0

    def get_train_dataloader(self):
        generator = torch.Generator().manual_seed(self.args.seed)
        return DataLoader(self.train_dataset, batch_size=self.args.per_device_train_batch_size,
                          sampler=RandomSampler(self.train_dataset, generator=generator),
                          collate_fn=self.data_collator, drop_last=True,
                          num_workers=self.args.dataloader_num_workers)

    def training_step(self, inputs):
        logits = self.model(inputs["input_ids"])
        return F.cross_entropy(logits.transpose(1, 2), inputs["labels"], ignore_index=-100)

    def train(self, resume_from_checkpoint=None):
        loader = self.get_train_dataloader()
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.args.learning_rate)
        updates_per_epoch = len(loader)
        epochs = math.ceil(self.args.max_steps / updates_per_epoch)

        epochs_trained = steps_trained_in_current_epoch = 0
        if resume_from_checkpoint:
            with open(os.path.join(resume_from_checkpoint, "trainer_state.json")) as f:
                self.global_step = json.load(f)["global_step"]
            epochs_trained = self.global_step // updates_per_epoch
            steps_trained_in_current_epoch = self.global_step % updates_per_epoch
            log.info("  Continuing training from checkpoint, will skip to saved global_step")
            log.info("  Continuing training from epoch %d", epochs_trained)
            log.info("  Continuing training from global step %d", self.global_step)

        log.info("***** Running training *****")
        log.info("  Num examples = %d", len(self.train_dataset))
        log.info("  Total optimization steps = %d", self.args.max_steps)
        for epoch in range(epochs_trained, epochs):
            began = time.time()
            for step, inputs in enumerate(loader):
                if steps_trained_in_current_epoch > 0:
                    steps_trained_in_current_epoch -= 1
                    continue
                loss = self.training_step(inputs)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                self.global_step += 1
                if self.global_step % self.args.logging_steps == 0:
                    log.info("{'loss': %.4f, 'step': %d, 'epoch': %.3f}", loss.item(), self.global_step,
                             epoch + step / updates_per_epoch)
                if self.global_step >= self.args.max_steps:
                    return
            log.info("epoch %d took %.0f s", epoch, time.time() - began)
