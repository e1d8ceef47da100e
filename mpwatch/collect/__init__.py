"""One piece of the world each: procfs, descriptors, maps, segments, stacks, GPU, hooks."""
