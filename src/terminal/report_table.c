/* One pass for each table: files with their lines, functions, threads. What is too cheap to matter is summed up in a
 * line of its own, so that the figures still add up to the whole. */
#include "terminal/report_table.h"
#include "base/buffer.h"
#include "terminal/cells.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_LINES = 25,
    FUNCTION_ROWS = 15,
    THREAD_ROWS = 20,
    BAR_WIDTH = 10,
    EXTRA_WIDTH = 10,
    LINE_WIDTH = 6,
    MIN_SOURCE_WIDTH = 30,
    ROW_LIMIT_BYTES = 1 << 20,
    MAX_EXTRAS = 8
};

/* A line is worth a look from these shares on: of self, and of total. In thousandths. */
enum { LINE_SELF_SHARE = 5, LINE_TOTAL_SHARE = 10, FILE_SHARE = 5 };

/* Columns beside the main measure, in this order, where they were taken. */
static const struct {
    enum measure measure;
    const char *title;
} EXTRAS[] = {
    {MEASURE_CPU_NS, "cpu"},           {MEASURE_CPU_PYTHON_NS, "python"}, {MEASURE_CPU_NATIVE_NS, "native"},
    {MEASURE_CPU_KERNEL_NS, "kernel"}, {MEASURE_WAIT_NS, "wait"},         {MEASURE_GIL_WAIT_NS, "gil wait"},
    {MEASURE_ALLOC_BYTES, "alloc"},    {MEASURE_PEAK_BYTES, "peak"},      {MEASURE_LIVE_BYTES, "live"},
    {MEASURE_COPY_BYTES, "copied"},    {MEASURE_GPU_NS, "gpu"},           {MEASURE_GPU_BYTES, "gpu mem"},
};

struct file_rows {
    size_t begin; /* in the attribution's lines */
    size_t end;
    uint64_t self;
};

struct table {
    const struct profile *profile;
    const struct report_table_options *options;
    struct attribution attribution;
    enum measure main;
    enum measure extras[MAX_EXTRAS];
    const char *extra_titles[MAX_EXTRAS];
    size_t extra_count;
    bool has_bar;
    struct buffer row;
    FILE *stream;
};

/* ------------------------------------------------------------------------------------------------ output ------ */

static enum status style(struct table *table, const char *code) {
    return table->options->colour ? buffer_append_format(&table->row, "\033[%sm", code) : STATUS_OK;
}

static void put_row(struct table *table) {
    (void)fwrite(buffer_text(&table->row), 1, table->row.size_bytes, table->stream);
    putc('\n', table->stream);
    buffer_clear(&table->row);
}

static enum status append_title(struct table *table, const char *title, size_t width) {
    return buffer_append_format(&table->row, "%*s", (int)width, title);
}

/* The hotter, the redder. */
static const char *heat_style(uint64_t part, uint64_t whole) {
    double share = whole > 0 ? (double)part / (double)whole : 0;
    return share >= 0.2 ? "1;31" : share >= 0.05 ? "33" : "0";
}

static bool is_share(uint64_t part, uint64_t whole, unsigned thousandths) {
    return part > 0 && (double)part * 1000 >= (double)whole * thousandths;
}

/* ------------------------------------------------------------------------------------------------ columns ----- */

/* Self: amount, share, bar; total: share; then what else was taken. */
static size_t width_before_text(const struct table *table) {
    size_t width = CELL_AMOUNT_WIDTH + 1 + CELL_SHARE_WIDTH + 1 + CELL_SHARE_WIDTH + 1;
    return width + (table->has_bar ? BAR_WIDTH + 2 : 0) + table->extra_count * EXTRA_WIDTH;
}

/* Drops what a narrow terminal has no room for: first the bar, then the last extra columns. */
static void choose_columns(struct table *table) {
    size_t width = table->options->width;
    for (size_t i = 0; i < sizeof EXTRAS / sizeof EXTRAS[0] && table->extra_count < MAX_EXTRAS; i++) {
        if (EXTRAS[i].measure == table->main || !profile_has(table->profile, EXTRAS[i].measure))
            continue;
        table->extra_titles[table->extra_count] = EXTRAS[i].title;
        table->extras[table->extra_count++] = EXTRAS[i].measure;
    }
    table->has_bar = true;
    if (width == 0)
        return;
    if (width_before_text(table) + LINE_WIDTH + MIN_SOURCE_WIDTH > width)
        table->has_bar = false;
    while (table->extra_count > 0 && width_before_text(table) + LINE_WIDTH + MIN_SOURCE_WIDTH > width)
        table->extra_count--;
}

