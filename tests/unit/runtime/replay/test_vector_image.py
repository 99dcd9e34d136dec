from __future__ import annotations

import pytest

from memopt.snapshots.form import VECTOR_BYTES, VECTORS, SnapshotError, VectorState
from memopt.x86.frame import XMM_OFFSET, YMM_OFFSET
from runtime.replay import vector_image
from runtime.replay.vector_image import image_of, state_of

AREA = bytes(2696)
ZMM = {5: 1088, 6: 1152, 7: 1664}  # offsets as Intel's processors have them


@pytest.fixture
def offsets(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    found = dict(ZMM)
    monkeypatch.setattr(vector_image, "_offset", lambda c: YMM_OFFSET if c == 2 else found.get(c, 0))
    return found


def state(upper: bytes = b"", number: int = 3, **fields: object) -> VectorState:
    vectors = [bytes(VECTOR_BYTES)] * VECTORS
    vectors[number] = upper.ljust(VECTOR_BYTES, b"\0")
    return VectorState(vectors=tuple(vectors), **fields)  # type: ignore[arg-type]


def test_each_part_of_a_register_has_its_place(offsets: dict[int, int]) -> None:
    value = bytes(range(1, 65))
    image = image_of(state(value), AREA)
    assert image[XMM_OFFSET + 48:][:16] == value[:16]
    assert image[YMM_OFFSET + 48:][:16] == value[16:32]
    assert image[ZMM[6] + 96:][:32] == value[32:]
    assert image_of(state(value, 17), AREA)[ZMM[7] + 64:][:64] == value


def test_the_state_comes_back(offsets: dict[int, int]) -> None:
    x87 = bytes(range(24)) + bytes(8) + bytes(range(32, 160))
    whole = state(bytes(range(64)), 20, mxcsr=0x1FBF, x87=x87, masks=(1, 2, 3, 4, 5, 6, 7, 1 << 63))
    assert state_of(image_of(whole, AREA)) == whole


def test_components_that_are_not_in_use_are_zero(offsets: dict[int, int]) -> None:
    image = bytearray(image_of(state(bytes(range(64))), AREA))
    image[512:520] = (3).to_bytes(8, "little")
    assert state_of(bytes(image)).vectors[3] == bytes(range(16)).ljust(64, b"\0")


def test_a_register_that_the_machine_lacks(offsets: dict[int, int]) -> None:
    offsets.clear()
    assert state_of(image_of(state(bytes(range(32))), AREA)).vectors[3] == bytes(range(32)).ljust(64, b"\0")
    for lacking in (state(bytes(range(33))), state(b"\1", 16), state(masks=(0, 1, 0, 0, 0, 0, 0, 0))):
        with pytest.raises(SnapshotError, match="this machine lacks"):
            image_of(lacking, AREA)
