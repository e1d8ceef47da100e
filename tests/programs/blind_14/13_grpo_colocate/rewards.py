"""Reward functions run in a small pool next to the trainer."""
import time


def repetition_reward(tokens):
    time.sleep(0.05)
    return len(set(tokens)) / len(tokens)
