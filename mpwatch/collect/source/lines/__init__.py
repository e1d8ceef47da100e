"""What is read of a line that stacks name: its waits and conditions, and what would end a wait."""
