"""How programs are run, timed and counted: natively, under memopt, under callgrind, and the machine's own limits."""
