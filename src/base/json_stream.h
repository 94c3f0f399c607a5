/* Writes JSON as it comes, for documents too large to be built first. Commas and escapes are its affair; that what is
 * opened is closed, and that keys stand only in objects, is the caller's. */
#ifndef STROBE_BASE_JSON_STREAM_H
#define STROBE_BASE_JSON_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Fields are private. A failed write shows in ferror(stream). */
struct json_stream {
    FILE *stream;
    bool follows; /* another value of the same object or array came before */
};

void json_stream_init(struct json_stream *json, FILE *stream);
void json_stream_open(struct json_stream *json, char bracket);
/* Opens an object or array that is the value of this key. */
void json_stream_open_key(struct json_stream *json, const char *key, char bracket);
void json_stream_close(struct json_stream *json, char bracket);
void json_stream_key(struct json_stream *json, const char *key);
/* NUL-terminated UTF-8. Never writes '<', so that the text can stand in a page's <script>. */
void json_stream_text(struct json_stream *json, const char *text);
void json_stream_integer(struct json_stream *json, int64_t value);
void json_stream_unsigned(struct json_stream *json, uint64_t value);
/* value / 10^decimals, exactly and in no locale's way: seconds from nanoseconds with 9 decimals. */
void json_stream_decimal(struct json_stream *json, uint64_t value, unsigned decimals);
void json_stream_boolean(struct json_stream *json, bool value);
void json_stream_null(struct json_stream *json);

void json_stream_key_text(struct json_stream *json, const char *key, const char *text);
void json_stream_key_integer(struct json_stream *json, const char *key, int64_t value);

#endif
