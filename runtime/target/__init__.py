"""One traced process: registers, memory, remote calls.

In: a pid. Out: values, bytes. May be touched: no policy.

Modules: ``eligibility``, ``memory``, ``proc``, ``ptrace``, ``remote_calls``, ``sigsegv``, ``tracee``.
"""
