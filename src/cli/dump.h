/* The two forms of a dump. */
#ifndef STROBE_CLI_DUMP_H
#define STROBE_CLI_DUMP_H

#include "sampler/look.h"
#include "terminal/source.h"

#include <stdio.h>

/* JSON as docs/dump.schema.json describes it. STATUS_FAILED when there is no memory. */
enum status dump_write_json(const struct look *look, FILE *stream) MUST_USE;

/* For a person. */
enum status dump_write_text(const struct look *look, struct source_cache *sources, bool colour, FILE *stream) MUST_USE;

#endif
