#include "cpython/linetable.h"

enum {
    NO_VALUE = -1, /* None in co_positions() */
    CODE_UNIT_BYTES = 2,

    /* 3.10, Objects/lnotab_notes.txt: the line delta of instructions that have no line */
    LINES_NO_LINE = -128,

    /* 3.11+, Include/cpython/code.h, enum _PyCodeLocationInfoKind; 0 to 9 are the short forms */
    LOCATION_ONE_LINE_0 = 10,
    LOCATION_ONE_LINE_2 = 12,
    LOCATION_NO_COLUMNS = 13,
    LOCATION_LONG = 14,
    LOCATION_NONE = 15,

    /* A varint is 32 bits in groups of six: the sixth group, the last that can have a meaning, is shifted by 30. */
    VARINT_LAST_SHIFT = 30,
};

static const struct source_position NOWHERE = {NO_VALUE, NO_VALUE, NO_VALUE, NO_VALUE};

static struct source_position position_of_line(uint32_t line) {
    return (struct source_position){(int32_t)line, (int32_t)line, NO_VALUE, NO_VALUE};
}

/* The cursor's range grows by length_bytes; false when a table longer than any code object takes it out of bounds. */
static bool extend_range(struct linetable_cursor *cursor, uint32_t length_bytes) {
    if (length_bytes > UINT32_MAX - cursor->end_bytes)
        return false;
    cursor->end_bytes += length_bytes;
    return true;
}

/* Both formats up to 3.10 are pairs {instruction delta, unsigned; line delta, signed}. An odd last byte is no pair. */
static bool read_pair(struct linetable_cursor *cursor, uint8_t *length_bytes, int32_t *line_delta) {
    const struct linetable *table = cursor->table;
    if (table->size_bytes - cursor->next_entry < 2)
        return false;
    *length_bytes = table->bytes[cursor->next_entry];
    *line_delta = (int8_t)table->bytes[cursor->next_entry + 1];
    cursor->next_entry += 2;
    return true;
}

/* 3.8, 3.9 PyCode_Addr2Line (Objects/codeobject.c): an instruction has the line after all pairs that end at or before
 * it. So a pair closes the range before it with the line as it was, and its delta counts for what follows. */
static bool next_lnotab(struct linetable_cursor *cursor, struct linetable_range *range) {
    uint8_t length_bytes = 0;
    int32_t line_delta = 0;
    uint32_t line = cursor->line;
    while (read_pair(cursor, &length_bytes, &line_delta)) {
        cursor->line += (uint32_t)line_delta;
        if (length_bytes == 0) {
            line = cursor->line;
            continue;
        }
        if (!extend_range(cursor, length_bytes))
            return false;
        range->position = position_of_line(line);
        return true;
    }
    /* What is behind the last pair goes on to the end of the code, which the table does not tell. */
    cursor->is_finished = true;
    if (cursor->end_bytes == UINT32_MAX)
        return false;
    cursor->end_bytes = UINT32_MAX;
    range->position = position_of_line(line);
    return true;
}

/* 3.10 advance() and PyLineTable_NextAddressRange (Objects/codeobject.c): here a pair is a range with its own line, and
 * a range of no length changes the line of those after it. */
static bool next_lines(struct linetable_cursor *cursor, struct linetable_range *range) {
    uint8_t length_bytes = 0;
    int32_t line_delta = 0;
    while (read_pair(cursor, &length_bytes, &line_delta)) {
        if (line_delta != LINES_NO_LINE)
            cursor->line += (uint32_t)line_delta;
        if (length_bytes == 0)
            continue;
        range->position = line_delta == LINES_NO_LINE ? NOWHERE : position_of_line(cursor->line);
        return extend_range(cursor, length_bytes);
    }
    return false;
}

/* A byte inside an entry of the 3.11+ format. Only the first byte of an entry has the top bit, so one that has it here
 * is the sign of a table that was cut or overwritten. */
static bool read_inner_byte(struct linetable_cursor *cursor, uint8_t *byte) {
    const struct linetable *table = cursor->table;
    if (cursor->next_entry >= table->size_bytes)
        return false;
    *byte = table->bytes[cursor->next_entry++];
    return (*byte & 0x80) == 0;
}

/* Six bits a byte, the lowest first; bit 6 says that more follow. */
static bool read_varint(struct linetable_cursor *cursor, uint32_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift <= VARINT_LAST_SHIFT; shift += 6) {
        uint8_t byte = 0;
        if (!read_inner_byte(cursor, &byte))
            return false;
        *value |= (uint32_t)(byte & 0x3f) << shift;
        if ((byte & 0x40) == 0)
            return true;
    }
    return false;
}

