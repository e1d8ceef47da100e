"""A collector of torchrl with two processes; `failing`: an environment whose server is silent."""

import socket
import sys
import time

import torch
from tensordict.nn import TensorDictModule
from torchrl.collectors import MultiSyncCollector
from torchrl.envs import GymEnv

IS_FAILING = "failing" in sys.argv


class ServedEnv(GymEnv):
    """Its steps are computed by a server, from the hundredth on in one of the two."""

    def serve(self):
        self.server, self.far_end = socket.socketpair()
        self.steps = 0

    def _step(self, tensordict):
        if not hasattr(self, "server"):
            self.serve()
        self.steps += 1
        time.sleep(0.01)
        if IS_FAILING and self.is_second and self.steps == 150:
            print("fault", flush=True)
            self.server.recv(100)
        return super()._step(tensordict)


def build(is_second):
    environment = ServedEnv("CartPole-v1", device="cpu")
    environment.is_second = is_second
    return environment


def build_first():
    return build(False)


def build_second():
    return build(True)


class Policy(torch.nn.Module):
    def forward(self, observation):
        return torch.nn.functional.one_hot((observation[..., 2] > 0).long(), 2)


if __name__ == "__main__":
    policy = TensorDictModule(Policy(), in_keys=["observation"], out_keys=["action"])
    collector = MultiSyncCollector(
        [build_first, build_second], policy, frames_per_batch=100, total_frames=1000
    )
    frames = 0
    for batch in collector:
        frames += batch.numel()
    print("result", frames, flush=True)
    collector.shutdown()
