#include "cli/frame_text.h"

#include "base/text.h"

#include <locale.h>
#include <stdbool.h>
#include <string.h>
#include <wchar.h>

enum { MAX_SOURCE_LINE_BYTES = 400, FRAME_INDENT = 4, SOURCE_INDENT = 8, INT32_DIGITS = 10 };

/* The part of a line of source that is shown. */
struct shown_part {
    const char *line;
    size_t begin, end;
    bool cut_before, cut_behind;
};

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

/* The width of a character that is not ASCII. A locale knows it, and is loaded when the first one is met: few programs
 * have one, and loading it is a tenth of a small look. Not the user's if it can be helped: what is written is UTF-8
 * whatever that is, and one of another encoding knows the width of nothing else. */
static int character_width(uint32_t character) {
    static bool loaded = false;
    if (!loaded && setlocale(LC_CTYPE, "C.UTF-8") == NULL)
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
                               const struct source_position *position, const struct shown_part *part, size_t indent) {
    if (position->column < 0 || position->end_column < 0)
        return STATUS_OK;
    size_t from = (size_t)position->column;
    size_t to = position->end_line == position->line ? (size_t)position->end_column : part->end;
    to = to > part->end ? part->end : to;
    from = from < part->begin ? part->begin : from;
    /* A mark under the whole line says nothing. */
    if (from >= to || (from == part->begin && to == part->end))
        return STATUS_OK;
    TRY(append_run(text, ' ', indent + SOURCE_INDENT + (part->cut_before ? 1 : 0)));
    TRY(buffer_append_text(text, palette->mark));
    TRY(append_run(text, ' ', display_width(part->line + part->begin, from - part->begin)));
    TRY(append_run(text, '^', display_width(part->line + from, to - from)));
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

static bool is_blank(char byte) {
    return byte == ' ' || byte == '\t' || byte == '\f';
}

/* The next place at or behind `at` where a character begins. */
static size_t character_begin(const char *line, size_t at, size_t end) {
    while (at < end && ((unsigned char)line[at] & 0xc0) == 0x80)
        at++;
    return at;
}

/* Of a line that is too long, the part in which what is to be marked begins; a quarter of what is shown stands before.
 */
static void cut_line(struct shown_part *part, int32_t column) {
    size_t wanted = column > 0 ? (size_t)column : 0, end = part->end, shown = MAX_SOURCE_LINE_BYTES;
    if (end - part->begin <= shown)
        return;
    size_t begin = wanted < part->begin + shown / 4 ? part->begin : wanted - shown / 4;
    begin = begin > end - shown ? end - shown : begin;
    part->cut_before = begin > part->begin;
    part->begin = character_begin(part->line, begin, end);
    part->end = begin + shown;
    while (part->end < end && ((unsigned char)part->line[part->end] & 0xc0) == 0x80)
        part->end--;
    part->cut_behind = part->end < end;
}

static enum status append_source(struct buffer *text, struct source_cache *sources, const struct palette *palette,
                                 const struct look_frame *frame, size_t indent) {
    struct shown_part part = {0};
    if (source_line(sources, frame->file, frame->position.line, &part.line, &part.end) != STATUS_OK)
        return STATUS_OK;
    while (part.end > 0 && is_blank(part.line[part.end - 1]))
        part.end--;
    while (part.begin < part.end && is_blank(part.line[part.begin]))
        part.begin++;
    if (part.begin == part.end)
        return STATUS_OK;
    cut_line(&part, frame->position.column);
    bool unchanged = false;
    TRY(append_run(text, ' ', indent + SOURCE_INDENT));
    TRY(buffer_append_text(text, part.cut_before ? "…" : ""));
    TRY(append_line(text, part.line + part.begin, part.end - part.begin, &unchanged));
    TRY(buffer_append_text(text, part.cut_behind ? "…\n" : "\n"));
    return unchanged ? append_mark(text, palette, &frame->position, &part, indent) : STATUS_OK;
}

enum status frame_text_append(struct buffer *text, struct source_cache *sources, const struct palette *palette,
                              const struct look_frame *frame, size_t indent) {
    TRY(append_headline(text, palette, frame, indent));
    return append_source(text, sources, palette, frame, indent);
}
