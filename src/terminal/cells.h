/* Cells of a table for a terminal: amounts, shares, bars, and text cut to a width. */
#ifndef STROBE_TERMINAL_CELLS_H
#define STROBE_TERMINAL_CELLS_H

#include "base/buffer.h"
#include "profile/profile.h"

#include <stdbool.h>

/* "1.638 s", "12.3 ms", "4.5 MiB", "1234"; never longer than CELL_AMOUNT_WIDTH characters up to 10,000 hours
 * and a thousand million. */
enum { CELL_AMOUNT_WIDTH = 9, CELL_SHARE_WIDTH = 6 };

/* Right-aligned in `width` columns; blank when the amount is 0. */
enum status cell_append_amount(struct buffer *row, uint64_t amount, enum measure_unit unit, size_t width) MUST_USE;
/* "13.6%"; blank when the part is 0; "<0.1%" for what would look like 0. */
enum status cell_append_share(struct buffer *row, uint64_t part, uint64_t whole) MUST_USE;
/* A bar of `width` columns in eighths of a block. */
enum status cell_append_bar(struct buffer *row, uint64_t part, uint64_t whole, size_t width) MUST_USE;
/* "14%", right-aligned in `width` columns; blank when the part is 0; "<1%" for what would look like 0. */
enum status cell_append_percent(struct buffer *row, uint64_t part, uint64_t whole, size_t width) MUST_USE;
/* "12.3", so many bytes in so long a time, in MB/s; right-aligned as above; blank when there are none. */
enum status cell_append_rate(struct buffer *row, uint64_t bytes, uint64_t elapsed_ns, size_t width) MUST_USE;
/* A bar of several parts, one behind the other. */
struct cell_segment {
    uint64_t amount;
    const char *glyph;  /* a full cell of it where there are no colours */
    const char *colour; /* Select Graphic Rendition of its foreground: two digits that begin with 3 */
};
enum { CELL_MAX_SEGMENTS = 4 };
enum status cell_append_segments(struct buffer *row, const struct cell_segment *segments, size_t count, uint64_t whole,
                                 size_t width, bool colour) MUST_USE;
/* Text made safe, tabs as blanks, cut with "…" to at most `width` columns (0: no limit), no blanks behind it. */
enum status cell_append_text(struct buffer *row, const char *text, size_t size_bytes, size_t width) MUST_USE;
/* A path, cut likewise, but at its beginning: what tells it from others is its end. */
enum status cell_append_path(struct buffer *row, const char *path, size_t width) MUST_USE;
/* How many columns safe text takes. */
size_t cell_columns(const char *text, size_t size_bytes);
/* A whole number with commas. */
enum status cell_append_count(struct buffer *row, uint64_t count) MUST_USE;

#endif
