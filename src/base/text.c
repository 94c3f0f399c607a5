#include "base/text.h"

#include <string.h>

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

static bool is_plain(char byte) {
    return byte >= 0x20 && byte < 0x7f;
}

/* Whether one of eight bytes is not plain: has its top bit, is below 0x20, or is 0x7f. The last two are taken from each
 * byte with its top bit set, so that no borrow passes from one to the next. */
static bool has_special(uint64_t bytes) {
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    uint64_t low = (bytes | tops) - 0x20 * ones;
    uint64_t delete = ((bytes ^ 0x7f * ones) | tops) - ones;
    return ((bytes | ~low | ~delete) & tops) != 0;
}

size_t text_plain_length(const char *text, size_t size_bytes) {
    size_t length = 0;
    uint64_t bytes = 0;
    for (; size_bytes - length >= sizeof bytes; length += sizeof bytes) {
        memcpy(&bytes, text + length, sizeof bytes);
        if (has_special(bytes))
            break;
    }
    while (length < size_bytes && is_plain(text[length]))
        length++;
    return length;
}

/* What ends a line or turns the direction of writing (Unicode's Bidi_Control): a name could show as another, or as if
 * it stood elsewhere. */
static bool is_rearranging(uint32_t character) {
    return character == 0x61c || character == 0x200e || character == 0x200f ||
           (character >= 0x2028 && character <= 0x202e) || (character >= 0x2066 && character <= 0x2069);
}

enum status text_append_safe(struct buffer *buffer, const char *bytes, size_t size_bytes, bool escape_controls) {
    size_t i = 0;
    while (i < size_bytes) {
        size_t plain = text_plain_length(bytes + i, size_bytes - i);
        if (plain > 0) {
            TRY(buffer_append(buffer, bytes + i, plain));
            i += plain;
            continue;
        }
        uint32_t character = 0;
        size_t length = text_decode_utf8(bytes + i, size_bytes - i, &character);
        if (length > 0 && !(escape_controls && (is_control(character) || is_rearranging(character)))) {
            TRY(buffer_append(buffer, bytes + i, length));
        } else {
            /* Above 0x7f these are several bytes long; each is shown. */
            length = length > 0 ? length : 1;
            for (size_t k = 0; k < length; k++)
                TRY(buffer_append_format(buffer, "\\x%02x", (uint8_t)bytes[i + k]));
        }
        i += length;
    }
    return STATUS_OK;
}
