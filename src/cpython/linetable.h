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
    const uint8_t *bytes;
    size_t size_bytes;
    int32_t first_line; /* co_firstlineno */
};

/* The position of the instruction at instruction_bytes (a byte offset into the bytecode). Formats without columns leave
 * all but line (and end_line, equal to it) at -1. False, and all -1, when the table does not cover the instruction. */
bool linetable_lookup(const struct linetable *table, uint32_t instruction_bytes, struct source_position *position);

/* The format that a minor version of CPython 3 uses. */
enum linetable_format linetable_format_of(int minor);

#endif
