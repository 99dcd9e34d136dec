"""The tables of a profile, and how a file of an older version becomes one of this version.

Invariant: a file is written in one transaction for each part, so that one cut short holds whole parts; ``user_version``
is the version of its tables. All addresses of ``image`` files are link-time addresses; those of a process are these
plus its ``mapping.bias``. Columns are documented where they are declared: ``memopt query FILE --schema`` prints this.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping

VERSION = 5
_APPLICATION = 0x6D656D6F  # "memo", in the header of the file (sqlite.org/fileformat.html, offset 68)

_COUNTS = """
CREATE TABLE execution (          -- memopt profile --exact: how often each piece of straight code ran, in all
    image    INTEGER NOT NULL REFERENCES image,
    start    INTEGER NOT NULL,    -- bytes [start, end); pieces that are entered in the middle may overlap
    end      INTEGER NOT NULL,
    count    INTEGER NOT NULL,
    instructions INTEGER NOT NULL -- executed; a repeated string instruction counts for each repetition, too
);
CREATE TABLE context (            -- --exact: a function as called from its caller's context
    id       INTEGER PRIMARY KEY, -- after the context it is called from; [id, last] are nested intervals
    last     INTEGER NOT NULL,
    thread   INTEGER NOT NULL,
    parent   INTEGER REFERENCES context,  -- NULL: called by nothing that was recorded
    function INTEGER REFERENCES function, -- NULL: code that belongs to none
    image    INTEGER REFERENCES image,
    entry    INTEGER NOT NULL,    -- address at which it is entered
    site     INTEGER,             -- address of the call in the parent's function; NULL: a signal, an unwinding
    loop     INTEGER REFERENCES loop,     -- the innermost one around the call
    entries  INTEGER NOT NULL,
    instructions INTEGER NOT NULL,-- executed in itself
    inclusive INTEGER NOT NULL    -- with everything called from it
);
CREATE TABLE context_loop (       -- --exact: a loop of a function in a context
    context  INTEGER NOT NULL REFERENCES context,
    loop     INTEGER NOT NULL REFERENCES loop,
    entries  INTEGER NOT NULL,
    iterations INTEGER NOT NULL,  -- an exit from the test at its head is none
    instructions INTEGER NOT NULL,-- executed in it, loops inside and functions called left out
    inclusive INTEGER NOT NULL,   -- with both
    PRIMARY KEY (context, loop)
) WITHOUT ROWID;
CREATE INDEX context_of ON context (function);
"""

_MEMORY = """
CREATE TABLE watched (            -- --memory: threads whose accesses to memory were watched
    thread   INTEGER NOT NULL,
    words    INTEGER NOT NULL,    -- of their traces
    complete INTEGER NOT NULL     -- 0: not to the end
);
CREATE TABLE dependence (         -- --memory: what must stay in order, within a thread
    kind     TEXT NOT NULL,       -- RAW, WAR, WAW: read after write, ...
    source_context INTEGER NOT NULL REFERENCES context,
    source   INTEGER NOT NULL,    -- address of the instruction that comes first
    sink_context INTEGER NOT NULL REFERENCES context,
    sink     INTEGER NOT NULL,    -- of the one after it
    context  INTEGER REFERENCES context,  -- of the loop that carries it; NULL: none does
    loop     INTEGER REFERENCES loop,
    least    INTEGER NOT NULL,    -- iterations from source to sink; 0: in the same one
    most     INTEGER NOT NULL,    -- 16384: as many or more
    count    INTEGER NOT NULL,    -- how often: bytes that depend, by the size of the smaller access
    reduction INTEGER NOT NULL    -- 1: the sink reads what the source wrote to combine it with something
);
CREATE TABLE access (             -- --memory: an instruction that reads or writes memory, in a context
    id       INTEGER PRIMARY KEY,
    context  INTEGER NOT NULL REFERENCES context,
    address  INTEGER NOT NULL,    -- of the instruction; a string instruction may have two rows
    kind     TEXT NOT NULL,       -- R, W, RW
    size     INTEGER NOT NULL,    -- bytes
    count    INTEGER NOT NULL,    -- how often
    lowest   INTEGER NOT NULL,    -- of the addresses
    highest  INTEGER NOT NULL,
    steady   INTEGER NOT NULL,    -- how often it went as far as the time before
    misaligned INTEGER NOT NULL,  -- how often at no multiple of its size
    parts    INTEGER,             -- rows of part that together are all of it; NULL: too many, none is here
    alignment INTEGER             -- the largest power of two that divides all addresses; NULL: not known
);
CREATE TABLE pattern (            -- --memory: what addresses do, as memopt.traces.notation says
    id       INTEGER PRIMARY KEY,
    level    INTEGER NOT NULL,    -- 0: accesses one behind the other; 1: those again and again; 2: these, ...
    text     TEXT NOT NULL,       -- [[ID222],(+15728+[ID222])*34]: the pattern 222, and 34 more of it
    affine   TEXT,                -- 516 i0 + 4 i1, i0 < 35, i1 < 67: as loops; NULL: it is none
    accesses INTEGER NOT NULL,
    span     INTEGER NOT NULL     -- bytes from the start of its first access to the end of its last one
);
CREATE TABLE part (               -- --memory: the patterns of an access, one after the other
    access   INTEGER NOT NULL REFERENCES access,
    position INTEGER NOT NULL,    -- 0, 1, ...
    address  INTEGER NOT NULL,    -- of the first byte
    pattern  INTEGER NOT NULL REFERENCES pattern,
    PRIMARY KEY (access, position)
) WITHOUT ROWID;
CREATE TABLE stride (             -- --memory: from one address of an access to the next
    access   INTEGER NOT NULL REFERENCES access,
    bytes    INTEGER NOT NULL,
    count    INTEGER NOT NULL     -- at least; at most a fifth of access.count more. The four most frequent are here
);
CREATE TABLE reuse (              -- --reuse: other cache lines touched since a line was touched before
    access   INTEGER NOT NULL REFERENCES access,
    lines    INTEGER,             -- least of its class: 0, 1, 2, 4, 8, ...; NULL: the line was never touched before
    count    INTEGER NOT NULL     -- touches of lines
);
CREATE TABLE working_set (        -- --memory: what entries of a loop in a context have touched
    context  INTEGER NOT NULL REFERENCES context,
    loop     INTEGER NOT NULL REFERENCES loop,
    at_end   INTEGER NOT NULL,    -- 1: where they end; 0: after so many iterations
    iterations REAL NOT NULL,     -- runs of its header: 1, 2, 4, ...; at the end on average
    entries  INTEGER NOT NULL,    -- that had as many
    lines    REAL NOT NULL,       -- bytes of the cache lines touched, on average
    most_lines INTEGER NOT NULL,  -- and at most
    pages    REAL NOT NULL,       -- bytes of the pages touched, on average
    most_pages INTEGER NOT NULL
);
CREATE TABLE path (               -- --paths: an acyclic path of a function that was taken
    function INTEGER REFERENCES function,  -- NULL: of code that is in no function
    entry    INTEGER NOT NULL,    -- address where the numbering begins
    number   INTEGER NOT NULL,    -- as Ball and Larus number it
    paths    INTEGER NOT NULL,    -- how many there are
    count    REAL NOT NULL,       -- how often it was taken; where only windows were seen, what they stand for
    blocks   TEXT NOT NULL        -- addresses of its blocks
);
CREATE TABLE windows (            -- --paths: one row
    windows  INTEGER NOT NULL,    -- times that threads were watched
    seconds  REAL NOT NULL        -- and how long, in all
);
CREATE TABLE nest (               -- --affine: a hot nest, lifted from its machine code
    id       INTEGER PRIMARY KEY,
    image    INTEGER REFERENCES image,
    header   INTEGER NOT NULL,    -- address of the outermost loop
    trips    INTEGER NOT NULL,    -- R: iterations of that which were left when it was met
    text     TEXT NOT NULL        -- its arrays, and its statements with loops and subscripts
);
CREATE TABLE derived_set (        -- --affine: what an entry of a loop touches, from subscripts and bounds
    nest     INTEGER NOT NULL REFERENCES nest,
    loop     INTEGER REFERENCES loop,  -- NULL: of a function called in it
    depth    INTEGER NOT NULL,    -- 1: outermost
    exact    INTEGER NOT NULL,    -- 0: the end of the last iteration is not known, and is left out
    iterations INTEGER NOT NULL,  -- 1, 2, 4, ..., and all; of depth 1 those left, if it is unknown how many were over
    lines    INTEGER NOT NULL,    -- bytes of the cache lines touched
    pages    INTEGER NOT NULL     -- bytes of the pages touched
);
CREATE TABLE trips (              -- --memory, --values: how many iterations entries of a loop in a context had
    context  INTEGER NOT NULL REFERENCES context,
    loop     INTEGER NOT NULL REFERENCES loop,
    least    INTEGER NOT NULL,    -- runs of its header: 1, 2 to 3, 4 to 7, ...
    entries  INTEGER NOT NULL
);
CREATE TABLE cache (              -- of this machine
    level    INTEGER NOT NULL,
    name     TEXT NOT NULL,
    bytes    INTEGER NOT NULL
);
CREATE INDEX working_set_of ON working_set (loop);
CREATE INDEX dependence_carried ON dependence (loop);
CREATE INDEX stride_of ON stride (access);
CREATE INDEX reuse_of ON reuse (access);
"""

_VALUES = """
CREATE TABLE value (              -- --values: what a function or a loop had in a context whenever it was entered
    id       INTEGER PRIMARY KEY,
    context  INTEGER NOT NULL REFERENCES context,
    loop     INTEGER REFERENCES loop,  -- NULL: the function
    name     TEXT NOT NULL,       -- cycles: of the time stamp counter, until it was left, with what was called and what
                                  -- probes cost; own cycles: without what was called; trips: runs of the header;
                                  -- rdi, ...: registers, arguments of a function, what a loop reads and never changes
    count    INTEGER NOT NULL,
    least    INTEGER NOT NULL,    -- registers as signed numbers of 64 bits
    most     INTEGER NOT NULL,
    total    INTEGER,             -- NULL: of a register
    alignment INTEGER,            -- of a register: the largest power of two that divides all, up to 2**62; NULL: all
                                  -- are zero
    changes  INTEGER NOT NULL     -- how often it was another than the time before
);
CREATE TABLE frequent (           -- --values: the most frequent ones
    value    INTEGER NOT NULL REFERENCES value,
    amount   INTEGER NOT NULL,
    count    INTEGER NOT NULL,    -- exact where there are fewer than eight; else up to a ninth of value.count too low
    PRIMARY KEY (value, amount)
) WITHOUT ROWID;
CREATE TABLE distribution (       -- --values: of cycles and of trips
    value    INTEGER NOT NULL REFERENCES value,
    least    INTEGER NOT NULL,    -- of the class: 0, 1, 2 to 3, 4 to 7, ...
    count    INTEGER NOT NULL,
    PRIMARY KEY (value, least)
) WITHOUT ROWID;
CREATE TABLE bank (               -- --memory: where in a cache line an access begins
    access   INTEGER NOT NULL REFERENCES access,
    offset   INTEGER NOT NULL,    -- 0, 8, ..., 56: bytes from the start of the line, or up to 7 more
    count    INTEGER NOT NULL,
    PRIMARY KEY (access, offset)
) WITHOUT ROWID;
CREATE TABLE object (             -- --memory: what an access leads to, where that is known of all its addresses
    access   INTEGER PRIMARY KEY REFERENCES access,
    kind     TEXT NOT NULL,       -- variable; block: allocated by malloc and the like; stack, heap (brk), mapped: of
                                  -- these kinds of memory; file
    name     TEXT,                -- of the variable, the file, or the function that called for the block
    offset   INTEGER NOT NULL,    -- of the lowest address from the start of the variable, block, or memory
    context  INTEGER REFERENCES context  -- of the call that has allocated the block, the last one there
);
CREATE TABLE observation (        -- --exact: one row, where the system tells: samples of processor time
    samples  INTEGER NOT NULL,
    outside  INTEGER NOT NULL     -- of them, how many met code that ran unobserved
);
CREATE INDEX value_of ON value (context);
"""
_THREADS = """
CREATE TABLE thread (             -- a thread that was seen, of the program or of a process that it has made
    thread   INTEGER NOT NULL,    -- its number, of which that of the first in a process is the number of the process
    process  INTEGER NOT NULL,
    parent   INTEGER,             -- the process that has made this one; NULL: memopt; 0: not known
    program  TEXT                 -- path of what is executed
);
"""
TABLES = """
CREATE TABLE run (                -- one row: how the profile was made
    memopt   TEXT NOT NULL,       -- version
    command  TEXT NOT NULL,       -- program and arguments, quoted for a shell
    machine  TEXT NOT NULL,       -- name of the processor
    started  TEXT NOT NULL,       -- date and time, UTC, ISO 8601
    seconds  REAL NOT NULL,       -- elapsed
    ended    TEXT NOT NULL        -- "exit 0", "signal 9"
);
CREATE TABLE image (              -- a file with code
    id       INTEGER PRIMARY KEY,
    path     TEXT NOT NULL UNIQUE
);
CREATE TABLE function (
    id       INTEGER PRIMARY KEY,
    image    INTEGER NOT NULL REFERENCES image,
    name     TEXT NOT NULL,       -- demangled; 'function 0x11a0' where only the range is known
    start    INTEGER NOT NULL,    -- bytes [start, end)
    end      INTEGER NOT NULL
);
CREATE TABLE loop (               -- each after the one around it
    id       INTEGER PRIMARY KEY,
    function INTEGER NOT NULL REFERENCES function,
    parent   INTEGER REFERENCES loop,
    header   INTEGER NOT NULL,    -- address
    depth    INTEGER NOT NULL,    -- 1: outermost
    last     INTEGER NOT NULL,    -- highest id of a loop inside: [id, last] are nested intervals
    irreducible INTEGER NOT NULL  -- 1: entered at other blocks, too
);
CREATE TABLE block (
    id       INTEGER PRIMARY KEY,
    function INTEGER NOT NULL REFERENCES function,
    loop     INTEGER REFERENCES loop,  -- the innermost one
    start    INTEGER NOT NULL,    -- bytes [start, end)
    end      INTEGER NOT NULL,
    enter    INTEGER NOT NULL,    -- a dominates b in one function: b.enter BETWEEN a.enter AND a.leave
    leave    INTEGER NOT NULL,
    kind     TEXT NOT NULL        -- how it ends: plain jump conditional call return indirect trap
);
CREATE TABLE edge (
    source   INTEGER NOT NULL REFERENCES block,
    target   INTEGER REFERENCES block,   -- NULL: outside the function
    address  INTEGER NOT NULL,    -- of the target
    back     INTEGER NOT NULL     -- 1: closes a loop, whose header the target is
);
CREATE TABLE instruction (
    address  INTEGER NOT NULL,
    block    INTEGER NOT NULL REFERENCES block,
    bytes    BLOB NOT NULL,
    mnemonic TEXT NOT NULL,
    operands TEXT NOT NULL,       -- Intel syntax
    PRIMARY KEY (block, address)
) WITHOUT ROWID;
CREATE TABLE call (
    block    INTEGER NOT NULL REFERENCES block,
    address  INTEGER NOT NULL,    -- of the call
    target   INTEGER,             -- address, NULL where it is not in the code
    symbol   TEXT,                -- name of the function of another file that it leads to
    callee   INTEGER REFERENCES function
);
CREATE TABLE mapping (            -- where code of a file lay in the process
    image    INTEGER NOT NULL REFERENCES image,
    start    INTEGER NOT NULL,    -- live bytes [start, end)
    end      INTEGER NOT NULL,
    bias     INTEGER NOT NULL     -- live address less link-time address
);
CREATE TABLE sample (             -- processor time, by statistical sampling
    thread   INTEGER NOT NULL,
    image    INTEGER REFERENCES image,  -- NULL: code that is in no file
    block    INTEGER REFERENCES block,  -- NULL: in no block that was found
    address  INTEGER NOT NULL,    -- link-time, or a live one in no file; below 0: of the kernel
    count    INTEGER NOT NULL,
    seconds  REAL NOT NULL        -- that the samples stand for
);
CREATE INDEX function_at ON function (image, start);
CREATE INDEX block_at ON block (function, start);
CREATE INDEX sample_in ON sample (block);
CREATE VIEW place AS              -- an instruction with everything around it
    SELECT i.address, i.mnemonic, i.operands, b.id AS block, b.loop, f.id AS function, f.name, m.path
    FROM instruction i JOIN block b ON b.id = i.block JOIN function f ON f.id = b.function
         JOIN image m ON m.id = f.image;
