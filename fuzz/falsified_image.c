#include "falsified_image.h"

#include "base/bytes.h"

#include <stdio.h>
#include <stdlib.h>

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size_bytes, size_t max_bytes, unsigned seed);

enum {
    IMAGE_LIMIT_BYTES = 4 << 20,
    PATCH_BYTES = 16,
    PATCHES_MAX = 256,
};

static const char *const names[] = {"3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.15"};
enum { NAMES = sizeof names / sizeof names[0] };
/* Variables are most of a look's work, so most inputs are to have little of them. */
static const uint16_t locals_chars[] = {200, 0, 12, 48};
enum { CHARS = sizeof locals_chars / sizeof locals_chars[0] };
_Static_assert((NAMES + 1) * CHARS <= 256, "one byte chooses both");

/* What serves a read does so many thousand times a look, and what it compares would drown what strobe does. */
#ifdef __clang__
#define NOT_TRACED __attribute__((no_sanitize("coverage")))
#else
#define NOT_TRACED
#endif

static struct image_file {
    uint8_t *bytes;
    size_t size_bytes;
} files[NAMES];

enum patch_kind {
    PATCH_SET,     /* the value */
    PATCH_XOR,     /* the word changed by the value */
    PATCH_POINTER, /* the address of another place of the image, which the value names */
    PATCH_COPY,    /* the word at another place of the image */
    PATCH_BYTE,    /* one byte of the word */
    PATCH_KINDS,
};

/* | kind, at_read in the highest bit: u8 | shift: u8 | which byte recorded, or which read: u32 | stays: u16 | value:
 * u64 |
 */
struct patch {
    enum patch_kind kind;
    bool at_read; /* changes what one read gives: the target moves while it is looked at */
    bool stays;   /* it has moved there for good */
    unsigned shift;
    uint32_t where;
    uint64_t value;
};

void require(bool condition) {
    if (!condition)
        abort();
}

static void load_file(const char *name, struct image_file *file) {
    char path[4096];
    const char *folder = getenv("STROBE_IMAGES");
    (void)snprintf(path, sizeof path, "%s/%s.image", folder != NULL ? folder : IMAGE_FOLDER, name);
    FILE *stream = fopen(path, "rb");
    if (stream == NULL) {
        perror(path);
        exit(2);
    }
    file->bytes = malloc(IMAGE_LIMIT_BYTES);
    require(file->bytes != NULL);
    file->size_bytes = fread(file->bytes, 1, IMAGE_LIMIT_BYTES, stream);
    (void)fclose(stream);
}

static void load_files(void) {
    for (size_t i = 0; i < NAMES && files[i].bytes == NULL; i++)
        load_file(names[i], &files[i]);
}

/* The 8-byte word of the image that holds its `where`-th byte, and where it stands in the target. NULL at the end. */
static uint8_t *find_word(const struct memory_image *image, uint64_t where, remote_addr *address) {
    uint64_t total = 0;
    for (size_t i = 0; i < image->region_count; i++)
        total += image->regions[i].size_bytes;
    if (total == 0)
        return NULL;
    where = where % total & ~UINT64_C(7);
    for (size_t i = 0; i < image->region_count; i++) {
        const struct memory_region *region = &image->regions[i];
        if (where < region->size_bytes) {
            *address = region->address + where;
            return region->size_bytes - where >= 8 ? region->bytes + where : NULL;
        }
        where -= region->size_bytes;
    }
    return NULL;
}

static uint64_t patched(const struct subject *subject, const struct patch *patch, uint64_t word) {
    remote_addr address = 0;
    const uint8_t *other = NULL;
    switch (patch->kind) {
    case PATCH_SET:
        return patch->value;
    case PATCH_XOR:
        return word ^ patch->value << patch->shift;
    case PATCH_POINTER:
        return find_word(&subject->image, patch->value, &address) != NULL ? address + patch->shift / 8 * 8 : word;
    case PATCH_COPY:
        other = find_word(&subject->image, patch->value, &address);
        return other != NULL ? load_u64(other) : word;
    case PATCH_BYTE:
    default:
        return (word & ~(UINT64_C(0xff) << patch->shift / 8 * 8)) | (patch->value & 0xff) << patch->shift / 8 * 8;
    }
}