/* Room for the text behind `used` columns; 0: no limit. */
static size_t text_width(const struct table *table, size_t used) {
    size_t width = table->options->width;
    if (width == 0)
        return 0;
    return width > used + 1 ? width - used : 1;
}

static enum status append_heads(struct table *table) {
    TRY(append_title(table, measure_unit(table->main) == UNIT_NS ? measure_name(table->main) : "self",
                     CELL_AMOUNT_WIDTH));
    TRY(append_title(table, "self", CELL_SHARE_WIDTH + 1));
    if (table->has_bar)
        TRY(append_title(table, "", BAR_WIDTH + 2));
    TRY(append_title(table, "total", CELL_SHARE_WIDTH + 1));
    for (size_t i = 0; i < table->extra_count; i++)
        TRY(append_title(table, table->extra_titles[i], EXTRA_WIDTH));
    return STATUS_OK;
}

static enum status append_figures(struct table *table, const uint64_t *self, const uint64_t *total) {
    struct buffer *row = &table->row;
    uint64_t whole = table->attribution.sums[table->main];
    TRY(style(table, heat_style(self[table->main], whole)));
    TRY(cell_append_amount(row, self[table->main], measure_unit(table->main), CELL_AMOUNT_WIDTH));
    TRY(buffer_append_char(row, ' '));
    TRY(cell_append_share(row, self[table->main], whole));
    if (table->has_bar) {
        TRY(buffer_append_text(row, "  "));
        TRY(cell_append_bar(row, self[table->main], whole, BAR_WIDTH));
    }
    TRY(style(table, "0"));
    TRY(buffer_append_char(row, ' '));
    TRY(cell_append_share(row, total[table->main], whole));
    for (size_t i = 0; i < table->extra_count; i++) {
        TRY(buffer_append_char(row, ' '));
        TRY(cell_append_amount(row, self[table->extras[i]], measure_unit(table->extras[i]), EXTRA_WIDTH - 1));
    }
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------------------ head -------- */

static enum status append_command(struct table *table, const struct profile_process *process) {
    struct buffer command;
    enum status status = STATUS_OK;
    buffer_init(&command, ROW_LIMIT_BYTES);
    for (size_t i = 0; i < process->command_count && status == STATUS_OK; i++) {
        status = buffer_append_text(&command, process->command[i]);
        if (status == STATUS_OK && i + 1 < process->command_count)
            status = buffer_append_char(&command, ' ');
    }
    if (status == STATUS_OK)
        status = cell_append_text(&table->row, buffer_text(&command), command.size_bytes,
                                  table->options->width > 0 ? table->options->width : 0);
    buffer_release(&command);
    return status;
}

static enum status put_head(struct table *table) {
    const struct profile *profile = table->profile;
    if (profile->process_count == 0)
        return STATUS_OK;
    const struct profile_process *process = &profile->processes[0];
    uint32_t version = process->python_version;
    TRY(style(table, "1"));
    TRY(append_command(table, process));
    TRY(style(table, "0"));
    put_row(table);
    TRY(buffer_append_format(&table->row, "process %" PRId32, process->pid));
    if (profile->process_count > 1)
        TRY(buffer_append_format(&table->row, " and %zu more", profile->process_count - 1));
    if (version != 0)
        TRY(buffer_append_format(&table->row, ", Python %u.%u%s", version >> 24, version >> 16 & 0xff,
                                 process->free_threaded ? " free-threaded" : ""));
    TRY(buffer_append_format(&table->row, ", %" PRIu64 ".%" PRIu64 " s", profile->elapsed_ns / 1000000000,
                             profile->elapsed_ns / 100000000 % 10));
    if (process->rate_hz > 0)
        TRY(buffer_append_format(&table->row, " at %.0f Hz", process->rate_hz));
    put_row(table);
    return STATUS_OK;
}

static enum status append_counter(struct table *table, uint64_t count, const char *what, bool is_bad) {
    TRY(style(table, is_bad && count > 0 ? "33" : "0"));
    TRY(cell_append_count(&table->row, count));
    TRY(buffer_append_text(&table->row, what));
    return style(table, "0");
}

/* How far the figures may be trusted. */
static enum status put_honesty(struct table *table) {
    const struct capture_counters *counters = &table->profile->counters;
    const struct capture_damage *damage = &table->profile->damage;
    TRY(buffer_append_text(&table->row, "samples: "));
    TRY(append_counter(table, counters->taken, " taken, ", false));
    TRY(append_counter(table, counters->missed, " missed, ", true));
    TRY(append_counter(table, counters->inconsistent, " inconsistent, ", true));
    TRY(append_counter(table, counters->errors, " failed", true));
    put_row(table);
    if (damage->lost_bytes > 0 || damage->lost_chunks > 0 || damage->lost_records > 0 || !damage->ended) {
        TRY(style(table, "33"));
        TRY(buffer_append_text(&table->row, damage->ended
                                                ? "The capture is damaged: this is what could be read of it."
                                                : "The capture has no end: strobe was cut off, or the file was."));
        TRY(style(table, "0"));
        put_row(table);
    }
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------------------ lines ------- */

static enum status append_source(struct table *table, const struct attribute_row *row, size_t width) {
    const char *text;
    size_t size_bytes;
    if (table->options->source != NULL &&
        source_line(table->options->source, row->file, row->line, &text, &size_bytes) == STATUS_OK)
        return cell_append_text(&table->row, text, size_bytes, width);
    /* Without the source, at least the function. */
    const char *name = row->qualname[0] != '\0' ? row->qualname : row->function;
    TRY(style(table, "2"));
    TRY(cell_append_text(&table->row, name, strlen(name), width));
    return style(table, "0");
}

static enum status put_line(struct table *table, const struct attribute_row *row) {
    TRY(append_figures(table, row->self, row->total));
    TRY(style(table, "2"));
    if (row->line > 0)
        TRY(buffer_append_format(&table->row, " %*" PRId32, LINE_WIDTH - 1, row->line));
    else
        TRY(buffer_append_format(&table->row, " %*s", LINE_WIDTH - 1, "?"));
    TRY(style(table, "0"));
    TRY(buffer_append_char(&table->row, ' '));
    TRY(append_source(table, row, text_width(table, width_before_text(table) + LINE_WIDTH + 1)));
    put_row(table);
    return STATUS_OK;
}

/* Marks the lines of a file that are shown: the most expensive of those worth a look. Returns how many are not. */
struct ranked {
    uint64_t self;
    uint64_t total;
    size_t line;
};

static int compare_ranked(const void *left, const void *right) {
    const struct ranked *a = left;
    const struct ranked *b = right;
    if (a->self != b->self)
        return a->self < b->self ? 1 : -1;
    if (a->total != b->total)
        return a->total < b->total ? 1 : -1;
    return (a->line > b->line) - (a->line < b->line);
}

static enum status choose_lines(struct table *table, const struct file_rows *file, bool *shown) {
    size_t count = 0;
    size_t most = table->options->lines > 0 ? table->options->lines : DEFAULT_LINES;
    uint64_t whole = table->attribution.sums[table->main];
    struct ranked *ranked = calloc(file->end - file->begin + 1, sizeof ranked[0]);
    if (ranked == NULL)
        return STATUS_FAILED;
    for (size_t i = file->begin; i < file->end; i++) {
        const struct attribute_row *row = &table->attribution.lines[i];
        uint64_t self = row->self[table->main], total = row->total[table->main];
        bool is_worth = table->options->lines > 0 || is_share(self, whole, LINE_SELF_SHARE) ||
                        is_share(total, whole, LINE_TOTAL_SHARE);
        if (is_worth)
            ranked[count++] = (struct ranked){self, total, i};
    }
    qsort(ranked, count, sizeof ranked[0], compare_ranked);
    for (size_t i = 0; i < count && i < most; i++)
        shown[ranked[i].line - file->begin] = true;
    free(ranked);
    return STATUS_OK;
}

static enum status put_rest(struct table *table, uint64_t self, size_t count, const char *what) {
    TRY(cell_append_amount(&table->row, self, measure_unit(table->main), CELL_AMOUNT_WIDTH));
    TRY(buffer_append_char(&table->row, ' '));
    TRY(cell_append_share(&table->row, self, table->attribution.sums[table->main]));
    TRY(style(table, "2"));
    TRY(buffer_append_format(&table->row, "  in %zu more %s%s", count, what, count == 1 ? "" : "s"));
    TRY(style(table, "0"));
    put_row(table);
    return STATUS_OK;
}

static enum status put_lines(struct table *table, const struct file_rows *file, const bool *shown) {
    uint64_t rest = 0;
    size_t rest_count = 0;
    for (size_t i = file->begin; i < file->end; i++) {
        const struct attribute_row *row = &table->attribution.lines[i];
        if (shown[i - file->begin]) {
            TRY(put_line(table, row));
        } else {
            rest += row->self[table->main];
            rest_count++;
        }
    }
    return rest_count > 0 && rest > 0 ? put_rest(table, rest, rest_count, "line") : STATUS_OK;
}

static enum status put_file(struct table *table, const struct file_rows *file) {
    const char *path = table->attribution.lines[file->begin].file;
    bool *shown = calloc(file->end - file->begin + 1, sizeof shown[0]);
    if (shown == NULL)
        return STATUS_FAILED;
    putc('\n', table->stream);
    enum status status = style(table, "1");
    if (status == STATUS_OK)
        status =
            cell_append_text(&table->row, path[0] != '\0' ? path : "<no file>", strlen(path), text_width(table, 0));
    if (status == STATUS_OK)
        status = style(table, "0");
    put_row(table);
    if (status == STATUS_OK)
        status = append_heads(table);
    if (status == STATUS_OK)
        status = append_title(table, "line", LINE_WIDTH);
    put_row(table);
    if (status == STATUS_OK)
        status = choose_lines(table, file, shown);
    if (status == STATUS_OK)
        status = put_lines(table, file, shown);
    free(shown);
    return status;
}

static int compare_files(const void *left, const void *right) {
    const struct file_rows *a = left;
    const struct file_rows *b = right;
    if (a->self != b->self)
        return a->self < b->self ? 1 : -1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* The attribution's lines are sorted by file. */
static size_t find_files(const struct table *table, struct file_rows *files) {
    const struct attribution *attribution = &table->attribution;
    size_t count = 0;
    for (size_t i = 0; i < attribution->line_count; i++) {
        if (i == 0 || strcmp(attribution->lines[i].file, attribution->lines[i - 1].file) != 0)
            files[count++] = (struct file_rows){.begin = i};
        files[count - 1].end = i + 1;
        files[count - 1].self += attribution->lines[i].self[table->main];
    }
    qsort(files, count, sizeof files[0], compare_files);
    return count;
}

static enum status put_files(struct table *table) {
    uint64_t whole = table->attribution.sums[table->main];
    uint64_t rest = 0;
    size_t rest_count = 0;
    struct file_rows *files = calloc(table->attribution.line_count + 1, sizeof files[0]);
    if (files == NULL)
        return STATUS_FAILED;
    size_t count = find_files(table, files);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        if (i == 0 || is_share(files[i].self, whole, FILE_SHARE)) {
            status = put_file(table, &files[i]);
        } else {
            rest += files[i].self;
            rest_count++;
        }
    }
    free(files);
    if (status != STATUS_OK || rest_count == 0)
        return status;
    putc('\n', table->stream);
    return put_rest(table, rest, rest_count, "file");
}

/* ------------------------------------------------------------------------------------------------ functions --- */

static enum status put_function(struct table *table, const struct attribute_row *row) {
    const char *name = row->qualname[0] != '\0' ? row->qualname : row->function;
    const char *base = strrchr(row->file, '/');
    struct buffer text;
    buffer_init(&text, ROW_LIMIT_BYTES);
    enum status status = append_figures(table, row->self, row->total);
    if (status == STATUS_OK)
        status = buffer_append_format(&text, "%s  %s", name, base != NULL ? base + 1 : row->file);
    if (status == STATUS_OK && row->first_line > 0)
        status = buffer_append_format(&text, ":%" PRId32, row->first_line);
    if (status == STATUS_OK)
        status = buffer_append_text(&table->row, "  ");
    if (status == STATUS_OK)
        status = cell_append_text(&table->row, buffer_text(&text), text.size_bytes,
                                  text_width(table, width_before_text(table) + 2));
    put_row(table);
    buffer_release(&text);
    return status;
}

static enum status rank_functions(const struct table *table, struct ranked *ranked, size_t *count) {
    *count = 0;
    for (size_t i = 0; i < table->attribution.function_count; i++) {
        const struct attribute_row *row = &table->attribution.functions[i];
        if (row->self[table->main] > 0 || row->total[table->main] > 0)
            ranked[(*count)++] = (struct ranked){row->self[table->main], row->total[table->main], i};
    }
    qsort(ranked, *count, sizeof ranked[0], compare_ranked);
    return STATUS_OK;
}

static enum status put_functions(struct table *table) {
    size_t count;
    uint64_t rest = 0;
    struct ranked *ranked = calloc(table->attribution.function_count + 1, sizeof ranked[0]);
    if (ranked == NULL)
        return STATUS_FAILED;
    enum status status = rank_functions(table, ranked, &count);
    if (count > 0) {
        putc('\n', table->stream);
        status = append_heads(table);
        if (status == STATUS_OK)
            status = buffer_append_text(&table->row, "  function");
        put_row(table);
    }
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        if (i < FUNCTION_ROWS)
            status = put_function(table, &table->attribution.functions[ranked[i].line]);
        else
            rest += ranked[i].self;
    }
    if (status == STATUS_OK && count > FUNCTION_ROWS && rest > 0)
        status = put_rest(table, rest, count - FUNCTION_ROWS, "function");
    free(ranked);
    return status;
}

/* ------------------------------------------------------------------------------------------------ threads ----- */

static enum status put_thread(struct table *table, size_t index) {
    const struct profile_thread *thread = &table->profile->threads[index];
    const uint64_t *sums = table->attribution.threads[index];
    const char *name = thread->name[0] != '\0' ? thread->name : "?";
    TRY(append_figures(table, sums, (const uint64_t[MEASURE_COUNT]){0}));
    TRY(buffer_append_text(&table->row, "  "));
    if (table->profile->process_count > 1)
        TRY(buffer_append_format(&table->row, "[%" PRId32 "] ", table->profile->processes[thread->process].pid));
    TRY(cell_append_text(&table->row, name, strlen(name), text_width(table, width_before_text(table) + 22)));
    TRY(buffer_append_format(&table->row, " (%" PRIu64 ")",
                             thread->native_id != 0 ? thread->native_id : thread->thread_id));
    put_row(table);
    return STATUS_OK;
}

static enum status put_threads(struct table *table) {
    size_t count = table->profile->thread_count;
    uint64_t rest = 0;
    if (count < 2)
        return STATUS_OK;
    struct ranked *ranked = calloc(count, sizeof ranked[0]);
    if (ranked == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < count; i++)
        ranked[i] = (struct ranked){table->attribution.threads[i][table->main], 0, i};
    qsort(ranked, count, sizeof ranked[0], compare_ranked);
    putc('\n', table->stream);
    enum status status = append_heads(table);
    if (status == STATUS_OK)
        status = buffer_append_text(&table->row, "  thread");
    put_row(table);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        if (i < THREAD_ROWS)
            status = put_thread(table, ranked[i].line);
        else
            rest += ranked[i].self;
    }
    if (status == STATUS_OK && count > THREAD_ROWS)
        status = put_rest(table, rest, count - THREAD_ROWS, "thread");
    free(ranked);
    return status;
}

