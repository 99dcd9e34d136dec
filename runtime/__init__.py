"""The hands: ptrace, sampling, shadow runs, the code cache, patching."""
