"""A call in the interpreter of another process: ptrace, ELF symbols, machine code, memory."""
