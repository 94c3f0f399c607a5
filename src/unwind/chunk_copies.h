/* Copies of the chunks of a thread's data stack (_PyStackChunk), of this look and of those before. From 3.11 on
 * frames lie in them, outermost first; a chunk is pushed when the newest has no room for a frame, and stands still
 * until it is the newest again. Private to stack_tracker.c and chunk_walk.c.
 *
 *   chunk  { previous, size, top, data[] }    top: words of data in use when a newer chunk was pushed
 *
 * The copies lie one behind the other in one buffer, so that what is as it was before is one number of bytes. What it
 * was before is in another buffer, at the same places: of the frames that are remembered, how they were seen. */
#ifndef STROBE_UNWIND_CHUNK_COPIES_H
#define STROBE_UNWIND_CHUNK_COPIES_H

#include "cpython/interp.h"

struct chunk_span {
    remote_addr address;
    remote_addr limit; /* the chunk's end */
    size_t offset;     /* of its copy in the buffer; SIZE_MAX: it has none yet */
    size_t size_bytes; /* that are copied: what is in use, and of the newest chunk somewhat more */
};

/* Chunks come and go where the stack's depth goes up and down across a chunk's end. So one that was popped is copied
 * still, for some looks, in case that it is back. */
struct chunk_copies {
    struct chunk_span *spans; /* oldest first */
    size_t count;
    size_t newest;          /* which of them was the thread's newest when that was last known */
    size_t copied;          /* how many could be copied this time */
    unsigned looks_without; /* since one above the newest was */
    size_t capacity;
    uint8_t *now;
    uint8_t *seen;     /* what is remembered */
    size_t seen_bytes; /* so much of it, from the start on */
    size_t buffer_bytes;
};

void chunk_copies_release(struct chunk_copies *copies);
void chunk_copies_forget(struct chunk_copies *copies);

/* Makes the spans those of the thread, whose newest chunk is thread->datastack_chunk. Reads headers of chunks only
 * where that is not known. STATUS_TORN when they contradict each other. */
enum status chunk_copies_follow(struct chunk_copies *copies, struct runtime *runtime,
                                const struct thread_state *thread) MUST_USE;
/* Makes room for the copies; of the newest chunk newest_bytes (more than its header) are wanted. */
enum status chunk_copies_reserve(struct chunk_copies *copies, size_t newest_bytes) MUST_USE;
/* Sets copies->count pieces, for memory_read_first_pieces. Who reads them sets copies->copied. */
void chunk_copies_list_pieces(const struct chunk_copies *copies, struct memory_piece *pieces);
/* How many bytes of the buffer are as they are remembered. */
size_t chunk_copies_count_same(const struct chunk_copies *copies, const struct layout *layout);
/* What was copied is remembered from now on, up to `end` and no further; up to `start` it is already. */
void chunk_copies_remember(struct chunk_copies *copies, size_t start, size_t end);

/* The span that has this address in its chunk, NULL when none has. */
const struct chunk_span *chunk_copies_find(const struct chunk_copies *copies, remote_addr address);
/* Where the frames of the chunk ended when a newer one was pushed, if ever: as its copy says. */
remote_addr chunk_copies_end(const struct chunk_copies *copies, const struct layout *layout,
                             const struct chunk_span *span);
/* The chunk that was copied and is linked to this one as the next newer; NULL when there is none. */
const struct chunk_span *chunk_copies_newer(const struct chunk_copies *copies, const struct layout *layout,
                                            const struct chunk_span *span);

#endif
