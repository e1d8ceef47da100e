"""The agents: small policies that answer a game packet with controls."""
import math
from dataclasses import dataclass


@dataclass
class Controls:
    throttle: float = 0.0
    steer: float = 0.0
    boost: bool = False


class BaseAgent:
    def __init__(self, name: str, index: int):
        self.name, self.index = name, index

    def get_output(self, packet) -> Controls:
        raise NotImplementedError


class Chaser(BaseAgent):
    """Drives at the ball."""

    def get_output(self, packet) -> Controls:
        frame, bx, by, *cars = packet
        x, y, yaw = cars[3 * self.index:3 * self.index + 3]
        angle = math.atan2(by - y, bx - x) - yaw
        angle = (angle + math.pi) % (2 * math.pi) - math.pi
        return Controls(1.0, max(-1.0, min(1.0, 2.0 * angle)), abs(angle) < 0.2)


class Goalie(BaseAgent):
    """Stays between the ball and its own goal."""

    def get_output(self, packet) -> Controls:
        frame, bx, by, *cars = packet
        x, y, yaw = cars[3 * self.index:3 * self.index + 3]
        goal = -50.0 if self.index % 2 else 50.0
        tx, ty = (bx + 2 * goal) / 3.0, by / 3.0
        angle = math.atan2(ty - y, tx - x) - yaw
        angle = (angle + math.pi) % (2 * math.pi) - math.pi
        return Controls(min(1.0, math.hypot(tx - x, ty - y) / 10.0), max(-1.0, min(1.0, angle)), False)


AGENTS = {"chaser": Chaser, "goalie": Goalie}
