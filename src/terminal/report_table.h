/* The report as a table: the files that matter, the lines in them, then functions and threads. */
#ifndef STROBE_TERMINAL_REPORT_TABLE_H
#define STROBE_TERMINAL_REPORT_TABLE_H

#include "profile/attribute.h"
#include "terminal/source.h"

#include <stdio.h>

struct report_table_options {
    const struct attribute_options *attribute; /* what is counted; NULL: everything, charged to user code */
    struct source_cache *source;               /* for the lines' text; may be NULL */
    size_t lines;                              /* at most so many of a file; 0: as many as are worth a look */
    size_t width;                              /* columns of the terminal; 0: no limit */
    bool colour;
    const enum measure *main; /* what lines are ranked by; NULL: CPU time, where some was seen, else wall time */
    bool with_idle;           /* wall time, if that is in the capture */
};

/* Only want of memory or a failed write makes it fail. */
enum status report_table_write(const struct profile *profile, const struct report_table_options *options, FILE *stream,
                               struct error *error) MUST_USE;
/* A report of each thread that did anything, one after the other, at the cost of what all of them did. */
enum status report_table_write_threads(const struct profile *profile, const struct report_table_options *options,
                                       FILE *stream, struct error *error) MUST_USE;

#endif
