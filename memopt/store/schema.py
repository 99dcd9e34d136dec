"""The SQL schema of a profile: tables, columns, and migrations of files of older versions.

In: the path of a profile. Out: a connection, to a new profile (``create``) or to an existing one (``open_existing``).
``memopt query --schema`` prints the tables with the comments below, which describe each column.

All addresses in ``image`` files are link-time addresses; the address in a process is that plus ``mapping.bias``. Each
part of a profile is written in one transaction, so that a profile that was cut short holds whole parts. SQLite's
``user_version`` holds the version of the tables. A file of an older version is migrated in memory when it is opened;
the file itself does not change.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping

VERSION = 6
_APPLICATION = 0x6D656D6F  # "memo", in the header of the file (sqlite.org/fileformat.html, offset 68)

_COUNTS = """
CREATE TABLE execution (          -- memopt profile --exact: executions of each straight piece of code
    image    INTEGER NOT NULL REFERENCES image,
    start    INTEGER NOT NULL,    -- bytes [start, end); pieces may overlap, because some are entered in the middle
    end      INTEGER NOT NULL,
    count    INTEGER NOT NULL,
    instructions INTEGER NOT NULL -- executed; a string instruction with rep counts once for each repetition, too
);
CREATE TABLE context (            -- --exact: a calling context: a function, called from its caller's context
    id       INTEGER PRIMARY KEY, -- preorder number: contexts called from this one have ids in [id, last]
    last     INTEGER NOT NULL,
    thread   INTEGER NOT NULL,
    parent   INTEGER REFERENCES context,  -- the caller's context; NULL: the caller was not recorded
    function INTEGER REFERENCES function, -- NULL: code in no known function
    image    INTEGER REFERENCES image,
    entry    INTEGER NOT NULL,    -- address at which the function is entered
    site     INTEGER,             -- address of the call in the parent's function; NULL: a signal or unwinding
    loop     INTEGER REFERENCES loop,     -- the innermost loop around the call
    entries  INTEGER NOT NULL,
    instructions INTEGER NOT NULL,-- executed in the function itself
    inclusive INTEGER NOT NULL    -- executed in the function and in everything that it calls
);
CREATE TABLE context_loop (       -- --exact: a loop in a calling context
    context  INTEGER NOT NULL REFERENCES context,
    loop     INTEGER NOT NULL REFERENCES loop,
    entries  INTEGER NOT NULL,
    iterations INTEGER NOT NULL,  -- a test at the loop's head that leaves the loop does not count
    instructions INTEGER NOT NULL,-- executed in the loop, without inner loops and called functions
    inclusive INTEGER NOT NULL,   -- executed in the loop, with both
    PRIMARY KEY (context, loop)
) WITHOUT ROWID;
CREATE INDEX context_of ON context (function);
"""

_MEMORY = """
CREATE TABLE watched (            -- --memory: one row for each thread whose memory accesses were traced
    thread   INTEGER NOT NULL,
    words    INTEGER NOT NULL,    -- length of the trace, in words of 8 bytes
    complete INTEGER NOT NULL     -- 1: traced to the end of the thread; 0: not
);
CREATE TABLE dependence (         -- --memory, --dependences: a data dependence through memory within a thread
    kind     TEXT NOT NULL,       -- RAW (read after write), WAR, WAW
    source_context INTEGER NOT NULL REFERENCES context,
    source   INTEGER NOT NULL,    -- address of the instruction that accesses the memory first
    sink_context INTEGER NOT NULL REFERENCES context,
    sink     INTEGER NOT NULL,    -- address of the instruction that accesses it next
    context  INTEGER REFERENCES context,  -- calling context of the loop that carries it; NULL: no loop does
    loop     INTEGER REFERENCES loop,
    least    INTEGER NOT NULL,    -- smallest distance from source to sink, in iterations; 0: the same iteration
    most     INTEGER NOT NULL,    -- largest distance; 16384: that or more
    count    INTEGER NOT NULL,    -- how often: dependent bytes, divided by the size of the smaller access
    reduction INTEGER NOT NULL,   -- 1: source and sink belong to one sum (x = x + ..., also *, min, max, and, or,
                                  -- xor), whose partial values the carrying loop uses for nothing else;
                                  -- 0 also where that loop carries a RAW dependence of another kind
    induction INTEGER NOT NULL DEFAULT 0  -- 1: source and sink access a slot of the stack frame whose value grows by
                                  -- the same amount in each iteration of the carrying loop: a counter that the
                                  -- compiler has spilled
);
CREATE TABLE access (             -- --memory: a memory operand of an instruction, in a calling context
    id       INTEGER PRIMARY KEY,
    context  INTEGER NOT NULL REFERENCES context,
    address  INTEGER NOT NULL,    -- of the instruction; a string instruction may have two operands, and so two rows
    kind     TEXT NOT NULL,       -- R (read), W (write), RW
    size     INTEGER NOT NULL,    -- bytes
    count    INTEGER NOT NULL,    -- number of accesses
    lowest   INTEGER NOT NULL,    -- lowest address
    highest  INTEGER NOT NULL,    -- highest address
    steady   INTEGER NOT NULL,    -- accesses with the same stride as the access before them
    misaligned INTEGER NOT NULL,  -- accesses at addresses that are no multiple of the size
    parts    INTEGER,             -- number of rows in the table part; NULL: too many, they were not written
    alignment INTEGER             -- the largest power of two that divides all addresses; NULL: unknown
);
CREATE TABLE pattern (            -- --memory: an access pattern, in the notation of memopt.traces.notation
    id       INTEGER PRIMARY KEY,
    level    INTEGER NOT NULL,    -- 0: contiguous accesses; 1: repetitions of level 0; 2: repetitions of level 1; ...
    text     TEXT NOT NULL,       -- e.g. [[ID222],(+15728+[ID222])*34]: the pattern 222, then 34 more of it
    affine   TEXT,                -- as loops, e.g. 516 i0 + 4 i1, i0 < 35, i1 < 67; NULL: not affine
    accesses INTEGER NOT NULL,    -- number of accesses
    span     INTEGER NOT NULL     -- bytes from the start of its first access to the end of its last one
);
CREATE TABLE part (               -- --memory: the patterns that an access follows, in the order of time
    access   INTEGER NOT NULL REFERENCES access,
    position INTEGER NOT NULL,    -- 0, 1, ...
    address  INTEGER NOT NULL,    -- first address of the pattern
    pattern  INTEGER NOT NULL REFERENCES pattern,
    PRIMARY KEY (access, position)
) WITHOUT ROWID;
CREATE TABLE stride (             -- --memory: distances between successive addresses of an access
    access   INTEGER NOT NULL REFERENCES access,
    bytes    INTEGER NOT NULL,
    count    INTEGER NOT NULL     -- a lower bound, too low by at most a fifth of access.count; the four most
                                  -- frequent strides have rows
);
CREATE TABLE reuse (              -- --reuse: reuse distances, in classes of powers of two
    access   INTEGER NOT NULL REFERENCES access,
    lines    INTEGER,             -- other cache lines touched since the last touch of this line, lower bound of the
                                  -- class: 0, 1, 2, 4, 8, ...; NULL: the first touch of the line
    count    INTEGER NOT NULL     -- touches of cache lines
);
CREATE TABLE working_set (        -- --memory: working sets of a loop in a calling context
    context  INTEGER NOT NULL REFERENCES context,
    loop     INTEGER NOT NULL REFERENCES loop,
    at_end   INTEGER NOT NULL,    -- 1: at the end of entries; 0: after the given number of iterations
    iterations REAL NOT NULL,     -- executions of the loop header: 1, 2, 4, ...; at the end the mean
    entries  INTEGER NOT NULL,    -- entries that had so many iterations
    lines    REAL NOT NULL,       -- bytes of the cache lines touched, mean over entries
    most_lines INTEGER NOT NULL,  -- and maximum
    pages    REAL NOT NULL,       -- bytes of the pages touched, mean over entries
    most_pages INTEGER NOT NULL   -- and maximum
);
CREATE TABLE path (               -- --paths: an acyclic path of a function, taken at least once
    function INTEGER REFERENCES function,  -- NULL: code in no known function
    entry    INTEGER NOT NULL,    -- address of the entry for which paths are numbered
    number   INTEGER NOT NULL,    -- number of the path by Ball and Larus (1996)
    paths    INTEGER NOT NULL,    -- how many acyclic paths there are
    count    REAL NOT NULL,       -- how often it was taken; without --exact an estimate from windows
    blocks   TEXT NOT NULL        -- addresses of its basic blocks
);
CREATE TABLE windows (            -- --paths: one row: the windows in which paths were counted
    windows  INTEGER NOT NULL,    -- number of windows
    seconds  REAL NOT NULL        -- their total length
);
CREATE TABLE nest (               -- --affine: a hot loop nest, lifted from its machine code
    id       INTEGER PRIMARY KEY,
    image    INTEGER REFERENCES image,
    header   INTEGER NOT NULL,    -- address of the outermost loop
    trips    INTEGER NOT NULL,    -- R: iterations of the outermost loop that were left when a sample met the nest
    text     TEXT NOT NULL        -- arrays, and statements with their loops and subscripts
);
CREATE TABLE derived_set (        -- --affine: working set of a loop's entry, derived from subscripts and bounds
    nest     INTEGER NOT NULL REFERENCES nest,
    loop     INTEGER REFERENCES loop,  -- NULL: a loop of a function that the nest calls
    depth    INTEGER NOT NULL,    -- 1: outermost
    exact    INTEGER NOT NULL,    -- 0: the end of the last iteration is unknown, and left out
    iterations INTEGER NOT NULL,  -- 1, 2, 4, ..., and all; at depth 1 those left, if the number of past ones is unknown
    lines    INTEGER NOT NULL,    -- bytes of the cache lines touched
    pages    INTEGER NOT NULL     -- bytes of the pages touched
);
CREATE TABLE trips (              -- --memory, --values: trip counts of a loop in a calling context, by classes
    context  INTEGER NOT NULL REFERENCES context,
    loop     INTEGER NOT NULL REFERENCES loop,
    least    INTEGER NOT NULL,    -- lower bound of the class of trip counts: 1 (1), 2 (2 to 3), 4 (4 to 7), ...
    entries  INTEGER NOT NULL
);
CREATE TABLE cache (              -- data caches of the machine
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
CREATE TABLE value (              -- --values: the distribution of one value over all entries of a function or loop;
                                  -- a part that is entered by itself (goto *label) has rows of its own
    id       INTEGER PRIMARY KEY,
    context  INTEGER NOT NULL REFERENCES context,
    loop     INTEGER REFERENCES loop,  -- NULL: the value belongs to the function
    name     TEXT NOT NULL,       -- cycles: time stamp counter from entry to exit, callees and probes included;
                                  -- own cycles: without callees; trips: executions of the loop header;
                                  -- rdi, ...: registers: arguments of a function, invariants that a loop reads
    count    INTEGER NOT NULL,
    least    INTEGER NOT NULL,    -- smallest; registers are signed 64-bit numbers
    most     INTEGER NOT NULL,    -- largest
    total    INTEGER,             -- sum; NULL: the value is a register
    alignment INTEGER,            -- of a register: the largest power of two that divides all values, at most 2**62;
                                  -- NULL: all values are zero
    changes  INTEGER NOT NULL     -- entries at which it differed from the entry before
);
CREATE TABLE frequent (           -- --values: the most frequent values
    value    INTEGER NOT NULL REFERENCES value,
    amount   INTEGER NOT NULL,
    count    INTEGER NOT NULL,    -- exact if fewer than eight values occurred; else too low by value.count / 9 at most
    PRIMARY KEY (value, amount)
) WITHOUT ROWID;
CREATE TABLE distribution (       -- --values: distributions of cycles and trips, by classes
    value    INTEGER NOT NULL REFERENCES value,
    least    INTEGER NOT NULL,    -- lower bound of the class: 0, 1, 2 (2 to 3), 4 (4 to 7), ...
    count    INTEGER NOT NULL,
    PRIMARY KEY (value, least)
) WITHOUT ROWID;
CREATE TABLE bank (               -- --memory: offsets in the cache line at which accesses begin
    access   INTEGER NOT NULL REFERENCES access,
    offset   INTEGER NOT NULL,    -- bytes from the start of the line, rounded down to 0, 8, ..., 56
    count    INTEGER NOT NULL,
    PRIMARY KEY (access, offset)
) WITHOUT ROWID;
CREATE TABLE object (             -- --memory: the object that an access touches, if all its addresses lie in one
    access   INTEGER PRIMARY KEY REFERENCES access,
    kind     TEXT NOT NULL,       -- variable; block (allocated by malloc and the like); stack, heap (brk), mapped
                                  -- (other memory of these kinds); file
    name     TEXT,                -- of the variable, the file, or the function that allocated the block
    offset   INTEGER NOT NULL,    -- of the lowest address, from the start of the object
    context  INTEGER REFERENCES context  -- calling context of the allocation; if several, of the last one
);
CREATE TABLE observation (        -- --exact: one row, if the system allows sampling: how much ran uncounted
    samples  INTEGER NOT NULL,    -- samples of processor time
    outside  INTEGER NOT NULL     -- those in code that ran without being counted
);
CREATE INDEX value_of ON value (context);
"""
_CARRIED = """
CREATE TABLE carried (            -- --memory, --dependences: a value that a loop carries from one iteration to the next
                                  -- in a register or a slot of the stack frame; values that grow by the same amount in
                                  -- each iteration have no rows, nor have loops that carry a RAW dependence through
                                  -- memory with distance 1
    loop     INTEGER NOT NULL REFERENCES loop,
    location TEXT NOT NULL,       -- rax; xmm0; frame 0 -24:64 (64 bits, 24 bytes below the stack
                                  -- pointer at entry); an exit that depends on data; an
                                  -- instruction that is not understood
    kind     TEXT NOT NULL        -- sum (x = x + ..., also *, min, max, and, or, xor); serial: computed from its old
                                  -- value in another way; unknown
);
CREATE INDEX carried_by ON carried (loop);
"""
_THREADS = """
CREATE TABLE thread (             -- a thread of the program, or of a process that it started
    thread   INTEGER NOT NULL,    -- thread id, plus 4194304 for each earlier thread with that id; that of the first
                                  -- thread of a process is the process id
    process  INTEGER NOT NULL,    -- process id
    parent   INTEGER,             -- id of the parent process; NULL: memopt; 0: unknown
    program  TEXT                 -- path of the executable
);
"""
TABLES = """
CREATE TABLE run (                -- one row for each run: how the profile was made
    memopt   TEXT NOT NULL,       -- version of memopt
    command  TEXT NOT NULL,       -- program and arguments, quoted for a shell
    machine  TEXT NOT NULL,       -- model name of the processor
    started  TEXT NOT NULL,       -- date and time, UTC, ISO 8601
    seconds  REAL NOT NULL,       -- elapsed time
    ended    TEXT NOT NULL        -- "exit 0", "signal 9"
);
CREATE TABLE image (              -- an executable or library
    id       INTEGER PRIMARY KEY,
    path     TEXT NOT NULL UNIQUE
);
CREATE TABLE function (           -- a function in such a file
    id       INTEGER PRIMARY KEY,
    image    INTEGER NOT NULL REFERENCES image,
    name     TEXT NOT NULL,       -- demangled; 'function 0x11a0' if it has no symbol
    start    INTEGER NOT NULL,    -- bytes [start, end)
    end      INTEGER NOT NULL
);
CREATE TABLE loop (               -- a loop of a function
    id       INTEGER PRIMARY KEY, -- preorder number: loops inside this one have ids in [id, last]
    function INTEGER NOT NULL REFERENCES function,
    parent   INTEGER REFERENCES loop,  -- the loop around it
    header   INTEGER NOT NULL,    -- address of its header
    depth    INTEGER NOT NULL,    -- 1: outermost
    last     INTEGER NOT NULL,    -- highest id of a loop inside
    irreducible INTEGER NOT NULL, -- 1: irreducible: has entries other than its header
    file     TEXT,                -- source file of its function; NULL: unknown, also for line
    line     INTEGER,             -- source line at which it begins
    inlined  TEXT                 -- where its code stands, as file:line, if it was inlined from another file
);
CREATE TABLE block (              -- a basic block
    id       INTEGER PRIMARY KEY,
    function INTEGER NOT NULL REFERENCES function,
    loop     INTEGER REFERENCES loop,  -- the innermost loop around it
    start    INTEGER NOT NULL,    -- bytes [start, end)
    end      INTEGER NOT NULL,
    enter    INTEGER NOT NULL,    -- block a dominates block b of its function if b.enter BETWEEN a.enter AND a.leave
    leave    INTEGER NOT NULL,
    kind     TEXT NOT NULL        -- its last instruction: plain jump conditional call return indirect trap
);
CREATE TABLE edge (               -- an edge of the control-flow graph
    source   INTEGER NOT NULL REFERENCES block,
    target   INTEGER REFERENCES block,  -- NULL: leads out of the function
    address  INTEGER NOT NULL,    -- address of the target
    back     INTEGER NOT NULL     -- 1: a back edge: the target is the header of a loop around the source
);
CREATE TABLE instruction (
    address  INTEGER NOT NULL,
    block    INTEGER NOT NULL REFERENCES block,
    bytes    BLOB NOT NULL,
    mnemonic TEXT NOT NULL,
    operands TEXT NOT NULL,       -- Intel syntax
    file     TEXT,                -- source file of its function; NULL: unknown, or the function did not run
    line     INTEGER,             -- source line
    inlined  TEXT,                -- where the code stands, as file:line, if it was inlined from another file
    PRIMARY KEY (block, address)
) WITHOUT ROWID;
CREATE TABLE call (               -- a call instruction
    block    INTEGER NOT NULL REFERENCES block,
    address  INTEGER NOT NULL,    -- address of the call
    target   INTEGER,             -- address called; NULL: an indirect call
    symbol   TEXT,                -- name of the called function, if it is in another file
    callee   INTEGER REFERENCES function
);
CREATE TABLE mapping (            -- code of a file in the address space of the process
    image    INTEGER NOT NULL REFERENCES image,
    start    INTEGER NOT NULL,    -- addresses [start, end) in the process
    end      INTEGER NOT NULL,
    bias     INTEGER NOT NULL     -- address in the process minus link-time address
);
CREATE TABLE sample (             -- processor time, by sampling
    thread   INTEGER NOT NULL,
    image    INTEGER REFERENCES image,  -- NULL: code in no file
    block    INTEGER REFERENCES block,  -- NULL: in no known block
    address  INTEGER NOT NULL,    -- link-time address; in no file that of the process; negative: in the kernel
    count    INTEGER NOT NULL,    -- number of samples
    seconds  REAL NOT NULL        -- processor time that they stand for
);
CREATE INDEX function_at ON function (image, start);
CREATE INDEX block_at ON block (function, start);
CREATE INDEX sample_in ON sample (block);
CREATE VIEW place AS              -- an instruction with its block, loop, function and file
    SELECT i.address, i.mnemonic, i.operands, b.id AS block, b.loop, f.id AS function, f.name, m.path
    FROM instruction i JOIN block b ON b.id = i.block JOIN function f ON f.id = b.function
         JOIN image m ON m.id = f.image;
""" + _COUNTS + _MEMORY + _VALUES + _THREADS + _CARRIED


def _with_values(copy: sqlite3.Connection) -> None:
    copy.executescript(_VALUES)
    if "alignment" not in [name for _, name, *_ in copy.execute("PRAGMA table_info(access)")]:
        copy.execute("ALTER TABLE access ADD COLUMN alignment INTEGER")  # not if a migration has just made the table


def _with_lines(copy: sqlite3.Connection) -> None:
    for table in ("loop", "instruction"):
        for column in ("file TEXT", "line INTEGER", "inlined TEXT"):
            copy.execute(f"ALTER TABLE {table} ADD COLUMN {column}")


def _with_carried(copy: sqlite3.Connection) -> None:
    copy.executescript(_CARRIED)
    if "induction" not in [name for _, name, *_ in copy.execute("PRAGMA table_info(dependence)")]:
        copy.execute("ALTER TABLE dependence ADD COLUMN induction INTEGER NOT NULL DEFAULT 0")


def _with_lines_and_carried(copy: sqlite3.Connection) -> None:
    _with_lines(copy)
    _with_carried(copy)


# By version of a file: the function that migrates it to the next version.
_MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection], object]] = {
    1: lambda copy: copy.executescript(_COUNTS),
    2: lambda copy: copy.executescript(_MEMORY),
    3: _with_values,
    4: lambda copy: copy.executescript(_THREADS),
    5: _with_lines_and_carried,
}


class StoreError(Exception):
    """The file is no profile, or cannot be read or written. The message is one line for the user."""


def check_new(path: str) -> None:
    """Checks that a profile can be written to ``path``. Only an empty file or an earlier profile may be there: nothing
    else is overwritten. Raises ``StoreError``."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.exists(path):
        if not os.path.isfile(path) or not os.access(path, os.W_OK):
            raise StoreError(f"{path}: cannot be written; name another file")
        if os.path.getsize(path):
            _identified(path).close()
    elif not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise StoreError(f"{path}: cannot be written there; name a file in another folder")


def create(path: str) -> sqlite3.Connection:
    """Creates an empty profile at ``path``, and removes the earlier one there. Raises ``StoreError``."""
    check_new(path)
    try:
        if os.path.exists(path):
            os.unlink(path)
        # A new file: SQLite would follow a link that somebody else has placed here.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
        connection = sqlite3.connect(path, isolation_level=None)
        connection.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; "
                                 f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {VERSION}; {TABLES}")
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path}: cannot be written ({error}); name another file") from error
    return connection


def open_existing(path: str) -> sqlite3.Connection:
    """Opens the profile at ``path`` for reading. One of an older version is migrated in memory; its file stays as it
    is. Raises ``StoreError``."""
    if not os.path.exists(path):
        raise StoreError(f"{path}: there is no such file; make one with memopt profile -o {path} -- PROGRAM")
    connection = _identified(path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        connection.close()
        raise StoreError(f"{path}: was made by a newer memopt; read it with that one")
    return connection if version == VERSION else _migrated(connection, version)


def _identified(path: str) -> sqlite3.Connection:
    """Opens the profile at ``path``, of any version, for reading. Raises ``StoreError`` if it is no profile."""
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
