#include "cpython/str.h"

#include "base/bytes.h"
#include "base/text.h"
#include "cpython/copy.h"

#include <string.h>

enum {
    CHUNK_CHARACTERS = 256,
    MAX_CHARACTER_BYTES = 4,
    MAX_CHARACTER = 0x10ffff,
    MAX_COMPARED_BYTES = 256,
};

/* PyASCIIObject, PyCompactUnicodeObject, PyUnicodeObject (Include/cpython/unicodeobject.h, 3.8 to 3.15):
 *
 *   compact, ASCII    | PyASCIIObject | characters ...
 *   compact           | PyASCIIObject | utf8, utf8_length | characters ...
 *   not compact       | PyASCIIObject | utf8, utf8_length | pointer to the characters |
 *
 * Not compact are instances of subclasses in all versions, and in <= 3.11 strings from the old C interface. */
enum status string_open(struct runtime *runtime, remote_addr address, struct string *string) {
    const struct layout_unicode *unicode = &runtime->layout.unicode;
    struct copy head;
    layout_offset last = unicode->length > unicode->state ? unicode->length : unicode->state;
    TRY(copy_read(runtime->objects, address, last, &head));
    uint32_t state = copy_u32(&head, unicode->state);
    string->length = copy_u64(&head, unicode->length);
    string->kind = state >> unicode->kind_shift & 7;
    bool compact = state >> unicode->compact_shift & 1;
    bool ascii = state >> unicode->ascii_shift & 1;
    if (string->kind != 1 && string->kind != 2 && string->kind != 4)
        return STATUS_TORN;
    if ((ascii && string->kind != 1) || string->length > INT64_MAX / MAX_CHARACTER_BYTES)
        return STATUS_TORN;
    if (compact) {
        string->data = address + (ascii ? unicode->ascii_size : unicode->compact_size);
        return STATUS_OK;
    }
    layout_offset data = layout_has(unicode->data) ? unicode->data : unicode->compact_size;
    TRY(memory_read_u64(runtime->objects, address + data, &string->data));
    return string->data != 0 ? STATUS_OK : STATUS_TORN;
}

static void widen(const uint8_t *bytes, uint32_t kind, size_t count, uint32_t *characters) {
    for (size_t i = 0; i < count; i++) {
        if (kind == 1)
            characters[i] = bytes[i];
        else if (kind == 2)
            characters[i] = load_u16(bytes + 2 * i);
        else
            characters[i] = load_u32(bytes + 4 * i);
    }
}

enum status string_characters(struct runtime *runtime, const struct string *string, uint64_t first, size_t count,
                              uint32_t *characters) {
    uint8_t bytes[CHUNK_CHARACTERS * MAX_CHARACTER_BYTES];
    if (first > string->length || count > string->length - first)
        return STATUS_TORN;
    while (count > 0) {
        size_t step = count < CHUNK_CHARACTERS ? count : CHUNK_CHARACTERS;
        TRY(memory_read(runtime->objects, string->data + first * string->kind, bytes, step * string->kind));
        widen(bytes, string->kind, step, characters);
        first += step;
        count -= step;
        characters += step;
    }
    return STATUS_OK;
}

size_t string_encode_utf8(uint32_t character, char bytes[4]) {
    if (character < 0x80) {
        bytes[0] = (char)character;
        return 1;
    }
    size_t size_bytes = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (size_t i = size_bytes - 1; i > 0; i--) {
        bytes[i] = (char)(0x80 | (character & 0x3f));
        character >>= 6;
    }
    /* 110xxxxx, 1110xxxx, 11110xxx */
    bytes[0] = (char)(uint8_t)(0xf00 >> size_bytes | character);
    return size_bytes;
}

static enum status append_character(struct buffer *text, uint32_t character) {
    if (character > MAX_CHARACTER)
        return STATUS_TORN;
    if (character >= 0xd800 && character <= 0xdfff)
        return buffer_append_format(text, "\\u%04x", (unsigned)character);
    char bytes[MAX_CHARACTER_BYTES];
    return buffer_append(text, bytes, string_encode_utf8(character, bytes));
}

enum status string_append_characters(struct buffer *text, const uint8_t *bytes, uint32_t kind, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t character = 0;
        widen(bytes + i * kind, kind, 1, &character);
        TRY(append_character(text, character));
    }
    return STATUS_OK;
}

static enum status append_characters(struct runtime *runtime, const struct string *string, uint64_t count,
                                     struct buffer *text) {
    uint32_t characters[CHUNK_CHARACTERS];
    for (uint64_t done = 0; done < count;) {
        size_t step = count - done < CHUNK_CHARACTERS ? (size_t)(count - done) : CHUNK_CHARACTERS;
        TRY(string_characters(runtime, string, done, step, characters));
        for (size_t i = 0; i < step; i++)
            TRY(append_character(text, characters[i]));
        done += step;
    }
    return STATUS_OK;
}

enum status string_read(struct runtime *runtime, remote_addr address, size_t max_characters, struct buffer *text,
                        bool *cut) {
    struct string string;
    TRY(string_open(runtime, address, &string));
    bool longer = string.length > max_characters;
    size_t size_before = text->size_bytes;
    enum status status = append_characters(runtime, &string, longer ? max_characters : string.length, text);
    if (status != STATUS_OK) {
        buffer_truncate(text, size_before);
        return status;
    }
    if (cut != NULL)
        *cut = longer;
    return STATUS_OK;
}

enum status string_equals(struct runtime *runtime, remote_addr address, const char *text, bool *equal) {
    struct string string;
    char bytes[MAX_COMPARED_BYTES];
    size_t length = strlen(text);
    *equal = false;
    TRY(string_open(runtime, address, &string));
    /* ASCII text is always kept with one byte a character. */
    if (string.kind != 1 || string.length != length || length > sizeof bytes)
        return STATUS_OK;
    TRY(memory_read(runtime->objects, string.data, bytes, length));
    *equal = memcmp(bytes, text, length) == 0;
    return STATUS_OK;
}

void string_repair_utf8(char *text) {
    size_t left_bytes = strlen(text);
    while (left_bytes > 0) {
        uint32_t character = 0;
        size_t size_bytes = text_decode_utf8(text, left_bytes, &character);
        if (size_bytes == 0) {
            *text = '?';
            size_bytes = 1;
        }
        text += size_bytes;
        left_bytes -= size_bytes;
    }
}
