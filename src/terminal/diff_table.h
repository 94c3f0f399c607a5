/* Two profiles side by side as a table: what changed most comes first. */
#ifndef STROBE_TERMINAL_DIFF_TABLE_H
#define STROBE_TERMINAL_DIFF_TABLE_H

#include "profile/diff.h"
#include "terminal/source.h"

#include <stdio.h>

struct diff_table_options {
    const struct attribute_options *attribute; /* what is counted; NULL: everything, charged to user code */
    struct source_cache *source;               /* for the lines' text; may be NULL */
    size_t lines;                              /* at most so many; 0: as many as are worth a look */
    size_t width;                              /* columns of the terminal; 0: no limit */
    bool colour;
    bool as_is;                  /* as diff_profiles has it */
    const enum measure *measure; /* that rows are ranked by, and no other; NULL: by the main one, then by the others */
};

/* Only want of memory or a failed write makes it fail. */
enum status diff_table_write(const struct profile *before, const struct profile *after,
                             const struct diff_table_options *options, FILE *stream, struct error *error) MUST_USE;

#endif
