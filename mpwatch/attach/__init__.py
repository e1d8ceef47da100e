"""Ways to attach the hook to a running process, and to detach it.

`inject` and `detach` handle one process, `inject_tree` all processes of a job, `attach_session`
what one run of mpwatch injects. `native` stops a process and writes into its memory, `arch` is the
part of that which depends on the processor.
"""
