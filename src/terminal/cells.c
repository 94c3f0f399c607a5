#include "terminal/cells.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TAB_WIDTH = 4, CELL_TEXT_LIMIT = 1 << 16 };

static enum status append_aligned(struct buffer *row, const char *text, size_t columns, size_t width) {
    for (; columns < width; columns++)
        TRY(buffer_append_char(row, ' '));
    return buffer_append_text(row, text);
}

/* Four figures or so, whatever the magnitude. */
static void format_time(char text[static 32], uint64_t ns) {
    if (ns >= 3600000000000)
        snprintf(text, 32, "%" PRIu64 "h %02" PRIu64 "m", ns / 3600000000000, ns / 60000000000 % 60);
    else if (ns >= 100000000000)
        snprintf(text, 32, "%" PRIu64 ".%" PRIu64 " s", ns / 1000000000, ns / 100000000 % 10);
    else if (ns >= 1000000000)
        snprintf(text, 32, "%" PRIu64 ".%03" PRIu64 " s", ns / 1000000000, ns / 1000000 % 1000);
    else if (ns >= 1000000)
        snprintf(text, 32, "%" PRIu64 ".%" PRIu64 " ms", ns / 1000000, ns / 100000 % 10);
    else
        snprintf(text, 32, "%" PRIu64 ".%" PRIu64 " us", ns / 1000, ns / 100 % 10);
}

static void format_bytes(char text[static 32], uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t rank = 0;
    uint64_t tenths = bytes < UINT64_MAX / 10 ? bytes * 10 : UINT64_MAX;
    for (; tenths >= 10240 && rank + 1 < sizeof units / sizeof units[0]; rank++)
        tenths /= 1024;
    if (rank == 0)
        snprintf(text, 32, "%" PRIu64 " B", bytes);
    else if (tenths >= 10000)
        snprintf(text, 32, "%" PRIu64 " %s", tenths / 10, units[rank]);
    else
        snprintf(text, 32, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, units[rank]);
}

enum status cell_append_amount(struct buffer *row, uint64_t amount, enum measure_unit unit, size_t width) {
    char text[32] = "";
    if (amount > 0 && unit == UNIT_NS)
        format_time(text, amount);
    else if (amount > 0 && unit == UNIT_BYTES)
        format_bytes(text, amount);
    else if (amount > 0)
        snprintf(text, sizeof text, "%" PRIu64, amount);
    return append_aligned(row, text, strlen(text), width);
}

enum status cell_append_share(struct buffer *row, uint64_t part, uint64_t whole) {
    char text[32] = "";
    double percent = whole > 0 ? 100.0 * (double)part / (double)whole : 0;
    unsigned tenths = (unsigned)(percent * 10 + 0.5);
    if (part > 0 && tenths == 0)
        snprintf(text, sizeof text, "<0.1%%");
    else if (part > 0)
        snprintf(text, sizeof text, "%u.%u%%", tenths / 10, tenths % 10);
    return append_aligned(row, text, strlen(text), CELL_SHARE_WIDTH);
}

enum status cell_append_percent(struct buffer *row, uint64_t part, uint64_t whole, size_t width) {
    char text[32] = "";
    double percent = whole > 0 ? 100.0 * (double)part / (double)whole : 0;
    unsigned rounded = (unsigned)(percent + 0.5);
    if (part > 0 && rounded == 0)
        snprintf(text, sizeof text, "<1%%");
    else if (part > 0)
        snprintf(text, sizeof text, "%u%%", rounded);
    return append_aligned(row, text, strlen(text), width);
}

enum status cell_append_rate(struct buffer *row, uint64_t bytes, uint64_t elapsed_ns, size_t width) {
    char text[32] = "";
    double megabytes = elapsed_ns > 0 ? 1000.0 * (double)bytes / (double)elapsed_ns : 0;
    if (megabytes > 0 && megabytes < 0.1)
        snprintf(text, sizeof text, "<0.1");
    else if (megabytes > 0)
        snprintf(text, sizeof text, "%.*f", megabytes < 100 ? 1 : 0, megabytes);
    return append_aligned(row, text, strlen(text), width);
}

static const char *const BLOCKS[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};

enum status cell_append_bar(struct buffer *row, uint64_t part, uint64_t whole, size_t width) {
    double share = whole > 0 ? (double)part / (double)whole : 0;
    size_t eighths = (size_t)((share < 1 ? share : 1) * (double)(width * 8) + 0.5);
    if (part > 0 && eighths == 0)
        eighths = 1;
    for (size_t i = 0; i < width; i++, eighths -= eighths < 8 ? eighths : 8)
        TRY(buffer_append_text(row, BLOCKS[eighths < 8 ? eighths : 8]));
    return STATUS_OK;
}

