#include "capture/format.h"

#include <xxhash.h>

uint64_t capture_checksum(const uint8_t *chunk, size_t stored_bytes) {
    /* The payload's hash seeds that of the header: two one-shot hashes, where one over both parts would need a state
     * on the heap. */
    XXH64_hash_t payload = XXH64(chunk + CAPTURE_CHUNK_HEADER_BYTES, stored_bytes, 0);
    return XXH64(chunk, CAPTURE_CHECKSUM_OFFSET, payload);
}
