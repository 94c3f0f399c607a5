/* A recorded image that is falsified before it is looked at, or while it is: what the fuzz targets that look at images
 * have in common.
 *
 * The first byte of an input chooses one of the recorded images in tests/golden/images/ and how much of each variable
 * is to be told; what follows is a list of patches to it, 16 bytes each (struct patch). When it chooses none, what
 * follows is an image itself. The folder of the images is IMAGE_FOLDER, or the environment's STROBE_IMAGES. */
#ifndef STROBE_FUZZ_FALSIFIED_IMAGE_H
#define STROBE_FUZZ_FALSIFIED_IMAGE_H

#include "base/memory_image.h"

#include <stdbool.h>

/* Aborts, which is a finding. */
void require(bool condition);

/* The image under test, and what was read of it. The fields behind `bytes` are private. */
struct subject {
    struct memory memory;
    const uint64_t *notes; /* of the image */
    size_t locals_chars;
    uint64_t reads;
    uint64_t bytes;
    struct memory_image image;
    /* Those that change what a read gives, by the number of the read; the first so many are done. */
    const struct patch *patches;
    size_t patch_count;
    size_t patches_done;
};

/* Calls `look` with the image that an input makes; not at all when it makes none. */
void falsify_image(const uint8_t *data, size_t size_bytes, void (*look)(struct subject *subject));

#endif
