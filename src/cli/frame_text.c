#include "cli/frame_text.h"

#include "base/text.h"

#include <locale.h>
#include <stdbool.h>
#include <string.h>
#include <wchar.h>

enum { MAX_SOURCE_LINE_BYTES = 400, FRAME_INDENT = 4, SOURCE_INDENT = 8, INT32_DIGITS = 10 };

static enum status append_run(struct buffer *text, char fill, size_t count) {
    void *where = NULL;
    TRY(buffer_extend(text, count, &where));
    memset(where, fill, count);
    return STATUS_OK;
}

static enum status append_line_number(struct buffer *text, int32_t line) {
    char digits[INT32_DIGITS + 1];
    size_t first = sizeof digits;
    do
        digits[--first] = (char)('0' + line % 10);
    while ((line /= 10) > 0);
    digits[--first] = ':';
    return buffer_append(text, digits + first, sizeof digits - first);
}

static enum status append_headline(struct buffer *text, const struct palette *palette, const struct look_frame *frame,
                                   size_t indent) {
    const char *name = frame->qualname != NULL ? frame->qualname : frame->function;
    TRY(append_run(text, ' ', indent + FRAME_INDENT));
    TRY(buffer_append_text(text, palette->function));
    TRY(text_append_safe(text, name, strlen(name), true));
    TRY(buffer_append_text(text, palette->end));
    TRY(buffer_append(text, "  ", 2));
    TRY(buffer_append_text(text, palette->file));
    TRY(text_append_safe(text, frame->file, strlen(frame->file), true));
    if (frame->position.line >= 0)
        TRY(append_line_number(text, frame->position.line));
    TRY(buffer_append_text(text, palette->end));
    return buffer_append_text(text, frame->collecting ? "  (collecting garbage)\n" : "\n");
}

/* The width of a character that is not ASCII. The locale knows it, and is loaded when the first one is met: few
 * programs have one, and loading it is a tenth of a small look. */
static int character_width(uint32_t character) {
    static bool loaded = false;
    if (!loaded)
        (void)setlocale(LC_CTYPE, "");
    loaded = true;
    return wcwidth((wchar_t)character);
}

/* Columns on the terminal that the bytes take up. Tabs are shown as one blank. */
static size_t display_width(const char *text, size_t size_bytes) {
    size_t width = 0;
    for (size_t i = 0; i < size_bytes;) {
        size_t ascii = text_plain_length(text + i, size_bytes - i);
        if (ascii > 0) {
            width += ascii;
            i += ascii;
            continue;
        }
        uint32_t character = 0;
        size_t length = text_decode_utf8(text + i, size_bytes - i, &character);
        int columns = length == 0 || character < 0x80 ? 1 : character_width(character);
        width += columns < 0 ? 1 : (size_t)columns;
        i += length == 0 ? 1 : length;
    }
    return width;
}

/* Marks the span under the line. Spans that go on below are marked to the line's end. */
static enum status append_mark(struct buffer *text, const struct palette *palette,
                               const struct source_position *position, const char *line, size_t begin,
                               size_t size_bytes, size_t indent) {
    if (position->column < 0 || position->end_column < 0)
        return STATUS_OK;
    size_t from = (size_t)position->column;
    size_t to = position->end_line == position->line ? (size_t)position->end_column : size_bytes;
    to = to > size_bytes ? size_bytes : to;
    from = from < begin ? begin : from;
    /* A mark under the whole line says nothing. */
    if (from >= to || (from == begin && to == size_bytes))
        return STATUS_OK;
    TRY(append_run(text, ' ', indent + SOURCE_INDENT));
    TRY(buffer_append_text(text, palette->mark));
    TRY(append_run(text, ' ', display_width(line + begin, from - begin)));
    TRY(append_run(text, '^', display_width(line + from, to - from)));
    TRY(buffer_append_text(text, palette->end));
    return buffer_append_char(text, '\n');
}

/* *unchanged: whether each character is shown as it is, so that a mark can stand under some of them. */
static enum status append_line(struct buffer *text, const char *line, size_t size_bytes, bool *unchanged) {
    *unchanged = true;
    if (text_plain_length(line, size_bytes) == size_bytes)
        return buffer_append(text, line, size_bytes);
    char shown[MAX_SOURCE_LINE_BYTES];
    /* One blank for a tab keeps the mark below in its place. */
    for (size_t i = 0; i < size_bytes; i++)
        shown[i] = line[i] == '\t' ? ' ' : line[i];
    size_t size_before = text->size_bytes;
    TRY(text_append_safe(text, shown, size_bytes, true));
    *unchanged = text->size_bytes - size_before == size_bytes;
    return STATUS_OK;
}

static enum status append_source(struct buffer *text, struct source_cache *sources, const struct palette *palette,
                                 const struct look_frame *frame, size_t indent) {
    const char *line = NULL;
    size_t size_bytes = 0, begin = 0;
    if (source_line(sources, frame->file, frame->position.line, &line, &size_bytes) != STATUS_OK)
        return STATUS_OK;
    while (size_bytes > 0 && (line[size_bytes - 1] == ' ' || line[size_bytes - 1] == '\t'))
        size_bytes--;
    while (begin < size_bytes && (line[begin] == ' ' || line[begin] == '\t' || line[begin] == '\f'))
        begin++;
    if (begin == size_bytes || size_bytes > MAX_SOURCE_LINE_BYTES)
        return STATUS_OK;
    bool unchanged = false;
    TRY(append_run(text, ' ', indent + SOURCE_INDENT));
    TRY(append_line(text, line + begin, size_bytes - begin, &unchanged));
    TRY(buffer_append_char(text, '\n'));
    return unchanged ? append_mark(text, palette, &frame->position, line, begin, size_bytes, indent) : STATUS_OK;
}

enum status frame_text_append(struct buffer *text, struct source_cache *sources, const struct palette *palette,
                              const struct look_frame *frame, size_t indent) {
    TRY(append_headline(text, palette, frame, indent));
    return append_source(text, sources, palette, frame, indent);
}