/* Where each segment ends, in eighths of a cell from the bar's start. What there is at all gets at least one. */
static void place_segments(const struct cell_segment *segments, size_t count, uint64_t whole, size_t width,
                           size_t *ends) {
    double scale = whole > 0 ? (double)(width * 8) / (double)whole : 0;
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += segments[i].amount;
        double end = (double)sum * scale + 0.5;
        ends[i] = end < (double)(width * 8) ? (size_t)end : width * 8;
        if (sum > 0 && ends[i] == 0)
            ends[i] = 1;
    }
}

/* The eighths of a cell that a segment fills. */
static size_t filled(const size_t *ends, size_t segment, size_t cell) {
    size_t begin = segment > 0 ? ends[segment - 1] : 0, end = ends[segment];
    begin = begin > cell * 8 ? begin : cell * 8;
    end = end < cell * 8 + 8 ? end : cell * 8 + 8;
    return end > begin ? end - begin : 0;
}

/* One cell without colours shows what most of it is of. */
static enum status append_plain_cell(struct buffer *row, const struct cell_segment *segments, size_t count,
                                     const size_t *ends, size_t cell) {
    size_t most = 0, most_eighths = 0, eighths = 0;
    for (size_t i = 0; i < count; i++) {
        size_t of_this = filled(ends, i, cell);
        eighths += of_this;
        if (of_this > most_eighths) {
            most = i;
            most_eighths = of_this;
        }
    }
    /* Only the full block, which the first segment has, comes in eighths. */
    if (eighths < 8 && most == 0)
        return buffer_append_text(row, BLOCKS[eighths]);
    bool is_shown = eighths >= 4 || (eighths > 0 && cell == 0);
    return buffer_append_text(row, is_shown ? segments[most].glyph : " ");
}

/* With colours a cell can show two segments, one in the foreground's colour, one in the background's. */
static enum status append_coloured_cell(struct buffer *row, const struct cell_segment *segments, size_t count,
                                        const size_t *ends, size_t cell) {
    size_t left = count, right = count, left_eighths = 0, right_eighths = 0, eighths = 0;
    for (size_t i = 0; i < count; i++) {
        size_t of_this = filled(ends, i, cell);
        eighths += of_this;
        if (of_this > 0 && left == count) {
            left = i;
            left_eighths = of_this;
        } else if (of_this > right_eighths) {
            right = i;
            right_eighths = of_this;
        }
    }
    if (eighths == 0)
        return buffer_append_char(row, ' ');
    if (right == count || eighths < 8)
        return buffer_append_format(row, "\033[%sm%s\033[0m",
                                    segments[right_eighths > left_eighths ? right : left].colour, BLOCKS[eighths]);
    return buffer_append_format(row, "\033[%s;4%sm%s\033[0m", segments[left].colour, segments[right].colour + 1,
                                BLOCKS[left_eighths]);
}

enum status cell_append_segments(struct buffer *row, const struct cell_segment *segments, size_t count, uint64_t whole,
                                 size_t width, bool colour) {
    size_t ends[CELL_MAX_SEGMENTS];
    place_segments(segments, count, whole, width, ends);
    for (size_t cell = 0; cell < width; cell++)
        TRY(colour ? append_coloured_cell(row, segments, count, ends, cell)
                   : append_plain_cell(row, segments, count, ends, cell));
    return STATUS_OK;
}

/* What has an East_Asian_Width of W or F (Unicode 17), and, to be short, some narrow pictures among the emoji. */
static const struct {
    uint32_t first, last;
} WIDE[] = {{0x1100, 0x115f},   {0x231a, 0x231b},   {0x2329, 0x232a},   {0x23e9, 0x23ec},   {0x23f0, 0x23f0},
            {0x23f3, 0x23f3},   {0x25fd, 0x25fe},   {0x2614, 0x2615},   {0x2630, 0x2637},   {0x2648, 0x2653},
            {0x267f, 0x267f},   {0x268a, 0x268f},   {0x2693, 0x2693},   {0x26a1, 0x26a1},   {0x26aa, 0x26ab},
            {0x26bd, 0x26be},   {0x26c4, 0x26c5},   {0x26ce, 0x26ce},   {0x26d4, 0x26d4},   {0x26ea, 0x26ea},
            {0x26f2, 0x26f3},   {0x26f5, 0x26f5},   {0x26fa, 0x26fa},   {0x26fd, 0x26fd},   {0x2705, 0x2705},
            {0x270a, 0x270b},   {0x2728, 0x2728},   {0x274c, 0x274c},   {0x274e, 0x274e},   {0x2753, 0x2755},
            {0x2757, 0x2757},   {0x2795, 0x2797},   {0x27b0, 0x27b0},   {0x27bf, 0x27bf},   {0x2b1b, 0x2b1c},
            {0x2b50, 0x2b50},   {0x2b55, 0x2b55},   {0x2e80, 0xa4cf},   {0xa960, 0xa97c},   {0xac00, 0xd7a3},
            {0xf900, 0xfaff},   {0xfe10, 0xfe19},   {0xfe30, 0xfe6b},   {0xff01, 0xff60},   {0xffe0, 0xffe6},
            {0x16fe0, 0x1b2fb}, {0x1d300, 0x1d376}, {0x1f004, 0x1f004}, {0x1f0cf, 0x1f0cf}, {0x1f18e, 0x1f19a},
            {0x1f200, 0x1faff}, {0x20000, 0x3fffd}};

