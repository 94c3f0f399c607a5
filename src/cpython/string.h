/* Python strings. */
#ifndef STROBE_CPYTHON_STRING_H
#define STROBE_CPYTHON_STRING_H

#include "base/buffer.h"
#include "cpython/runtime.h"

/* Appends the str object at `address` to `text` as UTF-8: every kind (compact ASCII, 1, 2, 4 bytes; not compact in
 * <= 3.11), lone surrogates as \udcXX escapes (backslash, u, four hex digits). Reads at most max_characters; *cut, when
 * not NULL, says whether there were more. The object's type is not checked; STATUS_TORN when its state makes no sense.
 */
enum status string_read(struct runtime *runtime, remote_addr address, size_t max_characters, struct buffer *text,
                        bool *cut) MUST_USE;

#endif
