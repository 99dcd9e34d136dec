"""x86-64: decoding, semantics, instruction objects, the assembler, the frame of a version."""
