/* A recorded image: parts of a target's memory as they once were, to be looked at again without the target. */
#ifndef STROBE_BASE_MEMORY_IMAGE_H
#define STROBE_BASE_MEMORY_IMAGE_H

#include "base/buffer.h"
#include "base/map.h"
#include "base/memory.h"

/* The format, all numbers little-endian:
 *
 *   | "strobeM1" | notes: u64[4] | region count: u64 | {address: u64, size: u64} for each | the bytes of each in turn |
 *
 * Regions are in ascending order, not empty, and neither touch nor overlap. Nothing follows the last. */
enum { MEMORY_IMAGE_NOTES = 4, MEMORY_IMAGE_MAX_BYTES = 1 << 28 };

struct memory_region {
    remote_addr address;
    uint64_t size_bytes;
    uint8_t *bytes;
};

/* What lies in no region is unreadable. */
struct memory_image {
    struct memory memory;
    struct memory_region *regions;
    size_t region_count;
    /* Whoever records says here what else one must know to make sense of the bytes (where to begin, say). */
    uint64_t notes[MEMORY_IMAGE_NOTES];
};

/* Opens what memory_recorder_save wrote. Borrows `bytes`, which the regions point into: what is changed there changes
 * in the image. STATUS_DAMAGED when it is not exactly of the format. */
enum status memory_image_open(struct memory_image *image, uint8_t *bytes, size_t size_bytes) MUST_USE;
void memory_image_release(struct memory_image *image);

/* A reader that keeps what is read through it, with what lies around it in the same granule. What was read once is not
 * read again, so that what is kept agrees with what was seen. */
struct memory_recorder {
    struct memory memory;
    struct memory *below;
    struct map granules; /* address -> index */
    struct buffer bytes; /* of the granules, by index */
    size_t granule_bytes;
};

/* granule_bytes is a power of two up to the size of a page. `below` is borrowed. */
void memory_recorder_init(struct memory_recorder *recorder, struct memory *below, size_t granule_bytes);
void memory_recorder_release(struct memory_recorder *recorder);
/* Appends an image of everything read so far. */
enum status memory_recorder_save(const struct memory_recorder *recorder, const uint64_t notes[MEMORY_IMAGE_NOTES],
                                 struct buffer *file) MUST_USE;

#endif