/* The sign is the lowest bit. */
static bool read_line_delta(struct linetable_cursor *cursor) {
    uint32_t value = 0;
    if (!read_varint(cursor, &value))
        return false;
    cursor->line += value & 1 ? 0u - (value >> 1) : value >> 1;
    return true;
}

/*   short (0-9)   |1|code 4|length-1 3|  |0|column, lowest 3 bits|width 4|     column = code * 8 + ... */
static bool read_short(struct linetable_cursor *cursor, unsigned code, struct source_position *position) {
    uint8_t byte = 0;
    if (!read_inner_byte(cursor, &byte))
        return false;
    *position = position_of_line(cursor->line);
    position->column = (int32_t)(code << 3 | (unsigned)byte >> 4);
    position->end_column = position->column + (byte & 0x0f);
    return true;
}

/*   one line (10-12)   |1|code 4|length-1 3|  |0|column 7|  |0|end column 7|     line += code - 10 */
static bool read_one_line(struct linetable_cursor *cursor, unsigned code, struct source_position *position) {
    uint8_t column = 0;
    uint8_t end_column = 0;
    if (!read_inner_byte(cursor, &column) || !read_inner_byte(cursor, &end_column))
        return false;
    cursor->line += code - LOCATION_ONE_LINE_0;
    *position = position_of_line(cursor->line);
    position->column = column;
    position->end_column = end_column;
    return true;
}

/*   long (14)   |1|code 4|length-1 3|  line delta (signed) | end line - line | column + 1 | end column + 1,  varints */
static bool read_long(struct linetable_cursor *cursor, struct source_position *position) {
    uint32_t lines = 0;
    uint32_t column = 0;
    uint32_t end_column = 0;
    if (!read_line_delta(cursor) || !read_varint(cursor, &lines) || !read_varint(cursor, &column) ||
        !read_varint(cursor, &end_column))
        return false;
    position->line = (int32_t)cursor->line;
    position->end_line = (int32_t)(cursor->line + lines);
    position->column = (int32_t)(column - 1);
    position->end_column = (int32_t)(end_column - 1);
    return true;
}

static bool read_location(struct linetable_cursor *cursor, unsigned code, struct source_position *position) {
    if (code < LOCATION_ONE_LINE_0)
        return read_short(cursor, code, position);
    if (code <= LOCATION_ONE_LINE_2)
        return read_one_line(cursor, code, position);
    if (code == LOCATION_LONG)
        return read_long(cursor, position);
    if (code == LOCATION_NONE) {
        *position = NOWHERE;
        return true;
    }
    if (!read_line_delta(cursor)) /* LOCATION_NO_COLUMNS */
        return false;
    *position = position_of_line(cursor->line);
    return true;
}

/* 3.11 to 3.15 advance_with_locations (Objects/codeobject.c) */
static bool next_location(struct linetable_cursor *cursor, struct linetable_range *range) {
    const struct linetable *table = cursor->table;
    if (cursor->next_entry >= table->size_bytes)
        return false;
    uint8_t first = table->bytes[cursor->next_entry++];
    if ((first & 0x80) == 0)
        return false;
    if (!read_location(cursor, first >> 3 & 0x0f, &range->position))
        return false;
    return extend_range(cursor, ((first & 0x07u) + 1) * CODE_UNIT_BYTES);
}

void linetable_begin(struct linetable_cursor *cursor, const struct linetable *table) {
    *cursor = (struct linetable_cursor){.table = table, .line = (uint32_t)table->first_line};
}

bool linetable_next(struct linetable_cursor *cursor, struct linetable_range *range) {
    if (cursor->is_finished)
        return false;
    range->start_bytes = cursor->end_bytes;
    bool found = false;
    switch (cursor->table->format) {
    case LINETABLE_LNOTAB:
        found = next_lnotab(cursor, range);
        break;
    case LINETABLE_LINES:
        found = next_lines(cursor, range);
        break;
    case LINETABLE_LOCATIONS:
        found = next_location(cursor, range);
        break;
    }
    range->end_bytes = cursor->end_bytes;
    if (!found)
        cursor->is_finished = true;
    return found;
}

bool linetable_lookup(const struct linetable *table, uint32_t instruction_bytes, struct source_position *position) {
    struct linetable_cursor cursor;
    struct linetable_range range;
    linetable_begin(&cursor, table);
    while (linetable_next(&cursor, &range)) {
        if (instruction_bytes < range.end_bytes) {
            *position = range.position;
            return true;
        }
    }
    *position = NOWHERE;
    return false;
}

enum linetable_format linetable_format_of(int minor) {
    if (minor <= 9)
        return LINETABLE_LNOTAB;
    return minor == 10 ? LINETABLE_LINES : LINETABLE_LOCATIONS;
}
