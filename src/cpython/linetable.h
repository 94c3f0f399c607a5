/* From an instruction to its place in the source: the three encodings that CPython has used.
 * Pure functions over bytes; every table is input and may be garbage. Signal-safe, thread-safe. */
#ifndef STROBE_CPYTHON_LINETABLE_H
#define STROBE_CPYTHON_LINETABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum linetable_format {
    LINETABLE_LNOTAB,   /* co_lnotab, 3.8 and 3.9 (Objects/lnotab_notes.txt) */
    LINETABLE_LINES,    /* co_linetable of 3.10 (PEP 626) */
    LINETABLE_LOCATIONS /* co_linetable of 3.11 and later (Objects/locations.md, PEP 657) */
};

/* As co_positions() gives it; -1 stands for None. Columns are UTF-8 byte offsets, end_column exclusive. */
struct source_position {
    int32_t line;
    int32_t end_line;
    int32_t column;
    int32_t end_column;
};

struct linetable {
    enum linetable_format format;
    const uint8_t *bytes; /* borrowed; may be NULL when size_bytes is 0 */
    size_t size_bytes;
    int32_t first_line; /* co_firstlineno */
};

/* The position of the instruction at instruction_bytes (a byte offset into the bytecode). Formats without columns leave
 * all but line (and end_line, equal to it) at -1. False, and all -1, when the table does not cover the instruction or
 * is damaged before it. An instruction that is covered but has no position (3.10 and later) is true with all -1. */
bool linetable_lookup(const struct linetable *table, uint32_t instruction_bytes, struct source_position *position);

/* Instructions from start_bytes up to, not including, end_bytes, which all come from the same place. Never empty. */
struct linetable_range {
    uint32_t start_bytes;
    uint32_t end_bytes;
    struct source_position position;
};

/* A walk over a table from its beginning, for who needs many instructions of one code object. The ranges follow each
 * other without a gap, from 0; neighbours may have the same position. The fields are the walk's own. */
struct linetable_cursor {
    const struct linetable *table; /* borrowed, unchanged until the walk ends */
    size_t next_entry;             /* index of the first byte that is not yet decoded */
    uint32_t end_bytes;            /* where the last range ended */
    uint32_t line;                 /* CPython's computed_line; unsigned because garbage may wrap it */
    bool is_finished;
};

void linetable_begin(struct linetable_cursor *cursor, const struct linetable *table);

/* False at the end of the table and at the first byte that no CPython writes. The last range of LINETABLE_LNOTAB, which
 * does not know the length of the code, ends at UINT32_MAX. */
bool linetable_next(struct linetable_cursor *cursor, struct linetable_range *range);

/* The format that a minor version of CPython 3 uses. */
enum linetable_format linetable_format_of(int minor);

#endif
