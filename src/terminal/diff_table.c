#include "terminal/diff_table.h"

#include "base/buffer.h"
#include "terminal/cells.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_LINES = 25, FUNCTION_ROWS = 15, ROW_LIMIT_BYTES = 1 << 22, COMMAND_BYTES = 4096, CHANGE_WIDTH = 11 };

/* A change is worth a look from this share of the whole on, in thousandths. */
enum { CHANGE_SHARE = 5 };

struct table {
    const struct diff_table_options *options;
    struct profile_diff diff;
    enum measure measure; /* that figures are of now */
    struct buffer row;
    FILE *stream;
};

static enum status style(struct table *table, const char *code) {
    return table->options->colour ? buffer_append_format(&table->row, "\033[%sm", code) : STATUS_OK;
}

static void put_row(struct table *table) {
    size_t size_bytes = table->row.size_bytes;
    while (size_bytes > 0 && table->row.data[size_bytes - 1] == ' ')
        size_bytes--;
    (void)fwrite(buffer_text(&table->row), 1, size_bytes, table->stream);
    putc('\n', table->stream);
    buffer_clear(&table->row);
}

/* As profile_main_measure chooses. */
static enum measure main_measure(const struct profile_diff *diff) {
    static const enum measure wanted[] = {MEASURE_WALL_NS, MEASURE_CPU_NS, MEASURE_SAMPLES};
    if (diff->taken[MEASURE_CPU_PYTHON_NS] && diff->taken[MEASURE_CPU_NS])
        return MEASURE_CPU_NS;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (diff->taken[wanted[i]])
            return wanted[i];
    return MEASURE_ALLOC_BYTES;
}

static uint64_t whole(const struct table *table) {
    uint64_t before = table->diff.sums_before[table->measure], after = table->diff.sums_after[table->measure];
    return before > after ? before : after;
}

/* ------------------------------------------------------------------------------------------------ figures ----- */

static enum status append_change(struct table *table, uint64_t before, uint64_t after) {
    struct buffer amount;
    buffer_init(&amount, ROW_LIMIT_BYTES);
    enum status status = buffer_append_char(&amount, after > before ? '+' : '-');
    if (status == STATUS_OK)
        status = cell_append_amount(&amount, after > before ? after - before : before - after,
                                    measure_unit(table->measure), 0);
    if (status == STATUS_OK)
        status = buffer_append_format(&table->row, "%*s", CHANGE_WIDTH, before != after ? buffer_text(&amount) : "");
    buffer_release(&amount);
    return status;
}

/* Of the whole that was before, with a sign. */
static enum status append_points(struct table *table, uint64_t before, uint64_t after) {
    uint64_t all = table->diff.sums_before[table->measure];
    double points = all > 0 ? ((double)after - (double)before) * 100 / (double)all : 0;
    if (points > -0.05 && points < 0.05)
        return buffer_append_format(&table->row, "%9s", "");
    return points < 10000 ? buffer_append_format(&table->row, " %+7.1f%%", points)
                          : buffer_append_format(&table->row, "%9s", ">+9999%");
}

static enum status append_figures(struct table *table, uint64_t before, uint64_t after) {
    enum measure_unit unit = measure_unit(table->measure);
    uint64_t change = before > after ? before - after : after - before;
    bool stands_out = (double)change * 50 >= (double)whole(table);
    TRY(cell_append_amount(&table->row, before, unit, CELL_AMOUNT_WIDTH));
    TRY(buffer_append_char(&table->row, ' '));
    TRY(cell_append_amount(&table->row, after, unit, CELL_AMOUNT_WIDTH));
    TRY(style(table, !stands_out ? "0" : after > before ? "31" : "32"));
    TRY(append_change(table, before, after));
    TRY(append_points(table, before, after));
    return style(table, "0");
}

static enum status put_heads(struct table *table, const char *what) {
    putc('\n', table->stream);
    TRY(buffer_append_format(&table->row, "%*s %*s%*s%9s  %s (%s)", CELL_AMOUNT_WIDTH, "before", CELL_AMOUNT_WIDTH,
                             "after", CHANGE_WIDTH, "change", "of all", what, measure_word(table->measure)));
    put_row(table);
    return STATUS_OK;
}

