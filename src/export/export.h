/* A profile, written in a format that somebody else reads too.
 *
 * To add a format: a file here with its writer, and its line in export.c. */
#ifndef STROBE_EXPORT_EXPORT_H
#define STROBE_EXPORT_EXPORT_H

#include "base/status.h"
#include "profile/attribute.h"
#include "profile/profile.h"

#include <stdio.h>

/* Line `number` (from 1) of a source file, without its newline, not NUL-terminated, valid until the profile is written.
 * STATUS_NOT_FOUND when there is none. */
typedef enum status export_source_fn(void *context, const char *path, int32_t number, const char **text,
                                     size_t *size_bytes);

struct export_options {
    /* What is counted; NULL: everything. Formats of whole stacks leave out what `only` leaves out and the frames that
     * `exclude` means; they always show library code. */
    const struct attribute_options *attribute;
    export_source_fn *source; /* NULL: no source text */
    void *source_context;
    /* What formats that show one measure show, and those that open with one open with; NULL: the main one. The profile
     * has it. */
    const enum measure *measure;
    bool prefers_cpu; /* where waiting is shown for itself, CPU time comes first */
    bool threads;     /* name the thread also where there is only one */
};

/* Streams the profile. A failed write to the stream is STATUS_FAILED too. What was written by then is of no use:
 * the caller writes beside the file that is wanted and renames. NULL options are the defaults. */
typedef enum status export_write_fn(const struct profile *profile, const struct export_options *options, FILE *stream,
                                    struct error *error);

enum { EXPORT_MAX_ENDINGS = 3 };

struct export_format {
    const char *name;                        /* as -f wants it */
    const char *endings[EXPORT_MAX_ENDINGS]; /* of file names that mean it; may be fewer, then NULL */
    bool wants_samples;                      /* shows more when the profile has its samples in order */
    bool is_binary;                          /* nothing for a terminal */
    bool takes_measure;                      /* shows one, or opens with one: export_options.measure */
    export_write_fn *write;
};

extern const struct export_format export_formats[];
extern const size_t export_format_count;

/* NULL when there is no such format. */
const struct export_format *export_find_name(const char *name);
/* The format with the longest ending that the path has; NULL when there is none. */
const struct export_format *export_find_path(const char *path);

/* For writers: the measure that is asked for, else the profile's main one. */
enum measure export_measure(const struct profile *profile, const struct export_options *options);
/* For writers, at their end: says in `error` what a failure (no memory, a failed write) was. */
enum status export_finish(enum status status, FILE *stream, struct error *error);

export_write_fn export_write_json;
export_write_fn export_write_html;
export_write_fn export_write_collapsed;
export_write_fn export_write_speedscope;
export_write_fn export_write_pprof;
export_write_fn export_write_gecko;
export_write_fn export_write_chrome;
export_write_fn export_write_pstats;
export_write_fn export_write_svg;

#endif
