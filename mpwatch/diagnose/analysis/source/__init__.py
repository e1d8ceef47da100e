"""What the source of the program tells: its statements, loops, branches, and what they cost."""
