"""The driver: the only place, with the command line, where memopt, passes and runtime meet."""
