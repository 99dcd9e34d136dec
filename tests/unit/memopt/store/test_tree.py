"""A profile as a tree, and the forms it is shown in."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from memopt.report import details, exports, page, profile
from memopt.store.schema import create, open_existing
from memopt.store.tree import Frame, read_tree

ROWS = """
INSERT INTO run VALUES ('0', 'prog 5', 'machine', '2026-01-01T00:00:00', 1.0, 'exit 0');
INSERT INTO image VALUES (1, '/bin/prog');
INSERT INTO function VALUES (1, 1, 'main', 4096, 4196), (2, 1, 'inner<int>', 4200, 4300);
INSERT INTO loop VALUES (1, 1, NULL, 4106, 1, 2, 0, '/src/prog.cpp', 12, 'vector.h:9'),
    (2, 1, 1, 4116, 2, 2, 0, NULL, NULL, NULL);
INSERT INTO block VALUES (1, 1, NULL, 4096, 4106, 0, 9, 'plain'), (2, 1, 2, 4116, 4126, 1, 1, 'conditional'),
                         (3, 2, NULL, 4200, 4300, 0, 0, 'return');
"""
COUNTS = """
INSERT INTO context VALUES (1, 3, 7, NULL, 1, 1, 4096, NULL, NULL, 1, 100, 190),
    (2, 2, 7, 1, 2, 1, 4200, 4120, 2, 10, 60, 60), (3, 3, 7, 1, NULL, 1, 4400, 4100, NULL, 1, 30, 30);
