/* A value as text, made from memory alone: nothing in the target is called. */
#ifndef STROBE_CPYTHON_REPR_H
#define STROBE_CPYTHON_REPR_H

#include "base/buffer.h"
#include "cpython/runtime.h"

/* Appends the object at `address` much as repr() would show it, cut with an ellipsis (U+2026) at max_characters
 * Unicode characters in all. What cannot be read shows as <unreadable>; only a failure of strobe's own is an error.
 * A null address shows as <null>. */
enum status repr_append(struct runtime *runtime, remote_addr address, size_t max_characters,
                        struct buffer *text) MUST_USE;

/* Appends the type's name as type(x).__name__ would give it, cut with an ellipsis at 300 characters. */
enum status repr_append_type_name(struct runtime *runtime, remote_addr address, struct buffer *text) MUST_USE;

#endif
