"""Device agent: answers capture requests over TCP, as adbd/sshd would on a board."""
import os
import socketserver
import struct


class AgentHandler(socketserver.StreamRequestHandler):
    block = os.urandom(64 * 1024)

    def handle(self):
        while True:
            line = self.rfile.readline()
            if not line:
                return
            cmd, _, arg = line.decode().strip().partition(" ")
            if cmd == "capture":
                n = int(arg)
                self.wfile.write(struct.pack("!I", n))
                sent = 0
                while sent < n:
                    part = self.block[: min(len(self.block), n - sent)]
                    self.wfile.write(part)
                    sent += len(part)
            elif cmd == "uptime":
                up = open("/proc/uptime", "rb").read()
                self.wfile.write(struct.pack("!I", len(up)) + up)
            else:
                return


class Agent(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


def serve(port_pipe):
    with Agent(("127.0.0.1", 0), AgentHandler) as server:
        port_pipe.send(server.server_address[1])
        server.serve_forever()
