/* Python tuples. */
#ifndef STROBE_CPYTHON_TUPLE_H
#define STROBE_CPYTHON_TUPLE_H

#include "cpython/runtime.h"

/* The items of the tuple at `address`: owned by the caller, to be freed with free(); NULL on failure. The object's type
 * is not checked; STATUS_TORN when it claims to have more than max_items. */
enum status tuple_read(struct runtime *runtime, remote_addr address, size_t max_items, uint64_t **items,
                       size_t *count) MUST_USE;

#endif
