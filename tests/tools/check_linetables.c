/* Holds linetable.h against an interpreter: standard input is what tests/live/targets/emit_linetables.py writes, each
 * instruction is looked up and met again on the walk over the table. Prints the first differences, and at the end
 * "N code objects, N instructions, N differences". Exit status: 0 no difference, 1 differences, 2 a broken stream. */
#include "cpython/linetable.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CODE_UNIT_BYTES = 2, PRINTED_DIFFERENCES = 20, STREAM_MAX_BYTES = 256 << 20 };

struct code_header {
    uint32_t label_bytes;
    int32_t first_line;
    uint32_t table_bytes;
    uint32_t instructions;
};

struct code_record {
    char *label; /* NUL-terminated */
    struct linetable table;
    struct source_position *expected;
    uint32_t instructions;
};

struct totals {
    uint64_t codes;
    uint64_t instructions;
    uint64_t differences;
};

static _Noreturn void fail(const char *why) {
    fprintf(stderr, "check_linetables: %s\n", why);
    exit(2);
}

static void *read_exactly(size_t size_bytes, size_t extra_bytes) {
    if (size_bytes > STREAM_MAX_BYTES)
        fail("a size in the stream is absurd");
    char *data = calloc(1, size_bytes + extra_bytes + 1);
    if (data == NULL)
        fail("out of memory");
    if (fread(data, 1, size_bytes, stdin) != size_bytes)
        fail("the stream ends within a code object");
    return data;
}

static enum linetable_format read_stream_header(void) {
    char magic[8];
    uint32_t minor = 0;
    if (fread(magic, 1, sizeof magic, stdin) != sizeof magic || memcmp(magic, "strobelt", sizeof magic) != 0 ||
        fread(&minor, sizeof minor, 1, stdin) != 1)
        fail("not a stream of line tables");
    return linetable_format_of((int)minor);
}

static bool read_record(struct code_record *record, enum linetable_format format) {
    struct code_header header;
    size_t got = fread(&header, 1, sizeof header, stdin);
    if (got == 0)
        return false;
    if (got != sizeof header)
        fail("the stream ends within a header");
    record->label = read_exactly(header.label_bytes, 1);
    record->table = (struct linetable){
        .format = format,
        .bytes = read_exactly(header.table_bytes, 0),
        .size_bytes = header.table_bytes,
        .first_line = header.first_line,
    };
    record->expected = read_exactly(header.instructions * sizeof *record->expected, 0);
    record->instructions = header.instructions;
    return true;
}

static void release_record(struct code_record *record) {
    free(record->label);
    free((void *)record->table.bytes);
    free(record->expected);
}

static void report(struct totals *totals, const struct code_record *record, const char *way, uint32_t instruction,
                   const struct source_position *expected, const struct source_position *got) {
    if (totals->differences++ >= PRINTED_DIFFERENCES)
        return;
    printf("%s at byte %" PRIu32 " by %s: expected %d-%d:%d-%d, got %d-%d:%d-%d\n", record->label,
           instruction * CODE_UNIT_BYTES, way, expected->line, expected->end_line, expected->column,
           expected->end_column, got->line, got->end_line, got->column, got->end_column);
}

static bool same_position(const struct source_position *one, const struct source_position *other) {
    return memcmp(one, other, sizeof *one) == 0;
}

static void check_lookups(struct totals *totals, const struct code_record *record) {
    struct source_position got;
    for (uint32_t i = 0; i < record->instructions; i++) {
        bool found = linetable_lookup(&record->table, i * CODE_UNIT_BYTES, &got);
        if (!found || !same_position(&record->expected[i], &got))
            report(totals, record, "lookup", i, &record->expected[i], &got);
    }
    /* The truth ends where the table ends, except in the format that does not know its end. */
    static const struct source_position none = {-1, -1, -1, -1};
    if (record->table.format != LINETABLE_LNOTAB &&
        linetable_lookup(&record->table, record->instructions * CODE_UNIT_BYTES, &got))
        report(totals, record, "lookup behind the end", record->instructions, &none, &got);
}

static void check_walk(struct totals *totals, const struct code_record *record) {
    struct linetable_cursor cursor;
    struct linetable_range range;
    uint32_t i = 0;
    linetable_begin(&cursor, &record->table);
    while (linetable_next(&cursor, &range)) {
        for (; i < record->instructions && i * CODE_UNIT_BYTES < range.end_bytes; i++)
            if (i * CODE_UNIT_BYTES < range.start_bytes || !same_position(&record->expected[i], &range.position))
                report(totals, record, "walk", i, &record->expected[i], &range.position);
    }
    for (; i < record->instructions; i++)
        report(totals, record, "walk, which ended", i, &record->expected[i], &range.position);
}

int main(void) {
    struct totals totals = {0};
    struct code_record record;
    enum linetable_format format = read_stream_header();
    while (read_record(&record, format)) {
        check_lookups(&totals, &record);
        check_walk(&totals, &record);
        totals.codes++;
        totals.instructions += record.instructions;
        release_record(&record);
    }
    printf("%" PRIu64 " code objects, %" PRIu64 " instructions, %" PRIu64 " differences\n", totals.codes,
           totals.instructions, totals.differences);
    return totals.differences == 0 ? 0 : 1;
}
