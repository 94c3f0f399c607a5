#include "capture/reader_state.h"

#include "base/array.h"

#include <stdlib.h>

void id_table_clear(struct id_table *table) {
    table->run_count = 0;
    table->next = table->next_dense = 1;
}

void id_table_release(struct id_table *table) {
    free(table->runs);
    *table = (struct id_table){0};
}

enum status id_table_expect(struct id_table *table, uint64_t next) {
    if (next < table->next || next >= UINT32_MAX)
        return STATUS_DAMAGED;
    table->next = (uint32_t)next;
    return STATUS_OK;
}

static enum status start_run(struct id_table *table) {
    TRY(array_reserve((void **)&table->runs, &table->run_capacity, table->run_count + 1, sizeof table->runs[0]));
    table->runs[table->run_count++] = (struct id_run){.first = table->next, .first_dense = table->next_dense};
    return STATUS_OK;
}

static bool goes_on(const struct id_table *table) {
    const struct id_run *last = &table->runs[table->run_count - 1];
    return last->first + last->count == table->next;
}

enum status id_table_add(struct id_table *table, uint32_t *dense) {
    if (table->next == UINT32_MAX)
        return STATUS_DAMAGED;
    if (table->run_count == 0 || !goes_on(table))
        TRY(start_run(table));
    table->runs[table->run_count - 1].count++;
    table->next++;
    *dense = table->next_dense++;
    return STATUS_OK;
}

void id_table_skip(struct id_table *table) {
    if (table->next < UINT32_MAX)
        table->next++;
}

bool id_table_find(const struct id_table *table, uint64_t id, uint32_t *dense) {
    size_t low = 0;
    size_t high = table->run_count;
    *dense = 0;
    if (id == 0)
        return true;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->runs[middle].first <= id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || id - table->runs[low - 1].first >= table->runs[low - 1].count)
        return false;
    *dense = table->runs[low - 1].first_dense + (uint32_t)(id - table->runs[low - 1].first);
    return true;
}
