#include "profile/attribute_rows.h"

#include "profile/builder.h"

#include <stdlib.h>
#include <string.h>

/* Of several functions on one line (a lambda in its call) the line is the one's that begins first. */
static bool is_better_name(const struct profile_frame *frame, const struct attribute_row *row) {
    return frame->first_line < row->first_line ||
           (frame->first_line == row->first_line && strcmp(frame->qualname, row->qualname) < 0);
}

static enum status find_row(struct row_table *table, const struct profile_frame *frame, bool is_line, uint32_t *row) {
    const uint64_t fields[] = {(uintptr_t)frame->file, is_line ? 0 : (uintptr_t)frame->function,
                               (uint32_t)(is_line ? frame->line : frame->first_line)};
    struct digest key = digest_of(fields, sizeof fields);
    uint32_t known = digest_map_get(&table->index, key);
    if (known == 0) {
        TRY(builder_reserve((void **)&table->rows, table->count, &table->capacity, sizeof table->rows[0]));
        TRY(digest_map_set(&table->index, key, (uint32_t)table->count + 1));
        table->rows[table->count++] = (struct attribute_row){
            .file = frame->file,
            .line = is_line ? frame->line : -1,
            .is_library = frame->is_library,
            .is_native = frame->kind == CAPTURE_FRAME_NATIVE,
        };
        known = (uint32_t)table->count;
    }
    struct attribute_row *found = &table->rows[known - 1];
    if (found->function == NULL || is_better_name(frame, found)) {
        found->function = frame->function;
        found->qualname = frame->qualname;
        found->first_line = frame->first_line;
    }
    *row = known - 1;
    return STATUS_OK;
}

enum status rows_make(struct row_table *table, const struct profile *profile, const uint8_t *frame_classes,
                      bool are_lines) {
    table->of_frame = calloc(profile->frame_count, sizeof table->of_frame[0]);
    if (table->of_frame == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < profile->frame_count; i++)
        if (frame_classes[i] != FRAME_HIDDEN)
            TRY(find_row(table, &profile->frames[i], are_lines, &table->of_frame[i]));
    table->active_count = calloc(table->count + 1, sizeof table->active_count[0]);
    table->used = calloc(table->count + 1, sizeof table->used[0]);
    table->is_used = calloc(table->count + 1, sizeof table->is_used[0]);
    return table->active_count != NULL && table->used != NULL && table->is_used != NULL ? STATUS_OK : STATUS_FAILED;
}

struct attribute_row *rows_use(struct row_table *table, uint32_t frame) {
    uint32_t row = table->of_frame[frame];
    if (!table->is_used[row]) {
        table->is_used[row] = true;
        table->used[table->used_count++] = row;
    }
    return &table->rows[row];
}

static int compare_numbers(int32_t left, int32_t right) {
    return (left > right) - (left < right);
}

static int compare_rows(const void *left, const void *right) {
    const struct attribute_row *a = left;
    const struct attribute_row *b = right;
    int order = a->file != b->file ? strcmp(a->file, b->file) : 0;
    order = order != 0 ? order : compare_numbers(a->line, b->line);
    order = order != 0 ? order : compare_numbers(a->first_line, b->first_line);
    return order != 0 ? order : strcmp(a->function, b->function);
}

static bool is_row_empty(const struct attribute_row *row) {
    for (int m = 0; m < MEASURE_COUNT; m++)
        if (row->self[m] != 0 || row->total[m] != 0)
            return false;
    return true;
}

enum status rows_take(struct row_table *table, struct attribute_row **rows, size_t *count) {
    struct attribute_row *taken = calloc(table->used_count + 1, sizeof taken[0]);
    size_t kept = 0;
    if (taken == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < table->used_count; i++) {
        struct attribute_row *row = &table->rows[table->used[i]];
        if (!is_row_empty(row))
            taken[kept++] = *row;
        row->taken = 0;
        memset(row->self, 0, sizeof row->self);
        memset(row->total, 0, sizeof row->total);
        table->is_used[table->used[i]] = false;
    }
    table->used_count = 0;
    if (kept > 0)
        qsort(taken, kept, sizeof taken[0], compare_rows);
    *rows = taken;
    *count = kept;
    return STATUS_OK;
}

void rows_release(struct row_table *table) {
    free(table->rows);
    free(table->of_frame);
    free(table->active_count);
    free(table->used);
    free(table->is_used);
    digest_map_release(&table->index);
}
