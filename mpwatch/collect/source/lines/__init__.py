"""What is read of the lines that stacks name: what they wait for, decide by, and would end."""
