/* The files that matter, and the lines in them. */
#include "terminal/cells.h"
#include "terminal/report_writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_LINES = 25, MAX_NATIVES_OF_LINE = 3, SYNTAX_STYLES = SYNTAX_NAME + 1 };

/* A line is worth a look from these shares on: of the main measure's self and total, and of what else it may cost. In
 * thousandths. */
enum { LINE_SELF_SHARE = 5, LINE_TOTAL_SHARE = 10, FILE_SHARE = 5, NATIVE_SHARE = 10 };
static const struct {
    enum measure measure;
    unsigned thousandths;
} ELSE_WORTH[] = {
    {MEASURE_WAIT_NS, 20},    {MEASURE_GIL_WAIT_NS, 50}, {MEASURE_ALLOC_BYTES, 20}, {MEASURE_PEAK_BYTES, 10},
    {MEASURE_LIVE_BYTES, 20}, {MEASURE_COPY_BYTES, 50},  {MEASURE_GPU_NS, 5},       {MEASURE_GPU_BYTES, 20},
};

struct file_rows {
    size_t begin; /* in the attribution's lines */
    size_t end;
    uint64_t self;
    bool is_worth; /* a line in it is */
};

/* ------------------------------------------------------------------------------------------------ worth ------- */

/* How much a line matters: its largest share of anything; what is not the main measure counts half. 0: not worth a
 * look. Waiting is what library threads do when there is nothing to do. */
static double score_of(const struct report_writer *writer, const struct attribute_row *row) {
    const uint64_t *sums = writer->attribution.sums;
    uint64_t self = row->self[writer->main], whole = sums[writer->main];
    bool is_worth =
        report_is_share(self, whole, LINE_SELF_SHARE) ||
        (report_is_share(row->total[writer->main], whole, LINE_TOTAL_SHARE) && report_has_column(writer, COLUMN_TOTAL));
    double score = whole > 0 ? (double)self / (double)whole : 0;
    for (size_t i = 0;
         i < sizeof ELSE_WORTH / sizeof ELSE_WORTH[0] && writer->main == MEASURE_CPU_NS && !row->is_library; i++) {
        enum measure measure = ELSE_WORTH[i].measure;
        if (!report_is_share(row->self[measure], sums[measure], ELSE_WORTH[i].thousandths))
            continue;
        double share = (double)row->self[measure] / (double)sums[measure] / 2;
        score = share > score ? share : score;
        is_worth = true;
    }
    return is_worth ? score + 1e-9 : 0;
}

static int compare_ranked(const void *left, const void *right) {
    const struct ranked *a = left;
    const struct ranked *b = right;
    if (a->score < b->score || a->score > b->score)
        return a->score < b->score ? 1 : -1;
    if (a->total != b->total)
        return a->total < b->total ? 1 : -1;
    return (a->index > b->index) - (a->index < b->index);
}

void report_rank(struct ranked *ranked, size_t count) {
    qsort(ranked, count, sizeof ranked[0], compare_ranked);
}

