/* Captures that live in memory, for tests. */
#ifndef STROBE_TESTS_CAPTURE_MEMORY_H
#define STROBE_TESTS_CAPTURE_MEMORY_H

#include "capture/writer.h"

/* A file without a name, and the bytes that were written to it. */
struct capture_memory {
    int descriptor;
    uint8_t *bytes;
    size_t size_bytes;
};

/* A writer to a new file in memory, with process 0 and thread 1. */
struct capture_writer *memory_writer_open(struct capture_memory *memory, const struct capture_writer_options *options);
/* Takes the bytes that are in the file now. */
void memory_take(struct capture_memory *memory);
void memory_release(struct capture_memory *memory);
/* The stack of a chain of functions, outermost first, all in one file, each in the line given. */
uint32_t memory_stack(struct capture_writer *writer, const char *file, const char *const *functions,
                      const int32_t *lines, size_t count);

#endif
