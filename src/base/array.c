#include "base/array.h"

#include <stdint.h>
#include <stdlib.h>

enum { FIRST_CAPACITY = 16 };

enum status array_reserve(void **items, size_t *capacity, size_t count, size_t item_bytes) {
    if (count <= *capacity)
        return STATUS_OK;
    size_t wanted = *capacity > 0 && *capacity <= SIZE_MAX / 2 ? *capacity * 2 : FIRST_CAPACITY;
    if (wanted < count)
        wanted = count;
    void *grown = reallocarray(*items, wanted, item_bytes);
    if (grown == NULL)
        return STATUS_FAILED;
    *items = grown;
    *capacity = wanted;
    return STATUS_OK;
}