/* Marks the lines of a file that are shown: the most expensive of those worth a look, or as many as are asked for. */
static enum status choose_lines(struct report_writer *writer, const struct file_rows *file, bool *shown) {
    size_t count = 0;
    size_t most = writer->options->lines > 0 ? writer->options->lines : DEFAULT_LINES;
    struct ranked *ranked = calloc(file->end - file->begin + 1, sizeof ranked[0]);
    if (ranked == NULL)
        return STATUS_FAILED;
    for (size_t i = file->begin; i < file->end; i++) {
        const struct attribute_row *row = &writer->attribution.lines[i];
        double score = score_of(writer, row);
        if (score > 0 || writer->options->lines > 0)
            ranked[count++] = (struct ranked){score, row->total[writer->main], i};
    }
    report_rank(ranked, count);
    for (size_t i = 0; i < count && i < most; i++)
        shown[ranked[i].index - file->begin] = true;
    free(ranked);
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------------------ source ------ */

/* Reads on in the file to the line, so that strings over several lines are known for what they are. */
static void move_syntax(struct report_writer *writer, const char *file, int32_t line) {
    const char *text;
    size_t size_bytes;
    if (writer->syntax_file != file || writer->syntax_line > line) {
        writer->syntax_file = file;
        writer->syntax_line = 1;
        writer->syntax = (struct syntax_state){0};
    }
    for (; writer->syntax_line < line; writer->syntax_line++) {
        enum syntax_kind kind;
        if (source_line(writer->options->source, file, writer->syntax_line, &text, &size_bytes) != STATUS_OK)
            continue;
        for (size_t at = 0; at < size_bytes;)
            at += syntax_next(&writer->syntax, text + at, size_bytes - at, false, &kind);
        syntax_end_line(&writer->syntax, text, size_bytes);
    }
}

/* The tokenizer gets the text as it is shown: what is cut off or made safe changes no colours that are seen. */
static enum status append_coloured(struct report_writer *writer, const char *text, size_t size_bytes) {
    static const char *const STYLES[SYNTAX_STYLES] = {
        [SYNTAX_PLAIN] = "0",   [SYNTAX_KEYWORD] = "1;34", [SYNTAX_STRING] = "32",
        [SYNTAX_COMMENT] = "2", [SYNTAX_NUMBER] = "36",    [SYNTAX_NAME] = "1"};
    struct syntax_state state = writer->syntax;
    enum syntax_kind last = SYNTAX_PLAIN, kind;
    bool is_start = true;
    if (size_bytes == 0)
        return STATUS_OK;
    for (size_t at = 0; at < size_bytes;) {
        size_t length = syntax_next(&state, text + at, size_bytes - at, is_start, &kind);
        bool is_blank = text[at] == ' ';
        if (kind != last && !is_blank) {
            TRY(report_style(writer, "0"));
            if (kind != SYNTAX_PLAIN)
                TRY(report_style(writer, STYLES[kind]));
            last = kind;
        }
        TRY(buffer_append(&writer->row, text + at, length));
        is_start = is_start && is_blank;
        at += length;
    }
    return report_style(writer, "0");
}

static enum status append_source(struct report_writer *writer, const struct attribute_row *row, size_t width) {
    const char *text;
    size_t size_bytes;
    if (writer->options->source == NULL ||
        source_line(writer->options->source, row->file, row->line, &text, &size_bytes) != STATUS_OK) {
        /* Without the source, at least the function. */
        const char *name = row->qualname[0] != '\0' ? row->qualname : row->function;
        TRY(report_style(writer, "2"));
        TRY(cell_append_text(&writer->row, name, strlen(name), width));
        return report_style(writer, "0");
    }
    if (!writer->options->colour)
        return cell_append_text(&writer->row, text, size_bytes, width);
    buffer_clear(&writer->scratch);
    TRY(cell_append_text(&writer->scratch, text, size_bytes, width));
    move_syntax(writer, row->file, row->line);
    return append_coloured(writer, buffer_text(&writer->scratch), writer->scratch.size_bytes);
}

/* ------------------------------------------------------------------------------------------------ rows -------- */

/* "deflate (libz.so.1) 26%, crc32 (libz.so.1) 3%" into scratch: the native functions that a line's time went to. */
static enum status name_natives_of(struct report_writer *writer, const struct attribute_row *row) {
    uint64_t whole = writer->attribution.sums[writer->main];
    size_t count = 0, shown = 0;
    const struct attribute_native *natives = attribution_natives_of(&writer->attribution, row->file, row->line, &count);
    struct ranked *ranked = calloc(count + 1, sizeof ranked[0]);
    if (ranked == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < count; i++)
        ranked[i] = (struct ranked){(double)natives[i].self[writer->main], 0, i};
    report_rank(ranked, count);
    buffer_clear(&writer->scratch);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < count && shown < MAX_NATIVES_OF_LINE && status == STATUS_OK; i++) {
        const struct attribute_native *native = &natives[ranked[i].index];
        uint64_t self = native->self[writer->main];
        if (!report_is_share(self, whole, NATIVE_SHARE))
            break;
        bool is_named = native->function[0] != '\0';
        status = buffer_append_format(&writer->scratch, "%s%s%s%s%s ", shown++ == 0 ? "" : ", ", native->function,
                                      is_named ? " (" : "", report_base_name(native->library), is_named ? ")" : "");
        if (status == STATUS_OK)
            status = cell_append_percent(&writer->scratch, self, whole, 0);
    }
    free(ranked);
    return status;
}

/* Below a line. */
static enum status put_natives_of(struct report_writer *writer, const struct attribute_row *row, size_t used) {
    TRY(name_natives_of(writer, row));
    if (writer->scratch.size_bytes == 0)
        return STATUS_OK;
    TRY(buffer_append_format(&writer->row, "%*s", (int)used, ""));
    TRY(report_style(writer, "2;33"));
    TRY(buffer_append_text(&writer->row, "└ "));
    TRY(cell_append_text(&writer->row, buffer_text(&writer->scratch), writer->scratch.size_bytes,
                         report_text_width(writer, used + 2)));
    TRY(report_style(writer, "0"));
    report_put_row(writer);
    return STATUS_OK;
}

/* No Python function called it: a thread of a native library, or the interpreter before and after the program. There
 * is no line, only functions. */
static enum status put_native_line(struct report_writer *writer, const struct attribute_row *row, size_t used) {
    static const char words[] = "(outside of any Python function)";
    TRY(buffer_append_format(&writer->row, "%*s", REPORT_LINE_WIDTH + 1, ""));
    TRY(cell_append_text(&writer->row, words, strlen(words), report_text_width(writer, used)));
    report_put_row(writer);
    return put_natives_of(writer, row, used);
}

