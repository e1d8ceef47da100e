"""Source files of the program: statements at the lines of its stacks, and what they show."""
