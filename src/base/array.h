/* Arrays that grow: their owner has the items, how many there are, and for how many there is room. */
#ifndef STROBE_BASE_ARRAY_H
#define STROBE_BASE_ARRAY_H

#include "base/status.h"

#include <stddef.h>

/* Room for `count` items, of which the new ones are uninitialised; the array at least doubles when it grows. Without
 * memory STATUS_FAILED, and the array is as it was. To be freed with free(). */
enum status array_reserve(void **items, size_t *capacity, size_t count, size_t item_bytes) MUST_USE;

#endif
