from dataclasses import dataclass, field
from typing import List


@dataclass
class Payload:
    prompt_idx: int
    prompt: List[int]
    weight_version: int


@dataclass
class RolloutRequest:
    payloads: List[Payload]


@dataclass
class RolloutResult:
    replica: str
    payloads: List[Payload] = field(default_factory=list)
    completions: List[List[int]] = field(default_factory=list)
    rewards: List[float] = field(default_factory=list)
    metrics: dict = field(default_factory=dict)
