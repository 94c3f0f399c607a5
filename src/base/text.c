#include "base/text.h"

/* The smallest character that needs a sequence of this many bytes: anything smaller is an overlong form. */
static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};

static size_t sequence_length(uint8_t first) {
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first < 0xe0)
        return 2;
    if (first >= 0xe0 && first < 0xf0)
        return 3;
    return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

size_t text_decode_utf8(const char *text, size_t size_bytes, uint32_t *character) {
    if (size_bytes == 0)
        return 0;
    uint8_t first = (uint8_t)text[0];
    size_t length = sequence_length(first);
    if (length == 0 || length > size_bytes)
        return 0;
    uint32_t value = length == 1 ? first : first & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        uint8_t next = (uint8_t)text[i];
        if ((next & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (next & 0x3f);
    }
    if (value < smallest[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return 0;
    *character = value;
    return length;
}

static bool is_control(uint32_t character) {
    return character < 0x20 || (character >= 0x7f && character < 0xa0);
}

/* How many bytes at the start of the text are ASCII that is shown as it is: nearly all of it, as a rule. */
static size_t plain_length(const char *bytes, size_t size_bytes) {
    size_t length = 0;
    while (length < size_bytes && bytes[length] >= 0x20 && bytes[length] < 0x7f)
        length++;
    return length;
}

enum status text_append_safe(struct buffer *buffer, const char *bytes, size_t size_bytes, bool escape_controls) {
    size_t i = 0;
    while (i < size_bytes) {
        size_t plain = plain_length(bytes + i, size_bytes - i);
        if (plain > 0) {
            TRY(buffer_append(buffer, bytes + i, plain));
            i += plain;
            continue;
        }
        uint32_t character = 0;
        size_t length = text_decode_utf8(bytes + i, size_bytes - i, &character);
        if (length > 0 && !(escape_controls && is_control(character))) {
            TRY(buffer_append(buffer, bytes + i, length));
        } else {
            /* A control character above 0x7f is two bytes long; both are shown. */
            length = length > 0 ? length : 1;
            for (size_t k = 0; k < length; k++)
                TRY(buffer_append_format(buffer, "\\x%02x", (uint8_t)bytes[i + k]));
        }
        i += length;
    }
    return STATUS_OK;
}
