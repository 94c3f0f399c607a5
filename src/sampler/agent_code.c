#include "sampler/agent_code.h"

#include "cpython/str.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXT_BYTES = 12 * WIRE_CODE_MAX_FILENAME_BYTES, /* a lone surrogate takes six bytes for two */
    MAX_TABLE_BYTES = 16 << 20,
    MAX_BYTECODE_BYTES = 256 << 20,
    MAX_CODES_BYTES = 1 << 29,
};

/* One of the pieces behind the struct. */
struct piece {
    const uint8_t *bytes;
    size_t size_bytes;
};

static size_t padded(size_t size_bytes) {
    return (size_bytes + 7) & ~(size_t)7;
}

/* Cuts the next piece off what is left of the record. */
static bool take_piece(const uint8_t **at, size_t *left, size_t size_bytes, struct piece *piece) {
    if (size_bytes > *left)
        return false;
    *piece = (struct piece){*at, size_bytes};
    size_t step = padded(size_bytes) < *left ? padded(size_bytes) : *left;
    *at += step;
    *left -= step;
    return true;
}

static enum status append_text(struct buffer *texts, const struct piece *piece, uint8_t kind, size_t *offset) {
    *offset = texts->size_bytes;
    if (kind != 0) {
        if ((kind != 1 && kind != 2 && kind != 4) || piece->size_bytes % kind != 0)
            return STATUS_DAMAGED;
        enum status status = string_append_characters(texts, piece->bytes, kind, piece->size_bytes / kind);
        if (status != STATUS_OK)
            return status == STATUS_TORN ? STATUS_DAMAGED : status;
    }
    return buffer_append_char(texts, '\0');
}

/* The line table: from the record, or from the process while it lives. None is a code object whose lines are not known.
 */
static enum status append_table(struct buffer *texts, const struct wire_code *record, const struct piece *piece,
                                struct memory *memory, size_t *size_bytes) {
    *size_bytes = record->table_bytes;
    if (record->table_bytes > 0 || record->table_length == 0 || record->table_length > MAX_TABLE_BYTES ||
        memory == NULL)
        return buffer_append(texts, piece->bytes, piece->size_bytes);
    void *where = NULL;
    size_t before = texts->size_bytes;
    TRY(buffer_extend(texts, record->table_length, &where));
    if (memory_read(memory, record->table_address, where, record->table_length) == STATUS_OK)
        *size_bytes = record->table_length;
    else
        buffer_truncate(texts, before);
    return STATUS_OK;
}

static enum status build(struct agent_codes *codes, const struct wire_code *record, const struct piece pieces[4],
                         struct memory *memory, struct buffer *texts, struct agent_code **result) {
    size_t name = 0, qualname = 0, filename = 0, table_bytes = 0;
    TRY(append_text(texts, &pieces[0], record->name_kind, &name));
    TRY(append_text(texts, &pieces[1], record->qualname_kind, &qualname));
    TRY(append_text(texts, &pieces[2], record->filename_kind, &filename));
    size_t table = texts->size_bytes;
    TRY(append_table(texts, record, &pieces[3], memory, &table_bytes));
    struct agent_code *made = malloc(sizeof *made + texts->size_bytes);
    if (made == NULL)
        return STATUS_FAILED;
    char *behind = (char *)(made + 1);
    memcpy(behind, texts->data, texts->size_bytes);
    *made = (struct agent_code){.size_bytes = sizeof *made + texts->size_bytes, .references = 1};
    made->code = (struct code){
        .address = record->address,
        .serial = ++*codes->last_serial,
        .name = behind + name,
        .qualname = record->qualname_kind != 0 ? behind + qualname : NULL,
        .filename = behind + filename,
        .lines = {codes->format, (const uint8_t *)behind + table, table_bytes, record->first_line},
        .bytecode_bytes = record->bytecode_bytes,
        .first_traceable_bytes = record->first_traceable_bytes,
        .flags = record->flags,
    };
    codes->size_bytes += made->size_bytes;
    *result = made;
    return STATUS_OK;
}

static enum status decode(struct agent_codes *codes, const struct wire_code *record, size_t size_bytes,
                          struct memory *memory, struct agent_code **code) {
    const uint8_t *at = (const uint8_t *)(record + 1);
    size_t left = size_bytes - sizeof *record;
    struct piece pieces[4];
    if (!take_piece(&at, &left, record->name_bytes, &pieces[0]) ||
        !take_piece(&at, &left, record->qualname_bytes, &pieces[1]) ||
        !take_piece(&at, &left, record->filename_bytes, &pieces[2]) ||
        !take_piece(&at, &left, record->table_bytes, &pieces[3]) || record->bytecode_bytes > MAX_BYTECODE_BYTES)
        return STATUS_DAMAGED;
    struct buffer texts;
    buffer_init(&texts, (size_t)3 * MAX_TEXT_BYTES + MAX_TABLE_BYTES);
    enum status status = build(codes, record, pieces, memory, &texts, code);
    buffer_release(&texts);
    return status;
}

enum status agent_codes_take(struct agent_codes *codes, const struct wire_code *record, size_t size_bytes,
                             struct memory *memory, struct agent_code **result) {
    if (size_bytes < sizeof *record)
        return STATUS_DAMAGED;
    struct digest digest =
        digest_of((const uint8_t *)record + sizeof record->record, size_bytes - sizeof record->record);
    uint64_t known = 0;
    struct agent_code *latest = NULL;
    if (map_get(&codes->latest, record->address, &known))
        latest = (struct agent_code *)(uintptr_t)known;
    if (latest != NULL && latest->digest.low == digest.low && latest->digest.high == digest.high) {
        agent_code_hold(latest);
        *result = latest;
        return STATUS_OK;
    }
    if (codes->size_bytes > MAX_CODES_BYTES)
        return STATUS_LIMIT;
    TRY(decode(codes, record, size_bytes, memory, result));
    (*result)->digest = digest;
    enum status status = map_set(&codes->latest, record->address, (uint64_t)(uintptr_t)*result);
    if (status != STATUS_OK) {
        agent_code_drop(codes, *result);
        return status;
    }
    agent_code_hold(*result);
    agent_code_drop(codes, latest);
    return STATUS_OK;
}

void agent_code_hold(struct agent_code *code) {
    code->references++;
}

void agent_code_drop(struct agent_codes *codes, struct agent_code *code) {
    if (code == NULL || --code->references > 0)
        return;
    codes->size_bytes -= code->size_bytes;
    free(code);
}

void agent_codes_release(struct agent_codes *codes) {
    for (size_t i = 0; i < codes->latest.capacity; i++)
        if (codes->latest.entries[i].used)
            agent_code_drop(codes, (struct agent_code *)(uintptr_t)codes->latest.entries[i].value);
    map_release(&codes->latest);
}
