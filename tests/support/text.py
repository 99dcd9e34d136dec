"""Machine code from text, for tests that start from instructions."""

from __future__ import annotations

import keystone


def assemble_text(text: str, address: int) -> bytes:
    """Instructions and labels in Intel syntax, with ";" between them."""
    engine = keystone.Ks(keystone.KS_ARCH_X86, keystone.KS_MODE_64)
    code, _ = engine.asm(text.replace(": ", ":; "), address, True)
    assert code, text
    return bytes(code)
