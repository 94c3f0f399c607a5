#include "base/buffer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 64 };

void buffer_init(struct buffer *buffer, size_t limit_bytes) {
    *buffer = (struct buffer){.limit_bytes = limit_bytes};
}

void buffer_release(struct buffer *buffer) {
    free(buffer->data);
    buffer_init(buffer, buffer->limit_bytes);
}

void buffer_clear(struct buffer *buffer) {
    buffer_truncate(buffer, 0);
}

void buffer_truncate(struct buffer *buffer, size_t size_bytes) {
    buffer->size_bytes = size_bytes;
    if (buffer->data != NULL)
        buffer->data[size_bytes] = '\0';
}

/* One byte more is for the NUL. */
static bool has_room(const struct buffer *buffer, size_t more_bytes) {
    return more_bytes < buffer->capacity_bytes - buffer->size_bytes &&
           more_bytes <= buffer->limit_bytes - buffer->size_bytes;
}

static enum status reserve(struct buffer *buffer, size_t more_bytes) {
    if (more_bytes > buffer->limit_bytes || buffer->size_bytes > buffer->limit_bytes - more_bytes)
        return STATUS_LIMIT;
    size_t needed = buffer->size_bytes + more_bytes + 1;
    if (needed <= buffer->capacity_bytes)
        return STATUS_OK;
    size_t capacity = buffer->capacity_bytes > 0 ? buffer->capacity_bytes : FIRST_CAPACITY;
    while (capacity < needed)
        capacity *= 2;
    char *grown = realloc(buffer->data, capacity);
    if (grown == NULL)
        return STATUS_FAILED;
    buffer->data = grown;
    buffer->capacity_bytes = capacity;
    return STATUS_OK;
}

enum status buffer_extend(struct buffer *buffer, size_t size_bytes, void **where) {
    if (!has_room(buffer, size_bytes))
        TRY(reserve(buffer, size_bytes));
    *where = buffer->data + buffer->size_bytes;
    buffer_truncate(buffer, buffer->size_bytes + size_bytes);
    return STATUS_OK;
}

enum status buffer_append(struct buffer *buffer, const void *data, size_t size_bytes) {
    if (!has_room(buffer, size_bytes))
        TRY(reserve(buffer, size_bytes));
    if (size_bytes > 0)
        memcpy(buffer->data + buffer->size_bytes, data, size_bytes);
    buffer->size_bytes += size_bytes;
    buffer->data[buffer->size_bytes] = '\0';
    return STATUS_OK;
}

enum status buffer_append_text(struct buffer *buffer, const char *text) {
    return buffer_append(buffer, text, strlen(text));
}

enum status buffer_append_char(struct buffer *buffer, char character) {
    return buffer_append(buffer, &character, 1);
}

enum status buffer_append_format(struct buffer *buffer, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int needed = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (needed < 0)
        return STATUS_FAILED;
    void *where = NULL;
    TRY(buffer_extend(buffer, (size_t)needed, &where));
    va_start(arguments, format);
    (void)vsnprintf(where, (size_t)needed + 1, format, arguments);
    va_end(arguments);
    return STATUS_OK;
}

const char *buffer_text(const struct buffer *buffer) {
    return buffer->data != NULL ? buffer->data : "";
}
