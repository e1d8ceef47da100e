"""Thin client for the radio helper."""
import os
import select
import subprocess
import sys


class BTLEException(Exception):
    pass


class Device:
    helper = os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper.py")

    def __init__(self, addr, delegate=None):
        self.addr = addr
        self.delegate = delegate
        self._helper = None
        self._poller = None

    def _start_helper(self):
        self._helper = subprocess.Popen(
            [sys.executable, self.helper, "--addr", self.addr],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True)
        self._poller = select.poll()
        self._poller.register(self._helper.stdout, select.POLLIN)

    def _write_cmd(self, cmd):
        if self._helper is None:
            raise BTLEException("helper not started (did you call connect()?)")
        self._helper.stdin.write(cmd + "\n")
        self._helper.stdin.flush()

    @staticmethod
    def _parse(line):
        resp = {}
        for item in line.rstrip().split(" "):
            key, _, value = item.partition("=")
            resp[key] = value
        return resp

    def _wait_resp(self, want, timeout=None):
        while True:
            if self._helper.poll() is not None:
                raise BTLEException("helper exited")
            fds = self._poller.poll(None if timeout is None else timeout * 1000)
            if not fds:
                return None
            resp = self._parse(self._helper.stdout.readline())
            kind = resp.get("rsp")
            if kind == want:
                return resp
            if kind == "ntfy":
                if self.delegate is not None:
                    self.delegate.handle_notification(int(resp["hnd"], 16), resp["val"])
                continue
            raise BTLEException("unexpected response: %s" % resp)

    def connect(self):
        self._start_helper()
        self._write_cmd("conn " + self.addr)
        return self._wait_resp("stat")

    def subscribe(self, handle):
        self._write_cmd("sub %x" % handle)
        return self._wait_resp("wr")

    def read_characteristic(self, handle):
        self._write_cmd("rd %x" % handle)
        return float(self._wait_resp("rd")["val"])

    def disconnect(self):
        if self._helper is not None:
            self._write_cmd("quit")
            self._helper.wait()
            self._helper = None