/* What only and exclude left nothing of, and threads without any frame: said, so that nothing is missing unsaid. */
static enum status put_left_out(struct table *table) {
    uint64_t left_out = table->attribution.left_out[table->main];
    if (left_out == 0)
        return STATUS_OK;
    putc('\n', table->stream);
    TRY(cell_append_amount(&table->row, left_out, measure_unit(table->main), CELL_AMOUNT_WIDTH));
    TRY(buffer_append_text(&table->row, " left out: no frame to charge it to"));
    put_row(table);
    return STATUS_OK;
}

static enum status put_tables(struct table *table) {
    TRY(put_head(table));
    TRY(put_honesty(table));
    if (table->attribution.line_count == 0) {
        TRY(buffer_append_text(&table->row, "nothing was measured"));
        put_row(table);
        return put_left_out(table);
    }
    TRY(put_files(table));
    TRY(put_functions(table));
    TRY(put_threads(table));
    return put_left_out(table);
}

enum status report_table_write(const struct profile *profile, const struct report_table_options *options, FILE *stream,
                               struct error *error) {
    struct table table = {
        .profile = profile, .options = options, .main = profile_main_measure(profile), .stream = stream};
    TRY(attribute_profile(profile, options->attribute, &table.attribution, error));
    buffer_init(&table.row, ROW_LIMIT_BYTES);
    choose_columns(&table);
    enum status status = put_tables(&table);
    buffer_release(&table.row);
    attribution_release(&table.attribution);
    if (status != STATUS_OK)
        return error_set(error, status, "no memory left for the report");
    return ferror(stream) ? error_set(error, STATUS_FAILED, "the report could not be written") : STATUS_OK;
}
