#include "cpython/tuple.h"

#include <stdlib.h>

enum status tuple_read(struct runtime *runtime, remote_addr address, size_t max_items, uint64_t **items,
                       size_t *count) {
    const struct layout *layout = &runtime->layout;
    uint64_t size = 0;
    *items = NULL;
    *count = 0;
    TRY(memory_read_u64(runtime->objects, address + layout->object.ob_size, &size));
    if (size > max_items)
        return STATUS_TORN;
    uint64_t *copy = calloc((size_t)size + 1, sizeof copy[0]);
    if (copy == NULL)
        return STATUS_FAILED;
    enum status status =
        memory_read(runtime->objects, address + layout->tuple.ob_item, copy, (size_t)size * sizeof copy[0]);
    if (status != STATUS_OK) {
        free(copy);
        return status;
    }
    *items = copy;
    *count = (size_t)size;
    return STATUS_OK;
}
