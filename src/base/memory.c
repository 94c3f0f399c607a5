#include "base/memory.h"

#include <string.h>

enum { CSTRING_STEP = 64 };

enum status memory_read(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    /* A range that wraps around the address space is never mapped; readers need not check for it. */
    if (address + size_bytes < address)
        return STATUS_UNREADABLE;
    return memory->read(memory, address, buffer, size_bytes);
}

enum status memory_read_first_pieces(struct memory *memory, const struct memory_piece *pieces, size_t count,
                                     size_t *done) {
    *done = 0;
    for (size_t i = 0; i < count; i++)
        if (pieces[i].address + pieces[i].size_bytes < pieces[i].address)
            return STATUS_UNREADABLE;
    if (memory->read_pieces != NULL)
        return memory->read_pieces(memory, pieces, count, done);
    for (; *done < count; ++*done)
        TRY(memory->read(memory, pieces[*done].address, pieces[*done].buffer, pieces[*done].size_bytes));
    return STATUS_OK;
}

enum status memory_read_pieces(struct memory *memory, const struct memory_piece *pieces, size_t count) {
    size_t done = 0;
    return memory_read_first_pieces(memory, pieces, count, &done);
}

enum status memory_read_u8(struct memory *memory, remote_addr address, uint8_t *value) {
    return memory_read(memory, address, value, sizeof *value);
}

enum status memory_read_u32(struct memory *memory, remote_addr address, uint32_t *value) {
    return memory_read(memory, address, value, sizeof *value);
}

enum status memory_read_u64(struct memory *memory, remote_addr address, uint64_t *value) {
    return memory_read(memory, address, value, sizeof *value);
}

enum status memory_read_cstring(struct memory *memory, remote_addr address, char *buffer, size_t capacity) {
    size_t filled = 0;
    while (filled + 1 < capacity) {
        /* Steps end on aligned boundaries so that no step crosses from a mapped page into an unmapped one. */
        size_t step = CSTRING_STEP - (size_t)((address + filled) % CSTRING_STEP);
        if (step > capacity - 1 - filled)
            step = capacity - 1 - filled;
        TRY(memory_read(memory, address + filled, buffer + filled, step));
        if (memchr(buffer + filled, '\0', step) != NULL)
            return STATUS_OK;
        filled += step;
    }
    if (capacity > 0)
        buffer[filled] = '\0';
    return STATUS_LIMIT;
}
