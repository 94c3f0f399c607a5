/* Python strings. */
#ifndef STROBE_CPYTHON_STR_H
#define STROBE_CPYTHON_STR_H

#include "base/buffer.h"
#include "cpython/runtime.h"

/* Where a str object keeps its characters. */
struct string {
    remote_addr data;
    uint64_t length; /* in characters */
    uint32_t kind;   /* bytes per character: 1, 2 or 4 */
};

/* Reads the header of the str object at `address`, of whatever form (compact or not, ASCII or not). The object's type
 * is not checked; STATUS_TORN when its state makes no sense. */
enum status string_open(struct runtime *runtime, remote_addr address, struct string *string) MUST_USE;

/* The characters first to first + count - 1, which must all exist. Values above 0x10ffff are passed on as they are. */
enum status string_characters(struct runtime *runtime, const struct string *string, uint64_t first, size_t count,
                              uint32_t *characters) MUST_USE;

/* Appends the str object at `address` to `text` as UTF-8: every kind (compact ASCII, 1, 2, 4 bytes; not compact in
 * <= 3.11 and in subclasses), lone surrogates as \udcXX escapes (backslash, u, four hex digits). Reads at most
 * max_characters; *cut, when not NULL, says whether there were more. The object's type is not checked; STATUS_TORN when
 * its state makes no sense. On failure `text` is as it was. */
enum status string_read(struct runtime *runtime, remote_addr address, size_t max_characters, struct buffer *text,
                        bool *cut) MUST_USE;

/* Appends characters as CPython keeps them, `kind` (1, 2 or 4) bytes each, as UTF-8 with lone surrogates escaped.
 * STATUS_TORN when there is one above 0x10ffff; what came before it is appended then. */
enum status string_append_characters(struct buffer *text, const uint8_t *bytes, uint32_t kind, size_t count) MUST_USE;

/* Whether the str object at `address` is this ASCII text. */
enum status string_equals(struct runtime *runtime, remote_addr address, const char *text, bool *equal) MUST_USE;

/* Encodes one character, which must not be above 0x10ffff, as UTF-8; returns how many of the bytes it took. */
size_t string_encode_utf8(uint32_t character, char bytes[4]);

/* Replaces every byte that is not part of a well-formed UTF-8 character by '?': for C strings of the target. */
void string_repair_utf8(char *text);

#endif