static size_t text_width(const struct table *table) {
    size_t used = 2 * CELL_AMOUNT_WIDTH + 1 + CHANGE_WIDTH + 9 + 2;
    if (table->options->width == 0)
        return 0;
    return table->options->width > used + 1 ? table->options->width - used : 1;
}

/* ------------------------------------------------------------------------------------------------ head -------- */

static enum status put_profile(struct table *table, const char *title, const struct profile *profile) {
    TRY(buffer_append_text(&table->row, title));
    if (profile->process_count > 0) {
        const struct profile_process *process = &profile->processes[0];
        struct buffer command;
        buffer_init(&command, ROW_LIMIT_BYTES);
        enum status status = STATUS_OK;
        for (size_t i = 0; i < process->command_count && command.size_bytes < COMMAND_BYTES && status == STATUS_OK; i++)
            status = buffer_append_format(&command, "%s%s", i > 0 ? " " : "", process->command[i]);
        if (status == STATUS_OK)
            status = cell_append_text(&table->row, buffer_text(&command), command.size_bytes, 60);
        buffer_release(&command);
        TRY(status);
        TRY(buffer_append_format(&table->row, ", process %" PRId32, process->pid));
        if (profile->process_count > 1)
            TRY(buffer_append_format(&table->row, " and %zu more", profile->process_count - 1));
    }
    TRY(buffer_append_text(&table->row, ", "));
    TRY(cell_append_amount(&table->row, profile->elapsed_ns, UNIT_NS, 0));
    TRY(buffer_append_text(&table->row, ", "));
    TRY(cell_append_count(&table->row, profile->counters.taken));
    TRY(buffer_append_text(&table->row, " samples"));
    put_row(table);
    return STATUS_OK;
}

static enum status put_sum(struct table *table) {
    TRY(append_figures(table, table->diff.sums_before[table->measure], table->diff.sums_after[table->measure]));
    TRY(buffer_append_format(&table->row, "  in all (%s)", measure_word(table->measure)));
    put_row(table);
    return STATUS_OK;
}

/* The measure that rows are ranked by comes first. */
static enum status put_sums(struct table *table) {
    enum measure first = table->measure;
    TRY(put_sum(table));
    for (enum measure m = MEASURE_WALL_NS; m < MEASURE_SHOWN; m++) {
        bool is_anything = table->diff.sums_before[m] > 0 || table->diff.sums_after[m] > 0;
        table->measure = m;
        if (m != first && table->diff.taken[m] && is_anything)
            TRY(put_sum(table));
    }
    table->measure = first;
    return STATUS_OK;
}

static enum status put_head(struct table *table, const struct profile *before, const struct profile *after) {
    TRY(put_profile(table, "before  ", before));
    TRY(put_profile(table, "after   ", after));
    if (table->diff.scale < 0.999 || table->diff.scale > 1.001) {
        TRY(buffer_append_format(
            &table->row, "Figures of after are times %.4g, to the time that before was sampled (not so with --as-is).",
            table->diff.scale));
        put_row(table);
    }
    putc('\n', table->stream);
    return put_sums(table);
}

/* ------------------------------------------------------------------------------------------------ rows -------- */

struct ranked {
    uint64_t change;
    size_t row;
};

