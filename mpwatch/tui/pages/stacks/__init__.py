"""Pages made of stacks: of threads, merged over processes, sampled over time."""
