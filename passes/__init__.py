"""The transformation engine: a region's facts in, checked machine code out. No process, no file, no clock."""
