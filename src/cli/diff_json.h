/* `strobe diff -f json`, as docs/diff.schema.json says: {"strobe_diff": 1, "before": {...}, "after": {...}, "scale": s,
 * "lines": [...], "functions": [...]}; measures are called as in the report's JSON, those of after are scaled. */
#ifndef STROBE_CLI_DIFF_JSON_H
#define STROBE_CLI_DIFF_JSON_H

#include "profile/diff.h"

#include <stdio.h>

enum status diff_json_write(const struct profile *before, const struct profile *after,
                            const struct attribute_options *options, bool as_is, FILE *stream,
                            struct error *error) MUST_USE;

#endif
