#include "base/memory_meter.h"

enum status budget_take(struct budget *budget, uint64_t reads, uint64_t bytes) {
    if (budget == NULL)
        return STATUS_OK;
    budget->exhausted = budget->exhausted || reads > budget->reads_left || bytes > budget->bytes_left;
    if (budget->exhausted)
        return STATUS_LIMIT;
    budget->reads_left -= reads;
    budget->bytes_left -= bytes;
    return STATUS_OK;
}

static enum status read_metered(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    struct memory_meter *meter = (struct memory_meter *)memory;
    TRY(budget_take(meter->budget, 1, size_bytes));
    return memory_read(meter->below, address, buffer, size_bytes);
}

static enum status read_pieces_metered(struct memory *memory, const struct memory_piece *pieces, size_t count,
                                       size_t *done) {
    struct memory_meter *meter = (struct memory_meter *)memory;
    for (size_t i = 0; i < count; i++)
        TRY(budget_take(meter->budget, 1, pieces[i].size_bytes));
    return memory_read_first_pieces(meter->below, pieces, count, done);
}

void memory_meter_init(struct memory_meter *meter, struct memory *below, struct budget *budget) {
    *meter = (struct memory_meter){
        .memory = {.read = read_metered, .read_pieces = read_pieces_metered},
        .below = below,
        .budget = budget,
    };
}
