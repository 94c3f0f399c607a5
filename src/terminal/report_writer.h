/* What the parts of the report's table share. Private to the report.
 *
 * A report is a few tables with the same columns. Which columns there are, how wide they are and which give way on a
 * narrow terminal is data: the rules in report_columns.c. */
#ifndef STROBE_TERMINAL_REPORT_WRITER_H
#define STROBE_TERMINAL_REPORT_WRITER_H

#include "base/buffer.h"
#include "terminal/python_syntax.h"
#include "terminal/report_table.h"

enum column_kind {
    COLUMN_AMOUNT, /* self, in its unit */
    COLUMN_SHARE,  /* self, in per cent of the whole, with a decimal */
    COLUMN_PART,   /* self of a part of the main measure, in whole per cent of the main measure's whole */
    COLUMN_BAR,    /* the main measure's self, divided into its parts where these are known */
    COLUMN_TOTAL,  /* total, in per cent of the whole */
    COLUMN_RATE,   /* self, bytes for each second of the whole time */
};

struct column {
    enum column_kind kind;
    enum measure measure;
    const char *title;
    size_t width;  /* with the blanks before it */
    unsigned keep; /* on a narrow terminal the columns with the lowest number go first, all of them at once */
};

enum { REPORT_MAX_COLUMNS = 20, REPORT_LINE_WIDTH = 6, REPORT_ROW_LIMIT_BYTES = 1 << 22, REPORT_COMMAND_BYTES = 4096 };

struct report_writer {
    const struct profile *profile;
    const struct report_table_options *options;
    struct attribution attribution;
    int64_t thread;        /* index of the only thread that is shown, or ATTRIBUTE_ANY */
    uint64_t lost_records; /* of memory, in all processes */
    enum measure main;
    bool has_parts; /* the main measure is CPU time, and its parts are known */
    struct column columns[REPORT_MAX_COLUMNS];
    size_t column_count;
    struct buffer row;
    struct buffer scratch;
    FILE *stream;
    /* Where the tokenizer of source text stands: before line syntax_line of syntax_file. */
    const char *syntax_file;
    int32_t syntax_line;
    struct syntax_state syntax;
};

/* What a row shows of total beside self. */
enum report_total {
    REPORT_TOTAL_NONE,
    REPORT_TOTAL_IF_IT_DIFFERS, /* much from self */
    REPORT_TOTAL_ALWAYS,
};

/* A part of the CPU time, as bars and the head show it. */
struct report_part {
    enum measure measure;
    const char *name;
    const char *glyph; /* of a bar without colours */
    const char *colour;
};
enum { REPORT_PARTS = 3 };
extern const struct report_part report_parts[REPORT_PARTS];

/* Which columns there are, and on this terminal. */
void report_choose_columns(struct report_writer *writer);
bool report_has_column(const struct report_writer *writer, enum column_kind kind);
size_t report_width_before_text(const struct report_writer *writer);
/* Room for text behind `used` columns; 0: no limit. */
size_t report_text_width(const struct report_writer *writer, size_t used);
enum status report_append_heads(struct report_writer *writer) MUST_USE;
enum status report_append_figures(struct report_writer *writer, const uint64_t *self, const uint64_t *total,
                                  enum report_total how) MUST_USE;

/* Switches to a Select Graphic Rendition, if there are to be colours; "0" ends it. */
enum status report_style(struct report_writer *writer, const char *code) MUST_USE;
/* Text in such a style. */
enum status report_append_styled(struct report_writer *writer, const char *code, const char *text) MUST_USE;
/* Ends the row: it goes out without the blanks at its end. */
void report_put_row(struct report_writer *writer);
/* "  12.3 ms   4.5%  in 7 more lines". */
enum status report_put_rest(struct report_writer *writer, uint64_t self, size_t count, const char *what) MUST_USE;
/* Whether a part is at least so many thousandths of the whole. */
bool report_is_share(uint64_t part, uint64_t whole, unsigned thousandths);
/* A path's last part. */
const char *report_base_name(const char *path);

/* Rows by their cost. */
struct ranked {
    double score;
    uint64_t total;
    size_t index;
};
/* Highest score first, then highest total, then lowest index. */
void report_rank(struct ranked *ranked, size_t count);

/* The tables. */
enum status report_put_files(struct report_writer *writer) MUST_USE;
enum status report_put_functions(struct report_writer *writer) MUST_USE;
enum status report_put_natives(struct report_writer *writer) MUST_USE;
enum status report_put_threads(struct report_writer *writer) MUST_USE;
enum status report_put_processes(struct report_writer *writer) MUST_USE;

#endif
