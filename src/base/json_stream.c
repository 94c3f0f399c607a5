#include "base/json_stream.h"

#include <inttypes.h>

void json_stream_init(struct json_stream *json, FILE *stream) {
    json->stream = stream;
    json->follows = false;
}

static void begin_value(struct json_stream *json) {
    if (json->follows)
        putc(',', json->stream);
    json->follows = true;
}

void json_stream_open(struct json_stream *json, char bracket) {
    begin_value(json);
    putc(bracket, json->stream);
    json->follows = false;
}

void json_stream_close(struct json_stream *json, char bracket) {
    putc(bracket, json->stream);
    json->follows = true;
}

static void put_escaped(FILE *stream, unsigned char byte) {
    switch (byte) {
    case '"':
    case '\\':
        putc('\\', stream);
        putc(byte, stream);
        break;
    case '\n':
        fputs("\\n", stream);
        break;
    case '\t':
        fputs("\\t", stream);
        break;
    default:
        fprintf(stream, "\\u%04x", byte);
    }
}

static bool is_plain(unsigned char byte) {
    return byte >= 0x20 && byte != '"' && byte != '\\' && byte != '<' && byte != 0x7f;
}

static void put_text(FILE *stream, const char *text) {
    putc('"', stream);
    for (const char *at = text; *at != '\0';) {
        const char *end = at;
        while (*end != '\0' && is_plain((unsigned char)*end))
            end++;
        if (end > at)
            (void)fwrite(at, 1, (size_t)(end - at), stream);
        if (*end != '\0')
            put_escaped(stream, (unsigned char)*end++);
        at = end;
    }
    putc('"', stream);
}

void json_stream_key(struct json_stream *json, const char *key) {
    begin_value(json);
    put_text(json->stream, key);
    putc(':', json->stream);
    json->follows = false;
}

void json_stream_open_key(struct json_stream *json, const char *key, char bracket) {
    json_stream_key(json, key);
    json_stream_open(json, bracket);
}

void json_stream_text(struct json_stream *json, const char *text) {
    begin_value(json);
    put_text(json->stream, text);
}

void json_stream_integer(struct json_stream *json, int64_t value) {
    begin_value(json);
    fprintf(json->stream, "%" PRId64, value);
}

void json_stream_unsigned(struct json_stream *json, uint64_t value) {
    begin_value(json);
    fprintf(json->stream, "%" PRIu64, value);
}

void json_stream_decimal(struct json_stream *json, uint64_t value, unsigned decimals) {
    char digits[24];
    uint64_t scale = 1;
    for (unsigned i = 0; i < decimals; i++)
        scale *= 10;
    uint64_t fraction = value % scale;
    begin_value(json);
    fprintf(json->stream, "%" PRIu64, value / scale);
    if (fraction == 0)
        return;
    int length = snprintf(digits, sizeof digits, "%0*" PRIu64, (int)decimals, fraction);
    while (length > 0 && digits[length - 1] == '0')
        length--;
    fprintf(json->stream, ".%.*s", length, digits);
}

void json_stream_boolean(struct json_stream *json, bool value) {
    begin_value(json);
    fputs(value ? "true" : "false", json->stream);
}

void json_stream_null(struct json_stream *json) {
    begin_value(json);
    fputs("null", json->stream);
}

void json_stream_key_text(struct json_stream *json, const char *key, const char *text) {
    json_stream_key(json, key);
    json_stream_text(json, text);
}

void json_stream_key_integer(struct json_stream *json, const char *key, int64_t value) {
    json_stream_key(json, key);
    json_stream_integer(json, value);
}
