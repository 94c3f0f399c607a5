/* Copies captures into one. */
#ifndef STROBE_CAPTURE_COPY_H
#define STROBE_CAPTURE_COPY_H

#include "capture/reader.h"
#include "capture/writer.h"

/* What goes from one capture_copy into the next; zero-initialised before the first. Its fields are private. */
struct capture_merge {
    uint32_t next_process;
    bool has_start;
    uint64_t start_ns;
};

/* Adds everything that the capture at `path` holds to the writer, but for its facts, with processes and threads of
 * their own. Its times are moved so that all captures begin together: clocks of different machines and boots mean
 * nothing to each other. Memory is that of the largest epoch read. STATUS_DAMAGED: as capture_read; what could be read
 * is in. */
enum status capture_copy(const char *path, struct capture_writer *writer, struct capture_merge *merge,
                         struct error *error) MUST_USE;

#endif