static int compare_ranked(const void *left, const void *right) {
    const struct ranked *a = left, *b = right;
    if (a->change != b->change)
        return a->change < b->change ? 1 : -1;
    return (a->row > b->row) - (a->row < b->row);
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static enum status append_line(struct table *table, const struct diff_row *row, struct buffer *text) {
    const char *source = NULL;
    size_t size_bytes = 0;
    TRY(buffer_append_format(text, "%s:%" PRId32 "  ", base_name(row->file), row->line));
    if (table->options->source != NULL &&
        source_line(table->options->source, row->file, row->line, &source, &size_bytes) == STATUS_OK)
        return buffer_append(text, source, size_bytes < 500 ? size_bytes : 500);
    return buffer_append_text(text, row->function);
}

static enum status append_function(const struct diff_row *row, struct buffer *text) {
    return buffer_append_format(text, "%s  %s", row->function, base_name(row->file));
}

static enum status put_one(struct table *table, const struct diff_row *row, bool is_line) {
    struct buffer text;
    buffer_init(&text, ROW_LIMIT_BYTES);
    enum status status = append_figures(table, row->self_before[table->measure], row->self_after[table->measure]);
    if (status == STATUS_OK)
        status = buffer_append_text(&table->row, "  ");
    if (status == STATUS_OK)
        status = is_line ? append_line(table, row, &text) : append_function(row, &text);
    if (status == STATUS_OK)
        status = cell_append_text(&table->row, buffer_text(&text), text.size_bytes, text_width(table));
    put_row(table);
    buffer_release(&text);
    return status;
}

static enum status put_rest(struct table *table, uint64_t before, uint64_t after, size_t count, const char *what) {
    TRY(append_figures(table, before, after));
    TRY(style(table, "2"));
    TRY(buffer_append_format(&table->row, "  in %zu more %s%s", count, what, count == 1 ? "" : "s"));
    TRY(style(table, "0"));
    put_row(table);
    return STATUS_OK;
}

static enum status put_rows(struct table *table, const struct diff_row *rows, size_t count, size_t most,
                            const char *what) {
    uint64_t before = 0, after = 0;
    size_t rest = 0;
    struct ranked *ranked = calloc(count + 1, sizeof ranked[0]);
    if (ranked == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < count; i++) {
        double change = diff_change(&rows[i], table->measure);
        ranked[i] = (struct ranked){(uint64_t)(change < 0 ? -change : change), i};
    }
    qsort(ranked, count, sizeof ranked[0], compare_ranked);
    enum status status = put_heads(table, what);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        const struct diff_row *row = &rows[ranked[i].row];
        if (i < most && (double)ranked[i].change * 1000 >= (double)whole(table) * CHANGE_SHARE) {
            status = put_one(table, row, row->line > 0);
        } else {
            before += row->self_before[table->measure];
            after += row->self_after[table->measure];
            rest += row->self_before[table->measure] > 0 || row->self_after[table->measure] > 0;
        }
    }
    if (status == STATUS_OK && rest > 0)
        status = put_rest(table, before, after, rest, what);
    free(ranked);
    return status;
}

static bool is_worth_a_look(const struct table *table) {
    for (size_t i = 0; i < table->diff.line_count; i++) {
        double change = diff_change(&table->diff.lines[i], table->measure);
        if ((change < 0 ? -change : change) * 1000 > (double)whole(table) * CHANGE_SHARE)
            return true;
    }
    return false;
}

/* Lines by what else there is, where it has changed. */
static enum status put_others(struct table *table, size_t lines) {
    static const enum measure others[] = {MEASURE_CPU_NS,     MEASURE_WAIT_NS,    MEASURE_ALLOC_BYTES,
                                          MEASURE_PEAK_BYTES, MEASURE_LIVE_BYTES, MEASURE_COPY_BYTES};
    enum measure first = table->measure;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        table->measure = others[i];
        if (others[i] != first && table->diff.taken[others[i]] && is_worth_a_look(table))
            TRY(put_rows(table, table->diff.lines, table->diff.line_count, lines, "line"));
    }
    return STATUS_OK;
}

static enum status put_tables(struct table *table, const struct profile *before, const struct profile *after) {
    size_t lines = table->options->lines > 0 ? table->options->lines : DEFAULT_LINES;
    TRY(put_head(table, before, after));
    TRY(put_rows(table, table->diff.lines, table->diff.line_count, lines, "line"));
    TRY(put_rows(table, table->diff.functions, table->diff.function_count, FUNCTION_ROWS, "function"));
    return table->options->measure == NULL ? put_others(table, lines) : STATUS_OK;
}

enum status diff_table_write(const struct profile *before, const struct profile *after,
                             const struct diff_table_options *options, FILE *stream, struct error *error) {
    struct table table = {.options = options, .stream = stream};
    TRY(diff_profiles(before, after, options->attribute, options->as_is, &table.diff, error));
    table.measure = options->measure != NULL ? *options->measure : main_measure(&table.diff);
    buffer_init(&table.row, ROW_LIMIT_BYTES);
    enum status status = put_tables(&table, before, after);
    buffer_release(&table.row);
    profile_diff_release(&table.diff);
    if (status != STATUS_OK)
        return error_set(error, status, "no memory left for the comparison");
    return ferror(stream) ? error_set(error, STATUS_FAILED, "the comparison could not be written") : STATUS_OK;
}
