#include "agent/heap_early.h"

#include "agent/sampled.h"

#include <stdatomic.h>

/* In the table of sampled blocks, too, by whose filter it is known when they are given back. */
static _Atomic uint64_t addresses[HEAP_EARLY_BLOCKS];

void heap_early_add(void *address, size_t size_bytes) {
    const struct sampled block = {.address = (uint64_t)(uintptr_t)address, .size_bytes = size_bytes};
    for (size_t i = 0; i < HEAP_EARLY_BLOCKS && size_bytes >= HEAP_EARLY_LEAST_BYTES; i++) {
        uint64_t none = 0;
        if (!atomic_compare_exchange_strong(&addresses[i], &none, block.address))
            continue;
        if (!sampled_add(&block))
            atomic_store(&addresses[i], 0);
        return;
    }
}

void heap_early_remove(void *address) {
    uint64_t number = (uint64_t)(uintptr_t)address;
    struct sampled block;
    if (!sampled_remove(number, &block))
        return;
    for (size_t i = 0; i < HEAP_EARLY_BLOCKS; i++) {
        uint64_t expected = number;
        if (atomic_compare_exchange_strong(&addresses[i], &expected, 0))
            return;
    }
}

size_t heap_early_take(void **address) {
    struct sampled block;
    for (size_t i = 0; i < HEAP_EARLY_BLOCKS; i++) {
        uint64_t number = atomic_exchange(&addresses[i], 0);
        if (number == 0 || !sampled_remove(number, &block))
            continue;
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        *address = (void *)(uintptr_t)number;
        return block.size_bytes;
    }
    return 0;
}
