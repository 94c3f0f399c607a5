/* A growable run of bytes with a ceiling. */
#ifndef STROBE_BASE_BUFFER_H
#define STROBE_BASE_BUFFER_H

#include "base/status.h"

#include <stdarg.h>
#include <stddef.h>

/* `data` holds `size_bytes` bytes and always a NUL behind them once something was appended. `limit_bytes` is the most
 * it may hold; what does not fit fails with STATUS_LIMIT and leaves the content as it was. */
struct buffer {
    char *data;
    size_t size_bytes;
    size_t capacity_bytes;
    size_t limit_bytes;
};

/* An empty buffer; allocates nothing. */
void buffer_init(struct buffer *buffer, size_t limit_bytes);
void buffer_release(struct buffer *buffer);
/* Forgets the content, keeps the capacity. */
void buffer_clear(struct buffer *buffer);
/* Cuts the content to its first size_bytes (which must be at most the size). */
void buffer_truncate(struct buffer *buffer, size_t size_bytes);

enum status buffer_append(struct buffer *buffer, const void *data, size_t size_bytes) MUST_USE;
enum status buffer_append_text(struct buffer *buffer, const char *text) MUST_USE;
enum status buffer_append_char(struct buffer *buffer, char character) MUST_USE;
enum status buffer_append_format(struct buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3))) MUST_USE;
/* Room for size_bytes more, uninitialised; *where points to it and the size grows by it. */
enum status buffer_extend(struct buffer *buffer, size_t size_bytes, void **where) MUST_USE;
/* The content as a C string; "" when nothing was appended. Owned by the buffer, valid until the next change. */
const char *buffer_text(const struct buffer *buffer);

#endif
