/* Copies of a thread's data stack, taken in one piece each, in front of the target's live memory. From 3.11 on frames
 * lie in chunks (_PyStackChunk); what was copied in one read is nearly of one instant, what is chased pointer by
 * pointer is not. */
#ifndef STROBE_UNWIND_STACK_IMAGE_H
#define STROBE_UNWIND_STACK_IMAGE_H

#include "base/memory_meter.h"
#include "cpython/layout.h"

struct stack_piece {
    remote_addr address;
    size_t size_bytes;
    size_t capacity_bytes;
    uint8_t *bytes;
};

/* `memory` serves what was copied from the copies and everything else from `live`. */
struct stack_image {
    struct memory memory;
    struct memory *live;
    struct stack_piece *pieces;
    size_t count;
    size_t capacity;
    size_t last_hit;
    size_t kept_bytes;      /* capacity of all pieces together */
    remote_addr next_chunk; /* the chunk below those copied so far, 0 when there is none */
    struct budget *budget;  /* borrowed; what is served from the copies is charged to it too. NULL: no limit */
};

void stack_image_init(struct stack_image *image, struct memory *live);
void stack_image_release(struct stack_image *image);
/* Forgets the copies, keeps their storage for the next look. */
void stack_image_clear(struct stack_image *image);
/* Room for a copy of [address, address + size_bytes); the caller fills *bytes and then calls stack_image_commit. */
enum status stack_image_reserve(struct stack_image *image, remote_addr address, size_t size_bytes,
                                uint8_t **bytes) MUST_USE;
void stack_image_commit(struct stack_image *image);
/* Copies older chunks until one holds `address` or the list ends. What breaks the list ends it for good. */
enum status stack_image_extend_to(struct stack_image *image, const struct layout *layout, remote_addr address) MUST_USE;
bool stack_image_holds(const struct stack_image *image, remote_addr address);

#endif