static enum status put_line(struct report_writer *writer, const struct attribute_row *row) {
    size_t used = report_width_before_text(writer) + REPORT_LINE_WIDTH + 1;
    TRY(report_append_figures(writer, row->self, row->total,
                              writer->has_parts ? REPORT_TOTAL_IF_IT_DIFFERS : REPORT_TOTAL_ALWAYS));
    if (row->is_native)
        return put_native_line(writer, row, used);
    TRY(report_style(writer, "2"));
    if (row->line > 0)
        TRY(buffer_append_format(&writer->row, " %*" PRId32, REPORT_LINE_WIDTH - 1, row->line));
    else
        TRY(buffer_append_format(&writer->row, " %*s", REPORT_LINE_WIDTH - 1, "?"));
    TRY(report_style(writer, "0"));
    TRY(buffer_append_char(&writer->row, ' '));
    TRY(append_source(writer, row, report_text_width(writer, used)));
    report_put_row(writer);
    return put_natives_of(writer, row, used);
}

static enum status put_lines(struct report_writer *writer, const struct file_rows *file, const bool *shown) {
    uint64_t rest = 0;
    size_t rest_count = 0;
    for (size_t i = file->begin; i < file->end; i++) {
        const struct attribute_row *row = &writer->attribution.lines[i];
        if (shown[i - file->begin]) {
            TRY(put_line(writer, row));
        } else {
            rest += row->self[writer->main];
            rest_count += row->self[writer->main] > 0;
        }
    }
    return rest > 0 ? report_put_rest(writer, rest, rest_count, "line") : STATUS_OK;
}

/* "/a/b.py   96.3%  2.801 s" */
static enum status put_file_head(struct report_writer *writer, const struct file_rows *file) {
    const char *path = writer->attribution.lines[file->begin].file;
    size_t figures = 2 + CELL_SHARE_WIDTH + 2 + CELL_AMOUNT_WIDTH;
    putc('\n', writer->stream);
    TRY(report_style(writer, "1"));
    TRY(cell_append_path(&writer->row, path[0] != '\0' ? path : "<no file>", report_text_width(writer, figures)));
    TRY(report_style(writer, "0"));
    if (file->self > 0) {
        TRY(buffer_append_text(&writer->row, "  "));
        TRY(cell_append_share(&writer->row, file->self, writer->attribution.sums[writer->main]));
        TRY(buffer_append_text(&writer->row, "  "));
        TRY(cell_append_amount(&writer->row, file->self, measure_unit(writer->main), 0));
    }
    report_put_row(writer);
    TRY(report_append_heads(writer));
    TRY(buffer_append_format(&writer->row, "%*s", REPORT_LINE_WIDTH, "line"));
    report_put_row(writer);
    return STATUS_OK;
}

static enum status put_file(struct report_writer *writer, const struct file_rows *file) {
    bool *shown = calloc(file->end - file->begin + 1, sizeof shown[0]);
    if (shown == NULL)
        return STATUS_FAILED;
    enum status status = put_file_head(writer, file);
    if (status == STATUS_OK)
        status = choose_lines(writer, file, shown);
    if (status == STATUS_OK)
        status = put_lines(writer, file, shown);
    free(shown);
    return status;
}

/* ------------------------------------------------------------------------------------------------ files ------- */

static int compare_files(const void *left, const void *right) {
    const struct file_rows *a = left;
    const struct file_rows *b = right;
    if (a->self != b->self)
        return a->self < b->self ? 1 : -1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* The attribution's lines are sorted by file. */
static size_t find_files(const struct report_writer *writer, struct file_rows *files) {
    const struct attribution *attribution = &writer->attribution;
    size_t count = 0;
    for (size_t i = 0; i < attribution->line_count; i++) {
        const struct attribute_row *row = &attribution->lines[i];
        if (i == 0 || strcmp(row->file, row[-1].file) != 0)
            files[count++] = (struct file_rows){.begin = i};
        files[count - 1].end = i + 1;
        files[count - 1].self += row->self[writer->main];
        files[count - 1].is_worth =
            files[count - 1].is_worth || (writer->has_parts && !row->is_library && score_of(writer, row) > 0);
    }
    qsort(files, count, sizeof files[0], compare_files);
    return count;
}

enum status report_put_files(struct report_writer *writer) {
    uint64_t whole = writer->attribution.sums[writer->main];
    uint64_t rest = 0;
    size_t rest_count = 0;
    struct file_rows *files = calloc(writer->attribution.line_count + 1, sizeof files[0]);
    if (files == NULL)
        return STATUS_FAILED;
    size_t count = find_files(writer, files);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        if (i == 0 || files[i].is_worth || report_is_share(files[i].self, whole, FILE_SHARE)) {
            status = put_file(writer, &files[i]);
        } else {
            rest += files[i].self;
            rest_count += files[i].self > 0;
        }
    }
    free(files);
    if (status != STATUS_OK || rest == 0)
        return status;
    putc('\n', writer->stream);
    return report_put_rest(writer, rest, rest_count, "file");
}
