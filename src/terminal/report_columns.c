#include "terminal/cells.h"
#include "terminal/report_writer.h"

#include <string.h>

enum {
    BAR_WIDTH = 10,
    NARROW_BAR_WIDTH = 6,
    NARROW_WIDTH = 100,
    MIN_SOURCE_WIDTH = 28,
    PART_WIDTH = 7,
    RATE_WIDTH = 8
};

/* A column for the total is worth its place where it is so many thousandths of the whole above self. */
enum { TOTAL_DIFFERS = 10 };

const struct report_part report_parts[REPORT_PARTS] = {
    {MEASURE_CPU_PYTHON_NS, "python", "█", "34"},
    {MEASURE_CPU_NATIVE_NS, "native", "▓", "33"},
    {MEASURE_CPU_KERNEL_NS, "kernel", "░", "35"},
};

/* MEASURE_COUNT stands for the main measure. */
struct column_rule {
    struct column column;
    bool if_any; /* not when nothing was spent on it */
};

/* Where CPU time is known, and maybe what it was spent on: what one wants to see at a glance. */
static const struct column_rule PARTED[] = {
    {{COLUMN_AMOUNT, MEASURE_CPU_NS, "cpu", CELL_AMOUNT_WIDTH, 40}, false},
    {{COLUMN_SHARE, MEASURE_CPU_NS, "share", CELL_SHARE_WIDTH + 1, 100}, false},
    {{COLUMN_BAR, MEASURE_CPU_NS, "", BAR_WIDTH + 2, 90}, false},
    {{COLUMN_PART, MEASURE_CPU_PYTHON_NS, "python", PART_WIDTH, 80}, false},
    {{COLUMN_PART, MEASURE_CPU_NATIVE_NS, "native", PART_WIDTH, 80}, false},
    {{COLUMN_PART, MEASURE_CPU_KERNEL_NS, "kernel", PART_WIDTH, 80}, false},
    {{COLUMN_TOTAL, MEASURE_CPU_NS, "total", CELL_SHARE_WIDTH + 1, 50}, false},
    {{COLUMN_AMOUNT, MEASURE_WAIT_NS, "wait", CELL_AMOUNT_WIDTH + 1, 70}, true},
    {{COLUMN_AMOUNT, MEASURE_GIL_WAIT_NS, "gil wait", CELL_AMOUNT_WIDTH + 1, 30}, true},
    {{COLUMN_AMOUNT, MEASURE_ALLOC_BYTES, "alloc", CELL_AMOUNT_WIDTH + 2, 65}, true},
    {{COLUMN_AMOUNT, MEASURE_PEAK_BYTES, "peak", CELL_AMOUNT_WIDTH + 2, 60}, true},
    {{COLUMN_AMOUNT, MEASURE_LIVE_BYTES, "live", CELL_AMOUNT_WIDTH + 2, 25}, true},
    {{COLUMN_AMOUNT, MEASURE_COPY_BYTES, "copied", CELL_AMOUNT_WIDTH + 2, 20}, true},
    {{COLUMN_RATE, MEASURE_COPY_BYTES, "MB/s", RATE_WIDTH, 20}, true},
    {{COLUMN_AMOUNT, MEASURE_GPU_NS, "gpu", CELL_AMOUNT_WIDTH + 1, 75}, true},
    {{COLUMN_AMOUNT, MEASURE_GPU_BYTES, "gpu mem", CELL_AMOUNT_WIDTH + 2, 22}, true},
};

/* For captures with one kind of time, and where another measure is the main one. */
static const struct column_rule PLAIN[] = {
    {{COLUMN_AMOUNT, MEASURE_COUNT, NULL, CELL_AMOUNT_WIDTH, 100}, false},
    {{COLUMN_SHARE, MEASURE_COUNT, "self", CELL_SHARE_WIDTH + 1, 100}, false},
    {{COLUMN_BAR, MEASURE_COUNT, "", BAR_WIDTH + 2, 10}, false},
    {{COLUMN_TOTAL, MEASURE_COUNT, "total", CELL_SHARE_WIDTH + 1, 100}, false},
    {{COLUMN_AMOUNT, MEASURE_CPU_NS, "cpu", CELL_AMOUNT_WIDTH + 1, 29}, false},
    {{COLUMN_AMOUNT, MEASURE_CPU_PYTHON_NS, "python", CELL_AMOUNT_WIDTH + 1, 28}, false},
    {{COLUMN_AMOUNT, MEASURE_CPU_NATIVE_NS, "native", CELL_AMOUNT_WIDTH + 1, 28}, false},
    {{COLUMN_AMOUNT, MEASURE_CPU_KERNEL_NS, "kernel", CELL_AMOUNT_WIDTH + 1, 28}, false},
    {{COLUMN_AMOUNT, MEASURE_WAIT_NS, "wait", CELL_AMOUNT_WIDTH + 1, 27}, false},
    {{COLUMN_AMOUNT, MEASURE_GIL_WAIT_NS, "gil wait", CELL_AMOUNT_WIDTH + 1, 26}, false},
    {{COLUMN_AMOUNT, MEASURE_ALLOC_BYTES, "alloc", CELL_AMOUNT_WIDTH + 2, 25}, false},
    {{COLUMN_AMOUNT, MEASURE_PEAK_BYTES, "peak", CELL_AMOUNT_WIDTH + 2, 24}, false},
    {{COLUMN_AMOUNT, MEASURE_LIVE_BYTES, "live", CELL_AMOUNT_WIDTH + 2, 23}, false},
    {{COLUMN_AMOUNT, MEASURE_COPY_BYTES, "copied", CELL_AMOUNT_WIDTH + 2, 22}, false},
    {{COLUMN_RATE, MEASURE_COPY_BYTES, "MB/s", RATE_WIDTH, 22}, false},
    {{COLUMN_AMOUNT, MEASURE_GPU_NS, "gpu", CELL_AMOUNT_WIDTH + 1, 21}, false},
    {{COLUMN_AMOUNT, MEASURE_GPU_BYTES, "gpu mem", CELL_AMOUNT_WIDTH + 2, 20}, false},
};