""" + _COUNTS + _MEMORY + _VALUES + _THREADS


def _with_values(copy: sqlite3.Connection) -> None:
    copy.executescript(_VALUES)
    if "alignment" not in [name for _, name, *_ in copy.execute("PRAGMA table_info(access)")]:
        copy.execute("ALTER TABLE access ADD COLUMN alignment INTEGER")  # else the table is younger than the file


_MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection], object]] = {
    1: lambda copy: copy.executescript(_COUNTS),
    2: lambda copy: copy.executescript(_MEMORY),
    3: _with_values,
    4: lambda copy: copy.executescript(_THREADS),
}
"""By the version that a file has: what makes it one of the next version."""


class StoreError(Exception):
    """The file is no profile, or cannot be read or written; the message is for the user."""


def check_new(path: str) -> None:
    """A profile can be written to ``path``: nothing is there, an empty file, or a profile. Raises ``StoreError``."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.exists(path):
        if not os.path.isfile(path) or not os.access(path, os.W_OK):
            raise StoreError(f"{path}: cannot be written; name a file that can")
        if os.path.getsize(path):
            _identified(path).close()
    elif not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise StoreError(f"{path}: cannot be written there; name a file that can")


def create(path: str) -> sqlite3.Connection:
    """A new, empty profile at ``path``, in place of the one that was there. Raises ``StoreError``."""
    check_new(path)
    try:
        if os.path.exists(path):
            os.unlink(path)
        connection = sqlite3.connect(path, isolation_level=None)
        connection.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; "
                                 f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {VERSION}; {TABLES}")
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path}: cannot be written ({error}); name a file that can") from error
    return connection


def open_existing(path: str) -> sqlite3.Connection:
    """The profile at ``path``, for reading, brought to this version in memory where it is older. Raises
    ``StoreError``."""
    if not os.path.exists(path):
        raise StoreError(f"{path}: there is no such file; memopt profile -o {path} -- PROGRAM makes one")
    connection = _identified(path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        connection.close()
        raise StoreError(f"{path}: made by a newer memopt; use that one to read it")
    return connection if version == VERSION else _migrated(connection, version)


def _identified(path: str) -> sqlite3.Connection:
    """The file at ``path``, which is a profile of whatever version; ``StoreError`` where it is none."""
    why = "it was not made by memopt profile"
    try:
        connection = sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, isolation_level=None)
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application == _APPLICATION:
            return connection
        connection.close()
    except sqlite3.Error as error:
        why = str(error)
    raise StoreError(f"{path}: not a profile ({why}); name another file")


def _migrated(old: sqlite3.Connection, version: int) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None)
    old.backup(copy)
    old.close()
    for number in range(version, VERSION):
        _MIGRATIONS[number](copy)
        copy.execute(f"PRAGMA user_version = {number + 1}")
    return copy


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(os.path.abspath(path))
