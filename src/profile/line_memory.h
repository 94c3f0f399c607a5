/* What lines held over time: those that held most, and those that leak. */
#ifndef STROBE_PROFILE_LINE_MEMORY_H
#define STROBE_PROFILE_LINE_MEMORY_H

#include "base/series.h"
#include "base/status.h"
#include "profile/leaks.h"

struct profile;

/* A line that leaks. */
struct leak {
    const char *file; /* of the profile's */
    const char *function;
    int32_t line;
    uint32_t process;
    uint64_t live_bytes;
    uint64_t survivors; /* blocks */
    struct leak_verdict verdict;
};

/* One of those that held most at some time. */
struct held_line {
    const char *file;
    const char *function;
    int32_t line;
    uint32_t process;
    uint64_t most_bytes;
    struct series timeline; /* on the profile's time line */
};

enum { HELD_LINES = 20, HELD_LINE_POINTS = 100 };

struct line_memory {
    struct leak *leaks; /* fastest first */
    size_t leak_count, leak_capacity;
    struct held_line held[HELD_LINES]; /* most first */
    size_t held_count;
};

/* `charged`: stack -> the stack whose innermost frame's line its memory is charged to, 0: none. Zero-initialise
 * `memory` before; to be released also when it failed, for want of memory. */
enum status line_memory_find(const struct profile *profile, const uint32_t *charged,
                             struct line_memory *memory) MUST_USE;
void line_memory_release(struct line_memory *memory);

#endif
