/* What the parts of a dump for a person share. Private to the dump. */
#ifndef STROBE_CLI_DUMP_WRITER_H
#define STROBE_CLI_DUMP_WRITER_H

#include "base/buffer.h"
#include "cli/dump.h"
#include "cli/frame_text.h"

enum { REMEMBERED_FRAMES = 1024 };

/* What a frame looked like: the threads of a pool stand at the same places. */
struct remembered_frame {
    const char *function; /* these two by address: texts of one look are shared by equal frames */
    const char *file;
    struct source_position position;
    int indent;
    bool collecting;
    size_t begin, end; /* in dump_writer.remembered_text */
};

struct dump_writer {
    FILE *stream;
    struct source_cache *sources;
    const struct palette *palette;
    int indent; /* blanks before every line of a frame */
    struct buffer scratch;
    struct buffer remembered_text;
    struct remembered_frame remembered[REMEMBERED_FRAMES];
};

/* Text of the target, with nothing in it that a terminal would obey. Valid until the next call. */
const char *dump_safe(struct dump_writer *writer, const char *text);

/* One frame: where it is, the line of source, its variables when the look has them. */
void dump_write_frame(struct dump_writer *writer, const struct look_frame *frame);

/* The tree of asyncio's tasks. */
enum status dump_write_tasks(struct dump_writer *writer, const struct look *look) MUST_USE;

#endif