_Static_assert(sizeof PARTED / sizeof PARTED[0] <= REPORT_MAX_COLUMNS, "there is room for all columns");
_Static_assert(sizeof PLAIN / sizeof PLAIN[0] <= REPORT_MAX_COLUMNS, "there is room for all columns");

/* ------------------------------------------------------------------------------------------------ choice ------ */

size_t report_width_before_text(const struct report_writer *writer) {
    size_t width = 0;
    for (size_t i = 0; i < writer->column_count; i++)
        width += writer->columns[i].width;
    return width;
}

static void take_rules(struct report_writer *writer, const struct column_rule *rules, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct column column = rules[i].column;
        bool is_main = column.measure == MEASURE_COUNT || column.measure == writer->main;
        /* What is main stands first, once. */
        if (column.measure != MEASURE_COUNT && is_main && rules == PLAIN)
            continue;
        column.measure = is_main ? writer->main : column.measure;
        if (!is_main && !profile_has(writer->profile, column.measure))
            continue;
        if (rules[i].if_any && writer->attribution.sums[column.measure] == 0)
            continue;
        if (column.title == NULL)
            column.title = writer->main != MEASURE_SAMPLES ? measure_word(writer->main) : "self";
        if (column.width < strlen(column.title))
            column.width = strlen(column.title);
        writer->columns[writer->column_count++] = column;
    }
}

/* False when there is no column that may go. */
static bool drop_least(struct report_writer *writer) {
    unsigned least = 100;
    size_t kept = 0;
    for (size_t i = 0; i < writer->column_count; i++)
        least = writer->columns[i].keep < least ? writer->columns[i].keep : least;
    for (size_t i = 0; i < writer->column_count; i++)
        if (writer->columns[i].keep > least || least == 100)
            writer->columns[kept++] = writer->columns[i];
    writer->column_count = kept;
    return least < 100;
}

void report_choose_columns(struct report_writer *writer) {
    size_t width = writer->options->width;
    writer->has_parts = writer->main == MEASURE_CPU_NS && profile_has(writer->profile, MEASURE_CPU_PYTHON_NS);
    if (writer->main == MEASURE_CPU_NS)
        take_rules(writer, PARTED, sizeof PARTED / sizeof PARTED[0]);
    else
        take_rules(writer, PLAIN, sizeof PLAIN / sizeof PLAIN[0]);
    if (width == 0)
        return;
    for (size_t i = 0; i < writer->column_count && writer->has_parts && width < NARROW_WIDTH; i++)
        if (writer->columns[i].kind == COLUMN_BAR)
            writer->columns[i].width -= BAR_WIDTH - NARROW_BAR_WIDTH;
    while (report_width_before_text(writer) + REPORT_LINE_WIDTH + MIN_SOURCE_WIDTH > width)
        if (!drop_least(writer))
            break;
}

bool report_has_column(const struct report_writer *writer, enum column_kind kind) {
    for (size_t i = 0; i < writer->column_count; i++)
        if (writer->columns[i].kind == kind)
            return true;
    return false;
}

size_t report_text_width(const struct report_writer *writer, size_t used) {
    size_t width = writer->options->width;
    if (width == 0)
        return 0;
    return width > used + 1 ? width - used : 1;
}

/* ------------------------------------------------------------------------------------------------ cells ------- */

/* The hotter, the redder. */
static const char *heat_style(uint64_t part, uint64_t whole) {
    double share = whole > 0 ? (double)part / (double)whole : 0;
    return share >= 0.2 ? "1;31" : share >= 0.05 ? "33" : "0";
}

static const char *part_colour(enum measure measure) {
    for (size_t i = 0; i < REPORT_PARTS; i++)
        if (report_parts[i].measure == measure)
            return report_parts[i].colour;
    return "0";
}

enum status report_append_heads(struct report_writer *writer) {
    for (size_t i = 0; i < writer->column_count; i++) {
        const struct column *column = &writer->columns[i];
        size_t length = strlen(column->title);
        TRY(buffer_append_format(&writer->row, "%*s", (int)(column->width - length), ""));
        TRY(report_append_styled(writer, column->kind == COLUMN_PART ? part_colour(column->measure) : "0",
                                 column->title));
    }
    return STATUS_OK;
}

