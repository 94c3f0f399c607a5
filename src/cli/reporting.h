/* From captures to a report: what `attach` and `report` have in common. */
#ifndef STROBE_CLI_REPORTING_H
#define STROBE_CLI_REPORTING_H

#include "export/export.h"

#include <stdbool.h>

enum { REPORT_MAX_GLOBS = 64 };

struct report_options {
    const struct export_format *format; /* NULL: the table */
    bool wants_table;                   /* whatever the output is called */
    const char *output;                 /* NULL: standard output */
    bool to_stderr;                     /* NULL is standard error, which the program sampled writes to as well */
    bool all;                           /* library code stands for itself */
    bool idle;                          /* count the time in which threads did not run, too */
    const char *only[REPORT_MAX_GLOBS];
    size_t only_count;
    const char *exclude[REPORT_MAX_GLOBS];
    size_t exclude_count;
    size_t lines; /* of a file in the table; 0: as many as are worth a look */
    bool threads; /* each thread by itself */
    bool has_measure;
    enum measure measure; /* for the formats that show one; else they show the main one */
};

/* The long options that both commands have, for getopt_long; their values begin at REPORT_OPTION_FIRST. */
enum report_option {
    REPORT_OPTION_FIRST = 1000,
    REPORT_OPTION_ALL = REPORT_OPTION_FIRST,
    REPORT_OPTION_IDLE,
    REPORT_OPTION_ONLY,
    REPORT_OPTION_EXCLUDE,
    REPORT_OPTION_LINES,
    REPORT_OPTION_MEASURE,
    REPORT_OPTION_THREADS,
};
/* clang-format off */
#define REPORT_LONG_OPTIONS                                  \
    {"format", required_argument, NULL, 'f'},                \
    {"output", required_argument, NULL, 'o'},                \
    {"all", no_argument, NULL, REPORT_OPTION_ALL},           \
    {"idle", no_argument, NULL, REPORT_OPTION_IDLE},         \
    {"only", required_argument, NULL, REPORT_OPTION_ONLY},   \
    {"exclude", required_argument, NULL, REPORT_OPTION_EXCLUDE}, \
    {"lines", required_argument, NULL, REPORT_OPTION_LINES}, \
    {"measure", required_argument, NULL, REPORT_OPTION_MEASURE}, \
    {"threads", no_argument, NULL, REPORT_OPTION_THREADS}
/* clang-format on */

/* The lines of --help for these options. */
extern const char report_options_help[];

/* Takes one of them. False when it is none of them; *problem says what is wrong with its value, else it is NULL. */
bool report_take_option(struct report_options *options, int option, const char *value, const char **problem);
/* After the last option: takes the format from the output's name where none was given. */
void report_complete_format(struct report_options *options);
/* The same; what is wrong with the options together, or NULL. */
const char *report_complete_options(struct report_options *options);
/* STATUS_USAGE, saying which measures the profile has, when it lacks the one that is asked for. */
enum status report_check_measure(const struct report_options *options, const struct profile *profile,
                                 struct error *error) MUST_USE;

/* STATUS_USAGE when the report would be written over this capture, which is there. */
enum status report_check_output(const struct report_options *options, const char *capture,
                                struct error *error) MUST_USE;

/* What the attribution is to count. Borrows the options' globs. */
struct attribute_options report_attribute_options(const struct report_options *options);
/* Adds a capture to the profile. What is missing from it is no failure but lands in *damage; that nothing could be read
 * is one. */
enum status report_load_capture(struct profile *profile, const char *path, const struct profile_load_options *how,
                                struct error *damage, struct error *error) MUST_USE;
/* For source_cache_new: opens files by their path. */
enum status report_open_source(void *context, const char *path, int *fd);
/* Columns of a terminal; 0 for what is none. */
size_t report_terminal_width(FILE *stream);

/* Makes the report from one or more captures. Returns the exit status; says what went wrong. */
int report_captures(const char *const *paths, size_t count, const struct report_options *options);

/* A file that is written beside its final name. */
struct output_file {
    const char *path;
    char *temporary;
    FILE *stream;
};
/* `path` NULL or "-" is standard output. */
enum status output_open(struct output_file *file, const char *path, struct error *error) MUST_USE;
/* What became of what was written with `status`: when the stream failed, why; that standard output's reader has seen
 * enough (`| head`) is no failure. */
enum status output_explain(const struct output_file *file, enum status status, struct error *error) MUST_USE;
/* Puts the file in its place when `complete`, else removes it. */
enum status output_close(struct output_file *file, bool complete, struct error *error) MUST_USE;

#endif
