/* Where a thread is that has let go of the GIL (free-threaded: is detached), when every allocation is counted. Its
 * frames may only be read through the kernel then, as somebody else may be giving them back. What C code allocates
 * meanwhile is much, and all of it by one stack: so that is kept, every word that makes it this one, and all of them
 * are asked for in one call.
 *
 * Async-signal-safe. */
#ifndef STROBE_AGENT_EXACT_DETACHED_H
#define STROBE_AGENT_EXACT_DETACHED_H

#include "agent/python.h"
#include "agent/sites.h"

#include <sys/uio.h>

enum {
    DETACHED_WORDS = 192,
    DETACHED_PIECES = 16,
    DETACHED_BYTES = 8192,
};

/* One slot's. All zero is empty. */
struct detached_memo {
    void *what; /* the caller's; NULL: nothing is kept */
    void *last; /* what it was the time before */
    uint64_t state;
    uint32_t deaths;
    uint32_t hits, misses, patience; /* of what is kept; then, until something is kept again */
    int32_t pid;
    uint32_t word_count, piece_count;
    struct iovec pieces[DETACHED_PIECES]; /* of this process: where the words are */
    uint64_t bytes;                       /* of the pieces */
    struct detached_word {
        uint64_t address, value;
        uint64_t at; /* in the pieces, one behind the other */
    } words[DETACHED_WORDS];
    uint8_t now[DETACHED_BYTES];
};

/* What was kept for where this thread is; NULL: it is attached, or has to be found in another way. */
void *detached_find(struct detached_memo *memo, const struct agent_python *python);
/* Was found in another way, just now. */
void detached_note(struct detached_memo *memo, const struct agent_python *python, const struct sites_fields *fields,
                   void *what);

#endif
