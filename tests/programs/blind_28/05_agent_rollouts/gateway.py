import json
import logging
import queue
import socket
import threading

log = logging.getLogger("gateway")


class Conversation:
    def __init__(self, task, kind, max_turns):
        self.task, self.kind, self.max_turns = task, kind, max_turns
        self.messages = [{"role": "user", "content": f"{kind} task {task}: make the tests pass"}]
        self.reward = 0.0
        self.turns = 0

    def add(self, reply):
        self.messages.append({"role": "assistant", "content": reply["command"]})
        self.messages.append({"role": "tool", "content": reply["observation"]})
        self.reward += reply["reward"]
        self.turns += 1
        return self.turns >= self.max_turns


class Gateway:
    """Plays conversations with the rollout workers, one thread per worker."""

    def __init__(self, max_turns):
        self.max_turns = max_turns
        self.finished = queue.Queue(maxsize=64)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.lock = threading.Lock()
        self.next_task = 0
        self.workers = 0

    def start(self):
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def _accept(self):
        while True:
            conn, _ = self.server.accept()
            threading.Thread(target=self._play, args=(conn,), daemon=True).start()

    def _new_conversation(self, kind):
        with self.lock:
            self.next_task += 1
            return Conversation(self.next_task, kind, self.max_turns[kind])

    def _play(self, conn):
        lines = conn.makefile("rwb")
        hello = json.loads(lines.readline())
        self.workers += 1
        log.info("%s joined (%s)", hello["hello"], hello["kind"])
        conversation = self._new_conversation(hello["kind"])
        try:
            while True:
                request = {"task": conversation.task, "messages": conversation.messages}
                lines.write(json.dumps(request).encode() + b"\n")
                lines.flush()
                answer = lines.readline()
                if not answer:
                    break
                if conversation.add(json.loads(answer)):
                    self.finished.put(conversation)
                    conversation = self._new_conversation(hello["kind"])
        except OSError:
            pass
        self.workers -= 1
        log.warning("%s left, %d workers", hello["hello"], self.workers)
