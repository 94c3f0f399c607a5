/* A local copy of the beginning of a CPython struct: read once, then asked for its fields. */
#ifndef STROBE_CPYTHON_COPY_H
#define STROBE_CPYTHON_COPY_H

#include "base/bytes.h"
#include "base/memory.h"
#include "cpython/layout.h"

/* Room for every struct that is read whole; PyTypeObject up to tp_dictoffset is the largest. */
enum { COPY_MAX_BYTES = 512 };

struct copy {
    size_t size_bytes;
    uint8_t bytes[COPY_MAX_BYTES];
};

/* Copies what stands at `address` up to and with the 8-byte field at last_field. STATUS_TORN for an address at which no
 * object can be (null, not aligned), STATUS_LIMIT for a field beyond COPY_MAX_BYTES (OFFSET_NONE is). */
enum status copy_read(struct memory *memory, remote_addr address, layout_offset last_field, struct copy *copy) MUST_USE;

/* The field at `offset`; 0 when it is not in the copy, as for OFFSET_NONE. */
uint64_t copy_u64(const struct copy *copy, layout_offset offset);
uint32_t copy_u32(const struct copy *copy, layout_offset offset);
uint8_t copy_u8(const struct copy *copy, layout_offset offset);

#endif
