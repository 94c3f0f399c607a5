/* The memory of a Python process, falsified: whatever stands there, a look must end, within its budget, and every text
 * it gives must be UTF-8. For inputs see falsified_image.h. */
#include "base/text.h"
#include "falsified_image.h"
#include "traverse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum {
    /* An unharmed image takes some 20,000 reads of together a megabyte. */
    READS_MAX = 100000,
    READ_BYTES_MAX = 32 << 20,
    TEXT_LIMIT_BYTES = 64 << 20,
};

static void require_utf8(const struct buffer *text) {
    uint32_t character;
    for (size_t at = 0; at < text->size_bytes;) {
        size_t length = text_decode_utf8(text->data + at, text->size_bytes - at, &character);
        require(length > 0);
        at += length;
    }
}

static void look(struct subject *subject) {
    struct budget budget = {.reads_left = READS_MAX, .bytes_left = READ_BYTES_MAX};
    struct traverse_start start = traverse_noted_start(subject->notes);
    struct buffer text;
    buffer_init(&text, TEXT_LIMIT_BYTES);
    require(traverse(&subject->memory, &start, subject->locals_chars, &budget, &text) != STATUS_FAILED);
    require(subject->reads <= READS_MAX && subject->bytes <= READ_BYTES_MAX);
    require_utf8(&text);
    buffer_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    falsify_image(data, size_bytes, look);
    return 0;
}
