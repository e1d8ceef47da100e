"""One agent session: takes a plan, runs its tool calls, reports each observation."""
import asyncio
import logging
import os
import time

from shell_tool import execute_shell_command

log = logging.getLogger("agent")


class AgentSession:
    def __init__(self, session_id, workspace, conn, tool_timeout):
        self.session_id = session_id
        self.workspace = workspace
        self.conn = conn
        self.tool_timeout = tool_timeout

    async def step(self, task):
        started = time.monotonic()
        result = await execute_shell_command(task["command"], self.workspace, self.tool_timeout)
        return {
            "session": self.session_id,
            "task": task["id"],
            "elapsed": time.monotonic() - started,
            "observation": result.render(),
        }

    async def loop(self):
        loop = asyncio.get_running_loop()
        while True:
            task = await loop.run_in_executor(None, self.conn.recv)
            if task is None:
                break
            log.info("session %d: %s", self.session_id, task["command"])
            self.conn.send(await self.step(task))


def session_main(session_id, workspace, conn, tool_timeout):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    os.makedirs(workspace, exist_ok=True)
    asyncio.run(AgentSession(session_id, workspace, conn, tool_timeout).loop())
