"""What travels from the scan processes to the main process."""
from dataclasses import dataclass, field


@dataclass
class Transcript:
    transcript_id: str
    messages: list


@dataclass
class ResultItem:
    worker: int
    scanner: str
    transcript: Transcript
    value: float
    evidence: list = field(default_factory=list)


@dataclass
class WorkerComplete:
    worker: int
    scanned: int
