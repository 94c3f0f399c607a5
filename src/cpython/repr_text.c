#include "cpython/repr_parts.h"

#include "base/bytes.h"
#include "cpython/copy.h"
#include "cpython/printable.h"
#include "cpython/str.h"

enum { CHUNK = 256, QUOTES_SOUGHT = 4096 };

/* Python quotes with ' unless the text has that and not the other (unicode_repr in Objects/unicodeobject.c, bytes_repr
 * in Objects/bytesobject.c). */
struct quoting {
    bool has_single;
    bool has_double;
};

static void note_quotes(struct quoting *quoting, uint32_t character) {
    quoting->has_single = quoting->has_single || character == '\'';
    quoting->has_double = quoting->has_double || character == '"';
}

/* How much of a text is looked at for quotes: all that will be shown, and of the rest what costs little. */
static uint64_t quotes_span(const struct repr *repr, uint64_t length) {
    uint64_t span = repr->room > QUOTES_SOUGHT ? repr->room : QUOTES_SOUGHT;
    return length < span ? length : span;
}

static char choose_quote(const struct quoting *quoting) {
    return quoting->has_single && !quoting->has_double ? '"' : '\'';
}

static enum status put_escaped(struct repr *repr, uint32_t character, char quote) {
    if (character == (uint32_t)(unsigned char)quote || character == '\\')
        return repr_put_format(repr, "\\%c", (int)character);
    if (character == '\t')
        return repr_put(repr, "\\t");
    if (character == '\n')
        return repr_put(repr, "\\n");
    if (character == '\r')
        return repr_put(repr, "\\r");
    if (character_is_printable(character)) {
        char bytes[4];
        return repr_put_bytes(repr, bytes, string_encode_utf8(character, bytes));
    }
    if (character <= 0xff)
        return repr_put_format(repr, "\\x%02x", (unsigned)character);
    return repr_put_format(repr, character <= 0xffff ? "\\u%04x" : "\\U%08x", (unsigned)character);
}

static enum status show_string(struct repr *repr, const struct string *string) {
    uint32_t characters[CHUNK];
    struct quoting quoting = {0};
    /* What does not fit need not be read. */
    uint64_t count = string->length < repr->room ? string->length : repr->room;
    uint64_t span = quotes_span(repr, string->length);
    for (uint64_t done = 0; done < span; done += CHUNK) {
        size_t step = span - done < CHUNK ? (size_t)(span - done) : CHUNK;
        TRY(string_characters(repr->runtime, string, done, step, characters));
        for (size_t i = 0; i < step; i++)
            note_quotes(&quoting, characters[i]);
    }
    char quote = choose_quote(&quoting);
    TRY(repr_put_bytes(repr, &quote, 1));
    for (uint64_t done = 0; done < count; done += CHUNK) {
        size_t step = count - done < CHUNK ? (size_t)(count - done) : CHUNK;
        TRY(string_characters(repr->runtime, string, done, step, characters));
        for (size_t i = 0; i < step; i++)
            TRY(put_escaped(repr, characters[i], quote));
    }
    return repr_put_bytes(repr, &quote, 1);
}

enum status repr_show_str(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    struct string string;
    TRY(string_open(repr->runtime, object, &string));
    return show_string(repr, &string);
}

static enum status put_byte(struct repr *repr, uint8_t byte, char quote, bool escapes_single) {
    if (byte == '\'' && escapes_single)
        return repr_put(repr, "\\'");
    return byte < 0x80 ? put_escaped(repr, byte, quote) : repr_put_format(repr, "\\x%02x", (unsigned)byte);
}

static enum status put_literal(struct repr *repr, remote_addr data, uint64_t size_bytes, bool escapes_single) {
    uint8_t bytes[CHUNK];
    struct quoting quoting = {0};
    uint64_t count = size_bytes < repr->room ? size_bytes : repr->room;
    uint64_t span = quotes_span(repr, size_bytes);
    for (uint64_t done = 0; done < span; done += CHUNK) {
        size_t step = span - done < CHUNK ? (size_t)(span - done) : CHUNK;
        TRY(memory_read(repr->runtime->objects, data + done, bytes, step));
        for (size_t i = 0; i < step; i++)
            note_quotes(&quoting, bytes[i]);
    }
    char quote = choose_quote(&quoting);
    TRY(repr_put_format(repr, "b%c", quote));
    for (uint64_t done = 0; done < count; done += CHUNK) {
        size_t step = count - done < CHUNK ? (size_t)(count - done) : CHUNK;
        TRY(memory_read(repr->runtime->objects, data + done, bytes, step));
        for (size_t i = 0; i < step; i++)
            TRY(put_byte(repr, bytes[i], quote, escapes_single));
    }
    return repr_put_bytes(repr, &quote, 1);
}

enum status repr_show_bytes(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    const struct layout *layout = &repr->runtime->layout;
    uint64_t size_bytes = 0;
    TRY(memory_read_u64(repr->runtime->objects, object + layout->object.ob_size, &size_bytes));
    return put_literal(repr, object + layout->bytes.ob_sval, size_bytes, false);
}

/* Before 3.15 it escapes ' between " too (bytearray_repr, Objects/bytearrayobject.c). */
enum status repr_show_bytearray(struct repr *repr, remote_addr object, const struct type_info *type) {
    const struct layout *layout = &repr->runtime->layout;
    struct copy head;
    TRY(copy_read(repr->runtime->objects, object, layout->bytearray.ob_start, &head));
    TRY(repr_put_format(repr, "%s(", type_name(type)));
    TRY(put_literal(repr, copy_u64(&head, layout->bytearray.ob_start), copy_u64(&head, layout->object.ob_size),
                    layout_minor(layout) < 15));
    return repr_put(repr, ")");
}
