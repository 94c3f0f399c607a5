/* Text that came from a target, made safe to print. */
#ifndef STROBE_BASE_TEXT_H
#define STROBE_BASE_TEXT_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes one character of well-formed UTF-8 (no overlong forms, no surrogates). Returns its length in bytes, or 0 when
 * the bytes at `text` are none or size_bytes is 0. */
size_t text_decode_utf8(const char *text, size_t size_bytes, uint32_t *character);

/* How many bytes at the start of the text are ASCII that is shown as it is, one column each. */
size_t text_plain_length(const char *text, size_t size_bytes);

/* Appends bytes as UTF-8: what is not well-formed becomes \xNN, and, when escape_controls, so do control characters and
 * those that rearrange text, so that no target can send escape sequences to a terminal or deceive who reads it. */
enum status text_append_safe(struct buffer *buffer, const char *bytes, size_t size_bytes,
                             bool escape_controls) MUST_USE;

#endif