INSERT INTO context_loop VALUES (1, 1, 1, 5, 20, 150), (1, 2, 5, 10, 70, 130);
INSERT INTO execution VALUES (1, 4096, 4106, 1, 10), (1, 4116, 4126, 10, 90), (1, 4200, 4300, 10, 60);
"""
SAMPLES = "INSERT INTO sample VALUES (7, 1, 1, 4096, 1, 0.25), (7, 1, 2, 4116, 3, 0.75), (7, NULL, NULL, 99, 1, 0.5);"


def made(tmp_path: Path, rows: str) -> Path:
    path = tmp_path / "a.db"
    connection = create(str(path))
    connection.executescript(ROWS + rows)
    connection.close()
    return path


def shown(root: Frame) -> list[tuple[int, str, float, float]]:
    return [(depth, frame.name, frame.own, frame.total) for depth, frame in root.walk()]


def test_contexts_with_their_loops(tmp_path: Path) -> None:
    root, unit = read_tree(open_existing(str(made(tmp_path, COUNTS))))
    assert unit == "instructions"
    assert shown(root) == [
        (0, "prog 5", 0, 190), (1, "thread 7", 0, 190), (2, "main", 10, 190), (3, "loop 0x100a (prog.cpp:12)", 20, 150),
        (4, "loop 0x1014", 70, 130), (5, "inner<int>", 60, 60), (3, "0x1130", 30, 30)]


def test_samples(tmp_path: Path) -> None:
    root, unit = read_tree(open_existing(str(made(tmp_path, SAMPLES))))
    assert unit == "seconds"
    assert shown(root) == [
        (0, "prog 5", 0, 1.5), (1, "thread 7", 0, 1.5), (2, "main", 0.25, 1.0),
        (3, "loop 0x100a (prog.cpp:12)", 0, 0.75), (4, "loop 0x1014", 0.75, 0.75), (2, "unknown function", 0.5, 0.5)]


def test_lines(tmp_path: Path) -> None:
    text = list(profile.lines(*read_tree(open_existing(str(made(tmp_path, COUNTS)))), 20.0))
    assert text[0] == "prog 5: 190 instructions"
    assert any(line.endswith("68.4 %  36.8 %      loop 0x1014  (5 times, 2 iterations each)") for line in text)
    assert not any("0x1130" in line for line in text)  # 16 %


@pytest.mark.parametrize("rows", [COUNTS, SAMPLES])
def test_speedscope_holds_every_weight_once(tmp_path: Path, rows: str) -> None:
    root, unit = read_tree(open_existing(str(made(tmp_path, rows))))
    document = json.loads(exports.speedscope(root, unit))
    (thread,) = document["profiles"]
    assert sum(thread["weights"]) == thread["endValue"] == root.total
    names = [frame["name"] for frame in document["shared"]["frames"]]
    stacks = [[names[n] for n in sample] for sample in thread["samples"]]
    assert ["main", "loop 0x100a (prog.cpp:12)", "loop 0x1014"] in stacks
    assert len(stacks) == len(thread["weights"])


def test_callgrind_costs_and_calls(tmp_path: Path) -> None:
    text = "\n".join(exports.callgrind(open_existing(str(made(tmp_path, COUNTS)))))
    assert "events: Ir\nsummary: 190\n" in text
    assert "fn=main\n0x1000 0 10\n0x1014 0 90\n" in text
    assert "cob=/bin/prog\ncfi=???\ncfn=inner<int>\ncalls=10 0x1068 0\n0x1018 0 60\n" in text
    assert "fn=0x1130\n0x1130 0 30\n" in text  # in no known function


def test_callgrind_lines_are_those_of_the_functions_own_file(tmp_path: Path) -> None:
    rows = COUNTS + """
        INSERT INTO instruction VALUES (4096, 1, x'90', 'nop', '', '/src/prog.cpp', 10, NULL),
            (4116, 2, x'90', 'nop', '', '/src/prog.cpp', 12, 'vector.h:9');"""
    text = "\n".join(exports.callgrind(open_existing(str(made(tmp_path, rows)))))
    assert "fl=/src/prog.cpp\nfn=main\n0x1000 10 10\n0x1014 12 90\n" in text


def test_the_costs_of_callgrind_are_those_of_the_tree(tmp_path: Path) -> None:
    """A stub is folded into its caller, a part of a function lies apart, a function goes on without a call."""
    rows = COUNTS + """
        UPDATE context SET instructions = 105, inclusive = 195 WHERE id = 1;
        UPDATE context SET entries = 0, instructions = 50, inclusive = 50 WHERE id = 2;
        INSERT INTO function VALUES (3, 1, 'apart', 4300, 4310);
        INSERT INTO execution VALUES (1, 4300, 4304, 1, 7);"""
    text = "\n".join(exports.callgrind(open_existing(str(made(tmp_path, rows)))))
    assert "summary: 185\n" in text
    assert "calls=1 0x1068 0\n" in text  # a reader would take the cost of calls=0 for one of the caller's own
    own = re.sub(r"(?m)^calls=.*\n.*$", "", text)
    assert sum(int(cost) for cost in re.findall(r"(?m)^0x[0-9a-f]+ \d+ (\d+)$", own)) == 185


def test_callgrind_has_one_name_for_one_function(tmp_path: Path) -> None:
    """Two static functions of one name are two; the cold part of a function is none of its own."""
    rows = COUNTS + """
        UPDATE context SET instructions = 107, inclusive = 207 WHERE id = 1;
        INSERT INTO context VALUES (4, 4, 7, 3, 4, 1, 4500, NULL, NULL, 1, 10, 10);
        INSERT INTO function VALUES (3, 1, 'main [clone .cold]', 4000, 4010), (4, 1, 'inner<int>', 4500, 4510);
        INSERT INTO execution VALUES (1, 4000, 4004, 1, 7), (1, 4500, 4510, 1, 10);"""
    text = "\n".join(exports.callgrind(open_existing(str(made(tmp_path, rows)))))
    assert "fn=main\n0xfa0 0 7\n0x1000 0 10\n0x1014 0 90\n" in text
    assert "cfn=inner<int> (0x1068)\n" in text
    assert "fn=inner<int> (0x1194)\n0x1194 0 10\n" in text


def test_the_page_needs_nothing_else_and_holds_the_tree(tmp_path: Path) -> None:
    connection = open_existing(str(made(tmp_path, COUNTS)))
    root, unit = read_tree(connection)
    root.name = "<script>"
    text = page.page(root, unit, details.details(connection))
    assert "http" not in text
    assert "src=" not in text
    assert text.count("<script>") == 1  # a name is not markup
    match = re.search(r"data = (\{.*\});", text)
    assert match is not None
    data = json.loads(match[1])
    assert data["t"] == 190
    assert data["b"][0]["b"][0]["n"] == "main"