/* Columns of a character: what East Asian scripts and emoji take two of, and marks none. A rough table: wcwidth knows
 * only the locale's characters. */
static size_t columns_of(uint32_t character) {
    if (character < 0x300)
        return 1;
    if (character <= 0x36f || character == 0x200b || character == 0x200d ||
        (character >= 0xfe00 && character <= 0xfe0f))
        return 0;
    for (size_t i = 0; i < sizeof WIDE / sizeof WIDE[0] && character >= WIDE[i].first; i++)
        if (character <= WIDE[i].last)
            return 2;
    return 1;
}

static enum status expand_tabs(struct buffer *to, const char *text, size_t size_bytes) {
    size_t column = 0;
    for (size_t i = 0; i < size_bytes; i++) {
        size_t blanks = text[i] == '\t' ? TAB_WIDTH - column % TAB_WIDTH : 0;
        if (blanks == 0)
            TRY(buffer_append_char(to, text[i]));
        for (size_t j = 0; j < blanks; j++)
            TRY(buffer_append_char(to, ' '));
        column += blanks > 0 ? blanks : 1;
    }
    return STATUS_OK;
}

/* How many bytes of `text` fit into `width` columns, leaving one for "…" if not all do. */
static size_t fitting_bytes(const char *text, size_t size_bytes, size_t width, bool *cut) {
    size_t columns = 0, fits = 0, at = 0;
    while (at < size_bytes) {
        uint32_t character = ' ';
        size_t length = text_decode_utf8(text + at, size_bytes - at, &character);
        columns += columns_of(character);
        if (columns > width) {
            *cut = true;
            return fits;
        }
        at += length > 0 ? length : 1;
        if (columns < width)
            fits = at;
    }
    *cut = false;
    return size_bytes;
}

/* `cut`: the text goes on. */
static enum status append_cut(struct buffer *row, const struct buffer *text, size_t width, bool cut) {
    size_t size = text->size_bytes;
    bool is_wider = false;
    while (size > 0 && text->data[size - 1] == ' ')
        size--;
    if (width > 0)
        size = fitting_bytes(buffer_text(text), size, width, &is_wider);
    TRY(buffer_append(row, buffer_text(text), size));
    return cut || is_wider ? buffer_append_text(row, "…") : STATUS_OK;
}

enum status cell_append_text(struct buffer *row, const char *text, size_t size_bytes, size_t width) {
    struct buffer expanded, safe;
    buffer_init(&expanded, CELL_TEXT_LIMIT);
    buffer_init(&safe, CELL_TEXT_LIMIT);
    /* A line of source may be a megabyte of data; nobody reads that far. */
    enum { MAX_TEXT = 2000 };
    bool is_long = size_bytes > MAX_TEXT;
    size_t taken = is_long ? MAX_TEXT : size_bytes;
    while (is_long && taken > MAX_TEXT - 4 && ((unsigned char)text[taken] & 0xc0) == 0x80)
        taken--;
    enum status status = expand_tabs(&expanded, text, taken);
    if (status == STATUS_OK)
        status = text_append_safe(&safe, buffer_text(&expanded), expanded.size_bytes, true);
    if (status == STATUS_OK)
        status = append_cut(row, &safe, width, is_long);
    buffer_release(&expanded);
    buffer_release(&safe);
    return status;
}

size_t cell_columns(const char *text, size_t size_bytes) {
    size_t columns = 0, at = 0;
    while (at < size_bytes) {
        uint32_t character = ' ';
        size_t length = text_decode_utf8(text + at, size_bytes - at, &character);
        columns += columns_of(character);
        at += length > 0 ? length : 1;
    }
    return columns;
}

enum status cell_append_path(struct buffer *row, const char *path, size_t width) {
    size_t size_bytes = strlen(path), columns = cell_columns(path, size_bytes), at = 0;
    if (width == 0 || columns <= width)
        return cell_append_text(row, path, size_bytes, width);
    while (at < size_bytes && columns + 1 > width) {
        uint32_t character = ' ';
        size_t length = text_decode_utf8(path + at, size_bytes - at, &character);
        columns -= columns_of(character);
        at += length > 0 ? length : 1;
    }
    TRY(buffer_append_text(row, "…"));
    return cell_append_text(row, path + at, size_bytes - at, 0);
}

enum status cell_append_count(struct buffer *row, uint64_t count) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            TRY(buffer_append_char(row, ','));
        TRY(buffer_append_char(row, digits[i]));
    }
    return STATUS_OK;
}
