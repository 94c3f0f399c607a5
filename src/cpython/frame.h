/* One frame, decoded from a copy of its bytes. Pure: no memory is read here. */
#ifndef STROBE_CPYTHON_FRAME_H
#define STROBE_CPYTHON_FRAME_H

#include "cpython/layout.h"

#include <stdbool.h>

/* _PyInterpreterFrame.owner (Include/internal/pycore_frame.h 3.11, pycore_interpframe_structs.h 3.14) */
enum { FRAME_OWNED_BY_THREAD = 0, FRAME_OWNED_BY_GENERATOR = 1, FRAME_OWNED_BY_FRAME_OBJECT = 2 };

struct frame {
    remote_addr address;
    remote_addr previous; /* the caller's frame, 0 at the end */
    remote_addr code;     /* what it executes; 0 in a boundary frame */
    /* 3.11+: the address of the instruction; before, the offset of the last one in bytes (-1: not started). */
    uint64_t instruction;
    int32_t tlbc_index; /* 3.14+ free-threaded, else 0 */
    uint8_t owner;      /* always FRAME_OWNED_BY_FRAME_OBJECT before 3.11 */
    bool boundary;      /* the interpreter's own (a C call, an entry): never shown */
};

/* How many bytes of a frame frame_decode needs. At most FRAME_HEAD_MAX_BYTES. */
enum { FRAME_HEAD_MAX_BYTES = 512 };
size_t frame_head_size(const struct layout *layout);

/* `bytes` are the first frame_head_size() bytes of the frame at `address`. STATUS_TORN when they cannot be a frame. */
enum status frame_decode(const struct layout *layout, remote_addr address, const uint8_t *bytes,
                         struct frame *frame) MUST_USE;

/* What a reference that may carry tags points to; 0 for null and for tagged ints (_PyStackRef, pycore_stackref.h). */
static inline remote_addr frame_untag(const struct layout *layout, uint64_t reference) {
    /* Py_TAG_BITS and Py_INT_TAG (Include/internal/pycore_stackref.h 3.14, 3.15) */
    enum { TAG_MASK = 3, TAG_INT = 3 };
    if (!layout->tagged_refs)
        return reference;
    return (reference & TAG_INT) == TAG_INT ? 0 : reference & ~(uint64_t)TAG_MASK;
}

#endif
