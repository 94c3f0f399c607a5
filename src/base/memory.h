/* The memory of a target, wherever it is: a live process, a core file, a recorded image. Everything that decodes
 * CPython sees a target only through this. */
#ifndef STROBE_BASE_MEMORY_H
#define STROBE_BASE_MEMORY_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* An address in a target. Its own type so that nobody dereferences one. */
typedef uint64_t remote_addr;

/* One piece of a scatter read. */
struct memory_piece {
    remote_addr address;
    void *buffer;
    size_t size_bytes;
};

/* A reader. Implementations embed this as their first member and set `read`. Not thread-safe: one user at a time. */
struct memory {
    /* Fills buffer with exactly size_bytes from address, or fails with STATUS_UNREADABLE (not mapped),
     * STATUS_NO_PROCESS (it ended) or STATUS_PERMISSION. On failure the buffer's content is undefined. */
    enum status (*read)(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes);
    /* Reads all pieces, in order, in as few system calls as the system allows; *done of them where one cannot be read,
     * and that one's status. NULL: one by one. */
    enum status (*read_pieces)(struct memory *memory, const struct memory_piece *pieces, size_t count, size_t *done);
};

enum status memory_read(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) MUST_USE;
enum status memory_read_pieces(struct memory *memory, const struct memory_piece *pieces, size_t count) MUST_USE;
/* The same. On failure the first *done pieces were read. */
enum status memory_read_first_pieces(struct memory *memory, const struct memory_piece *pieces, size_t count,
                                     size_t *done) MUST_USE;

enum status memory_read_u8(struct memory *memory, remote_addr address, uint8_t *value) MUST_USE;
enum status memory_read_u32(struct memory *memory, remote_addr address, uint32_t *value) MUST_USE;
enum status memory_read_u64(struct memory *memory, remote_addr address, uint64_t *value) MUST_USE;

/* Reads a NUL-terminated string of at most capacity - 1 bytes into buffer (always terminated on success). A longer
 * string is STATUS_LIMIT, with its beginning in the buffer. Works up to the last byte of a mapping. */
enum status memory_read_cstring(struct memory *memory, remote_addr address, char *buffer, size_t capacity) MUST_USE;

#endif
