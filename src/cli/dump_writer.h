/* What the parts of a dump for a person share. Private to the dump. */
#ifndef STROBE_CLI_DUMP_WRITER_H
#define STROBE_CLI_DUMP_WRITER_H

#include "base/buffer.h"
#include "cli/dump.h"
#include "cli/frame_text.h"

struct dump_writer {
    FILE *stream;
    struct source_cache *sources;
    const struct palette *palette;
    int indent; /* blanks before every line of a frame */
    struct buffer scratch;
};

/* Text of the target, with nothing in it that a terminal would obey. Valid until the next call. */
const char *dump_safe(struct dump_writer *writer, const char *text);

/* One frame: where it is, the line of source, its variables when the look has them. */
void dump_write_frame(struct dump_writer *writer, const struct look_frame *frame);

/* The tree of asyncio's tasks. */
enum status dump_write_tasks(struct dump_writer *writer, const struct look *look) MUST_USE;

#endif
