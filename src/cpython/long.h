/* Small Python ints. (repr_append shows those of any size.) */
#ifndef STROBE_CPYTHON_LONG_H
#define STROBE_CPYTHON_LONG_H

#include "cpython/runtime.h"

/* The value of a non-negative int object below 2^64; STATUS_LIMIT for any other. The type is not checked. */
enum status long_read_u64(struct runtime *runtime, remote_addr address, uint64_t *value) MUST_USE;

#endif
