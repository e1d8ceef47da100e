"""How processes have exited, and why."""