static void apply(const struct subject *subject, const struct patch *patch, uint8_t *word) {
    uint64_t value = patched(subject, patch, load_u64(word));
    memcpy(word, &value, sizeof value);
}

/* The bytes at an address, if all of them are in one region; else NULL. */
NOT_TRACED static uint8_t *find_bytes(const struct memory_image *image, remote_addr address, size_t size_bytes) {
    size_t low = 0;
    for (size_t high = image->region_count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (image->regions[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    const struct memory_region *region = &image->regions[low - 1];
    uint64_t offset = address - region->address;
    bool inside = offset < region->size_bytes && size_bytes <= region->size_bytes - offset;
    return inside ? region->bytes + offset : NULL;
}

static void apply_at_read(const struct subject *subject, const struct patch *patch, uint8_t *copy, uint8_t *original,
                          size_t size_bytes) {
    if (size_bytes < 8)
        return;
    size_t at = patch->value % (size_bytes / 8) * 8;
    apply(subject, patch, copy + at);
    if (patch->stays)
        memcpy(original + at, copy + at, 8);
}

NOT_TRACED static enum status read_subject(struct memory *memory, remote_addr address, void *buffer,
                                           size_t size_bytes) {
    struct subject *subject = (struct subject *)memory;
    subject->reads++;
    subject->bytes += size_bytes;
    while (subject->patches_done < subject->patch_count &&
           subject->patches[subject->patches_done].where < subject->reads)
        subject->patches_done++;
    if (size_bytes == 0)
        return STATUS_OK;
    uint8_t *bytes = find_bytes(&subject->image, address, size_bytes);
    if (bytes == NULL)
        return STATUS_UNREADABLE;
    memcpy(buffer, bytes, size_bytes);
    for (size_t i = subject->patches_done; i < subject->patch_count && subject->patches[i].where == subject->reads; i++)
        apply_at_read(subject, &subject->patches[i], buffer, bytes, size_bytes);
    return STATUS_OK;
}

static size_t read_patches(const uint8_t *data, size_t size_bytes, struct patch *patches) {
    size_t count = 0;
    for (; count < PATCHES_MAX && size_bytes >= PATCH_BYTES; data += PATCH_BYTES, size_bytes -= PATCH_BYTES)
        patches[count++] = (struct patch){
            .kind = (data[0] & 0x7f) % PATCH_KINDS,
            .at_read = (data[0] & 0x80) != 0,
            .shift = data[1] % 64,
            .stays = (data[6] & 1) != 0,
            .where = load_u32(data + 2),
            .value = load_u64(data + 8),
        };
    return count;
}

static int compare_patches(const void *left, const void *right) {
    const struct patch *a = left, *b = right;
    if (a->at_read != b->at_read)
        return a->at_read ? -1 : 1;
    return a->where < b->where ? -1 : a->where > b->where;
}

/* Applies those that change the image; leaves the others to the reads. */
static void apply_patches(struct subject *subject, const struct patch *patches, size_t count) {
    subject->patches = patches;
    for (size_t i = 0; i < count; i++) {
        remote_addr address = 0;
        uint8_t *word = find_word(&subject->image, patches[i].where, &address);
        if (patches[i].at_read)
            subject->patch_count++;
        else if (word != NULL)
            apply(subject, &patches[i], word);
    }
}

static void look_at_patched(const struct image_file *file, const uint8_t *data, size_t size_bytes,
                            struct subject *subject, void (*look)(struct subject *subject)) {
    struct patch patches[PATCHES_MAX];
    size_t count = read_patches(data, size_bytes, patches);
    uint8_t *bytes = malloc(file->size_bytes);
    require(bytes != NULL);
    memcpy(bytes, file->bytes, file->size_bytes);
    require(memory_image_open(&subject->image, bytes, file->size_bytes) == STATUS_OK);
    qsort(patches, count, sizeof patches[0], compare_patches);
    apply_patches(subject, patches, count);
    subject->notes = subject->image.notes;
    look(subject);
    memory_image_release(&subject->image);
    free(bytes);
}

static void look_at_given(const uint8_t *data, size_t size_bytes, struct subject *subject,
                          void (*look)(struct subject *subject)) {
    uint8_t *bytes = malloc(size_bytes + 1);
    require(bytes != NULL);
    memcpy(bytes, data, size_bytes);
    if (memory_image_open(&subject->image, bytes, size_bytes) == STATUS_OK) {
        subject->notes = subject->image.notes;
        look(subject);
    }
    memory_image_release(&subject->image);
    free(bytes);
}

void falsify_image(const uint8_t *data, size_t size_bytes, void (*look)(struct subject *subject)) {
    if (size_bytes == 0)
        return;
    load_files();
    size_t chosen = data[0] % (NAMES + 1);
    struct subject subject = {.memory = {.read = read_subject},
                              .locals_chars = locals_chars[data[0] / (NAMES + 1) % CHARS]};
    if (chosen < NAMES)
        look_at_patched(&files[chosen], data + 1, size_bytes - 1, &subject, look);
    else
        look_at_given(data + 1, size_bytes - 1, &subject, look);
}

/* libFuzzer's own mutations seldom make a whole patch, and never a list of them. */
static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

static uint64_t random_value(uint32_t *state) {
    static const uint64_t telling[] = {
        0, 1, 2, 3, 7, 8, 255, 256, 4096, 1 << 20, 1 << 28, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX,
    };
    uint64_t wide = (uint64_t)next_random(state) << 40 ^ (uint64_t)next_random(state) << 20 ^ next_random(state);
    switch (next_random(state) % 4) {
    case 0:
        return telling[next_random(state) % (sizeof telling / sizeof telling[0])];
    case 1:
        return UINT64_C(1) << next_random(state) % 64;
    case 2:
        return next_random(state) % 4096;
    default:
        return wide;
    }
}

/* Three in four at a read: most words that were recorded are read by nobody. The first reads decide most. */
static void make_patch(uint8_t bytes[PATCH_BYTES], uint32_t *state) {
    bool at_read = next_random(state) % 4 != 0;
    uint32_t reads = UINT32_C(32) << next_random(state) % 10;
    uint32_t where = next_random(state) % (at_read ? reads : IMAGE_LIMIT_BYTES);
    uint64_t value = random_value(state);
    bytes[0] = (uint8_t)(next_random(state) % PATCH_KINDS | (at_read ? 0x80 : 0));
    bytes[1] = (uint8_t)next_random(state);
    memcpy(bytes + 2, &where, sizeof where);
    bytes[6] = (uint8_t)(next_random(state) & 1);
    bytes[7] = 0;
    memcpy(bytes + 8, &value, sizeof value);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size_bytes, size_t max_bytes, unsigned seed) {
    uint32_t state = seed;
    size_t patches = size_bytes > 0 ? (size_bytes - 1) / PATCH_BYTES : 0;
    if (size_bytes == 0 || max_bytes < 1 + PATCH_BYTES)
        return size_bytes;
    if (data[0] % (NAMES + 1) == NAMES) { /* an image: some of its bytes */
        for (uint32_t i = next_random(&state) % 8 + 1; i > 0; i--)
            data[1 + next_random(&state) % size_bytes % (size_bytes > 1 ? size_bytes - 1 : 1)] =
                (uint8_t)next_random(&state);
        return size_bytes;
    }
    uint32_t choice = next_random(&state) % 8;
    if (patches == 0 || (choice < 4 && (patches + 1) * PATCH_BYTES < max_bytes && patches < PATCHES_MAX)) {
        make_patch(data + 1 + patches * PATCH_BYTES, &state);
        return 1 + (patches + 1) * PATCH_BYTES;
    }
    uint8_t *chosen = data + 1 + next_random(&state) % patches * PATCH_BYTES;
    uint64_t value = random_value(&state);
    if (choice < 5) { /* the list without its last, which takes the place of another */
        memmove(chosen, data + 1 + (patches - 1) * PATCH_BYTES, PATCH_BYTES);
        return 1 + (patches - 1) * PATCH_BYTES;
    }
    if (choice < 6)
        make_patch(chosen, &state);
    else if (choice < 7)
        memcpy(chosen + 8, &value, sizeof value);
    else
        data[0] = (uint8_t)(next_random(&state) % CHARS * (NAMES + 1) + next_random(&state) % NAMES);
    return size_bytes;
}
