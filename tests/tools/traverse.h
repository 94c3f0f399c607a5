/* Everything that strobe can say of a Python from memory alone, as text: for tests and fuzzers that look at recorded
 * images. */
#ifndef STROBE_TESTS_TRAVERSE_H
#define STROBE_TESTS_TRAVERSE_H

#include "base/memory_image.h"
#include "base/memory_meter.h"
#include "cpython/runtime.h"

/* Where a traversal begins. */
struct traverse_start {
    struct runtime_symbols symbols;
    remote_addr asyncio_debug; /* 0 when asyncio is not loaded */
};

/* How it is kept in an image's notes. */
void traverse_note_start(const struct traverse_start *start, uint64_t notes[MEMORY_IMAGE_NOTES]);
struct traverse_start traverse_noted_start(const uint64_t notes[MEMORY_IMAGE_NOTES]);

/* How much of a value is told where nothing else is asked for. */
enum { TRAVERSE_LOCALS_CHARS = 200 };

/* Opens the runtime, looks at every interpreter, thread, frame, task and (unless locals_chars is 0) local variable, and
 * appends a line for each to `text`. What cannot be read is said there; STATUS_OK all the same unless there is no
 * memory or no room in `text`. */
enum status traverse(struct memory *memory, const struct traverse_start *start, size_t locals_chars,
                     struct budget *budget, struct buffer *text) MUST_USE;

#endif
