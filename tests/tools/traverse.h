/* Everything that strobe can say of a Python from memory alone, as text: for tests and fuzzers that look at recorded
 * images. */
#ifndef STROBE_TESTS_TRAVERSE_H
#define STROBE_TESTS_TRAVERSE_H

#include "base/memory_image.h"
#include "base/memory_meter.h"
#include "cpython/runtime.h"

/* How runtime_symbols are kept in an image's notes. */
void traverse_note_symbols(const struct runtime_symbols *symbols, uint64_t notes[MEMORY_IMAGE_NOTES]);
struct runtime_symbols traverse_noted_symbols(const uint64_t notes[MEMORY_IMAGE_NOTES]);

/* Opens the runtime, looks at every interpreter, thread, frame and local variable, and appends a line for each to
 * `text`. What cannot be read is said there; STATUS_OK all the same unless there is no memory or no room in `text`. */
enum status traverse(struct memory *memory, const struct runtime_symbols *symbols, struct budget *budget,
                     struct buffer *text) MUST_USE;

#endif
