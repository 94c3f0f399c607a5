#include "profile/natives.h"

#include "profile/builder.h"

#include <stdlib.h>
#include <string.h>

bool native_is_known(const struct profile_frame *frame) {
    /* <startup> and its like, which stand for no function, are files of their own names, so as to be charged to. */
    return frame->kind == CAPTURE_FRAME_NATIVE && *frame->file != '\0' && frame->file != frame->function;
}

enum status native_find(struct native_table *table, const struct profile_frame *frame, const char *file, int32_t line,
                        struct attribute_native **row) {
    /* The recorder's word for a function whose name is not known. */
    const char *function = strcmp(frame->function, "<native>") != 0 ? frame->function : "";
    const uint64_t fields[] = {(uintptr_t)file, (uint32_t)line, (uintptr_t)function, (uintptr_t)frame->file};
    struct digest key = digest_of(fields, sizeof fields);
    uint32_t known = digest_map_get(&table->index, key);
    if (known == 0) {
        TRY(builder_reserve((void **)&table->rows, table->count, &table->capacity, sizeof table->rows[0]));
        TRY(digest_map_set(&table->index, key, (uint32_t)table->count + 1));
        table->rows[table->count++] =
            (struct attribute_native){.file = file, .line = line, .function = function, .library = frame->file};
        known = (uint32_t)table->count;
    }
    *row = &table->rows[known - 1];
    return STATUS_OK;
}

static int compare_texts(const char *left, const char *right) {
    return left != right ? strcmp(left, right) : 0;
}

static int compare_functions(const void *left, const void *right) {
    const struct attribute_native *a = left;
    const struct attribute_native *b = right;
    int order = compare_texts(a->library, b->library);
    return order != 0 ? order : compare_texts(a->function, b->function);
}

static int compare_places(const struct attribute_native *a, const char *file, int32_t line) {
    int order = compare_texts(a->file, file);
    return order != 0 ? order : (a->line > line) - (a->line < line);
}

static int compare_lines(const void *left, const void *right) {
    const struct attribute_native *b = right;
    int order = compare_places(left, b->file, b->line);
    return order != 0 ? order : compare_functions(left, right);
}

/* The rows are sorted by function. */
static size_t sum_up(const struct native_table *table, struct attribute_native *functions) {
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct attribute_native *row = &table->rows[i];
        if (count == 0 || compare_functions(row, &functions[count - 1]) != 0)
            functions[count++] =
                (struct attribute_native){.file = "", .line = -1, .function = row->function, .library = row->library};
        functions[count - 1].taken |= row->taken;
        for (int m = 0; m < MEASURE_COUNT; m++)
            functions[count - 1].self[m] = saturating_add(functions[count - 1].self[m], row->self[m]);
    }
    return count;
}

/* A sample may stand for time in Python and in the kernel, too, before the call and in it: that is not the native
 * function's. */
static void keep_native_part(struct native_table *table) {
    for (size_t i = 0; i < table->count; i++) {
        uint64_t *self = table->rows[i].self;
        self[MEASURE_CPU_NS] = self[MEASURE_CPU_NATIVE_NS];
        self[MEASURE_CPU_PYTHON_NS] = self[MEASURE_CPU_KERNEL_NS] = 0;
    }
}

enum status native_finish(struct native_table *table, bool has_parts, struct attribution *attribution) {
    if (table->count == 0)
        return STATUS_OK;
    if (has_parts)
        keep_native_part(table);
    struct attribute_native *functions = calloc(table->count, sizeof functions[0]);
    if (functions == NULL)
        return STATUS_FAILED;
    qsort(table->rows, table->count, sizeof table->rows[0], compare_functions);
    attribution->native_functions = functions;
    attribution->native_function_count = sum_up(table, functions);
    qsort(table->rows, table->count, sizeof table->rows[0], compare_lines);
    attribution->natives = table->rows;
    attribution->native_count = table->count;
    table->rows = NULL;
    return STATUS_OK;
}

void native_release(struct native_table *table) {
    free(table->rows);
    digest_map_release(&table->index);
}

const struct attribute_native *attribution_natives_of(const struct attribution *attribution, const char *file,
                                                      int32_t line, size_t *count) {
    size_t low = 0, high = attribution->native_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_places(&attribution->natives[middle], file, line) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    size_t end = low;
    while (end < attribution->native_count && compare_places(&attribution->natives[end], file, line) == 0)
        end++;
    *count = end - low;
    return attribution->natives + low;
}