static enum status append_bar(struct report_writer *writer, const struct column *column, const uint64_t *self) {
    struct cell_segment segments[REPORT_PARTS + 1];
    uint64_t whole = writer->attribution.sums[writer->main], rest = self[writer->main];
    TRY(buffer_append_text(&writer->row, "  "));
    if (!writer->has_parts)
        return cell_append_bar(&writer->row, rest, whole, column->width - 2);
    for (size_t i = 0; i < REPORT_PARTS; i++) {
        uint64_t part = self[report_parts[i].measure];
        segments[i] = (struct cell_segment){part, report_parts[i].glyph, report_parts[i].colour};
        rest -= part < rest ? part : rest;
    }
    /* What nobody could divide: of captures that were added to this one. */
    segments[REPORT_PARTS] = (struct cell_segment){rest, "▒", "37"};
    return cell_append_segments(&writer->row, segments, REPORT_PARTS + 1, whole, column->width - 2,
                                writer->options->colour);
}

static enum status append_total(struct report_writer *writer, uint64_t self, uint64_t total, enum report_total how) {
    uint64_t whole = writer->attribution.sums[writer->main];
    bool differs = total > self && report_is_share(total - self, whole, TOTAL_DIFFERS);
    bool is_shown = how == REPORT_TOTAL_ALWAYS || (how == REPORT_TOTAL_IF_IT_DIFFERS && differs);
    TRY(buffer_append_char(&writer->row, ' '));
    return cell_append_share(&writer->row, is_shown ? total : 0, whole);
}

static enum status append_cell(struct report_writer *writer, const struct column *column, const uint64_t *self,
                               const uint64_t *total, enum report_total how) {
    struct buffer *row = &writer->row;
    uint64_t whole = writer->attribution.sums[writer->main];
    uint64_t amount = self[column->measure];
    switch (column->kind) {
    case COLUMN_AMOUNT:
        return cell_append_amount(row, amount, measure_unit(column->measure), column->width);
    case COLUMN_SHARE:
        TRY(buffer_append_char(row, ' '));
        return cell_append_share(row, amount, whole);
    case COLUMN_PART:
        return cell_append_percent(row, amount, whole, column->width);
    case COLUMN_BAR:
        return append_bar(writer, column, self);
    case COLUMN_TOTAL:
        return append_total(writer, self[writer->main], total[writer->main], how);
    case COLUMN_RATE:
        return cell_append_rate(row, amount, writer->profile->elapsed_ns, column->width);
    }
    return STATUS_OK;
}

enum status report_append_figures(struct report_writer *writer, const uint64_t *self, const uint64_t *total,
                                  enum report_total how) {
    uint64_t whole = writer->attribution.sums[writer->main];
    for (size_t i = 0; i < writer->column_count; i++) {
        const struct column *column = &writer->columns[i];
        bool is_hot = column->measure == writer->main && column->kind != COLUMN_TOTAL &&
                      (column->kind != COLUMN_BAR || !writer->has_parts);
        const char *code = is_hot                        ? heat_style(self[writer->main], whole)
                           : column->kind == COLUMN_PART ? part_colour(column->measure)
                                                         : NULL;
        if (code != NULL)
            TRY(report_style(writer, code));
        TRY(append_cell(writer, column, self, total, how));
        if (code != NULL)
            TRY(report_style(writer, "0"));
    }
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------------------ rows -------- */

bool report_is_share(uint64_t part, uint64_t whole, unsigned thousandths) {
    return part > 0 && (double)part * 1000 >= (double)whole * thousandths;
}

enum status report_style(struct report_writer *writer, const char *code) {
    return writer->options->colour ? buffer_append_format(&writer->row, "\033[%sm", code) : STATUS_OK;
}

enum status report_append_styled(struct report_writer *writer, const char *code, const char *text) {
    TRY(report_style(writer, code));
    TRY(buffer_append_text(&writer->row, text));
    return report_style(writer, "0");
}

void report_put_row(struct report_writer *writer) {
    size_t size_bytes = writer->row.size_bytes;
    while (size_bytes > 0 && writer->row.data[size_bytes - 1] == ' ')
        size_bytes--;
    (void)fwrite(buffer_text(&writer->row), 1, size_bytes, writer->stream);
    putc('\n', writer->stream);
    buffer_clear(&writer->row);
}

enum status report_put_rest(struct report_writer *writer, uint64_t self, size_t count, const char *what) {
    TRY(cell_append_amount(&writer->row, self, measure_unit(writer->main), CELL_AMOUNT_WIDTH));
    TRY(buffer_append_char(&writer->row, ' '));
    TRY(cell_append_share(&writer->row, self, writer->attribution.sums[writer->main]));
    TRY(report_style(writer, "2"));
    TRY(buffer_append_format(&writer->row, "  in %zu more %s%s%s", count, what,
                             count > 1 && what[strlen(what) - 1] == 's' ? "e" : "", count == 1 ? "" : "s"));
    TRY(report_style(writer, "0"));
    report_put_row(writer);
    return STATUS_OK;
}
