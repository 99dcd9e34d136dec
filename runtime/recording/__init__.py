"""Recording everything a program executes: its code runs as copies with probes, each function's made when it is met."""
