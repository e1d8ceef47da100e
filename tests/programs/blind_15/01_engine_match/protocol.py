"""Thin client for engines that speak a UCI-like line protocol on stdin/stdout."""
import subprocess


class EngineClient:
    def __init__(self, command, name="engine"):
        self.command = command
        self.name = name
        self.id_name = None
        self.proc = None

    def start(self):
        self.proc = subprocess.Popen(self.command, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE,
                                     universal_newlines=True)
        self.send("uci")
        for line in self.read_until("uciok"):
            if line.startswith("id name"):
                self.id_name = line[len("id name "):]
        self.send("setoption name Threads value 1")
        self.send("isready")
        for _ in self.read_until("readyok"):
            pass

    def send(self, command):
        self.proc.stdin.write(command + "\n")

    def read_until(self, terminator):
        while True:
            line = self.proc.stdout.readline()
            if not line:
                raise EOFError("%s closed its output" % self.name)
            line = line.strip()
            if line.startswith(terminator):
                yield line
                return
            yield line

    def new_game(self):
        self.send("ucinewgame")
        self.send("isready")
        for _ in self.read_until("readyok"):
            pass

    def go(self, moves, movetime):
        self.send("position startpos moves " + " ".join(moves))
        self.send("go movetime %d" % movetime)
        score, best = 0.0, "0000"
        for line in self.read_until("bestmove"):
            if line.startswith("info"):
                score = float(line.split("score")[1])
            else:
                best = line.split()[1]
        return {"bestmove": best, "score": score}

    def quit(self):
        self.send("quit")
        self.proc.stdin.close()
        self.proc.wait()
