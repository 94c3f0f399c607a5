/* The memory of a Python process, falsified: whatever stands there, a look must end, within its budget, and every text
 * it gives must be UTF-8.
 *
 * The first byte of an input chooses one of the recorded images in tests/golden/images/ and what follows is a list of
 * patches to it, PATCH_BYTES each (struct patch). When it chooses none, what follows is an image itself.
 * The folder of the images is IMAGE_FOLDER, or the environment's STROBE_IMAGES. */
#include "base/bytes.h"
#include "base/text.h"
#include "traverse.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum {
    IMAGES_MAX = 16,
    IMAGE_LIMIT_BYTES = 4 << 20,
    PATCH_BYTES = 16,
    PATCHES_MAX = 256,
    /* An unharmed image takes some 20,000 reads of together a megabyte. */
    READS_MAX = 100000,
    READ_BYTES_MAX = 32 << 20,
    TEXT_LIMIT_BYTES = 64 << 20,
};

static const char *const names[] = {"3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.15"};
enum { NAMES = sizeof names / sizeof names[0] };

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

/* | kind and flags: u8 | shift: u8 | which byte recorded, or which read: u32 | unused: u16 | value: u64 | */
struct patch {
    enum patch_kind kind;
    bool at_read; /* changes what one read gives, once: the target moves while it is looked at */
    unsigned shift;
    uint32_t where;
    uint64_t value;
};

/* The image under test, and what was read of it. */
struct subject {
    struct memory memory;
    struct memory_image image;
    const struct patch *patches;
    size_t patch_count;
    uint64_t reads;
    uint64_t bytes;
};

static void require(bool condition) {
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

static enum status read_subject(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    struct subject *subject = (struct subject *)memory;
    subject->reads++;
    subject->bytes += size_bytes;
    TRY(memory_read(&subject->image.memory, address, buffer, size_bytes));
    for (size_t i = 0; i < subject->patch_count; i++)
        if (subject->patches[i].at_read && subject->patches[i].where == subject->reads && size_bytes >= 8)
            apply(subject, &subject->patches[i], (uint8_t *)buffer + subject->patches[i].value % (size_bytes / 8) * 8);
    return STATUS_OK;
}

static void require_utf8(const struct buffer *text) {
    uint32_t character;
    for (size_t at = 0; at < text->size_bytes;) {
        size_t length = text_decode_utf8(text->data + at, text->size_bytes - at, &character);
        require(length > 0);
        at += length;
    }
}

static void look(struct subject *subject) {
    struct budget budget = {.reads_left = READS_MAX, .bytes_left = READ_BYTES_MAX};
    struct runtime_symbols symbols = traverse_noted_symbols(subject->image.notes);
    struct buffer text;
    subject->memory.read = read_subject;
    buffer_init(&text, TEXT_LIMIT_BYTES);
    require(traverse(&subject->memory, &symbols, &budget, &text) != STATUS_FAILED);
    require(subject->reads <= READS_MAX && subject->bytes <= READ_BYTES_MAX);
    require_utf8(&text);
    buffer_release(&text);
}

static size_t read_patches(const uint8_t *data, size_t size_bytes, struct patch *patches) {
    size_t count = 0;
    for (; count < PATCHES_MAX && size_bytes >= PATCH_BYTES; data += PATCH_BYTES, size_bytes -= PATCH_BYTES)
        patches[count++] = (struct patch){
            .kind = (data[0] & 0x7f) % PATCH_KINDS,
            .at_read = (data[0] & 0x80) != 0,
            .shift = data[1] % 64,
            .where = load_u32(data + 2),
            .value = load_u64(data + 8),
        };
    return count;
}

static void look_at_patched(const struct image_file *file, const uint8_t *data, size_t size_bytes) {
    struct patch patches[PATCHES_MAX];
    struct subject subject = {.patches = patches, .patch_count = read_patches(data, size_bytes, patches)};
    uint8_t *bytes = malloc(file->size_bytes);
    require(bytes != NULL);
    memcpy(bytes, file->bytes, file->size_bytes);
    require(memory_image_open(&subject.image, bytes, file->size_bytes) == STATUS_OK);
    for (size_t i = 0; i < subject.patch_count; i++) {
        remote_addr address = 0;
        uint8_t *word = find_word(&subject.image, patches[i].where, &address);
        if (!patches[i].at_read && word != NULL)
            apply(&subject, &patches[i], word);
    }
    look(&subject);
    memory_image_release(&subject.image);
    free(bytes);
}

static void look_at_given(const uint8_t *data, size_t size_bytes) {
    struct subject subject = {0};
    uint8_t *bytes = malloc(size_bytes + 1);
    require(bytes != NULL);
    memcpy(bytes, data, size_bytes);
    if (memory_image_open(&subject.image, bytes, size_bytes) == STATUS_OK)
        look(&subject);
    memory_image_release(&subject.image);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    if (size_bytes == 0)
        return 0;
    load_files();
    size_t chosen = data[0] % (NAMES + 1);
    if (chosen < NAMES)
        look_at_patched(&files[chosen], data + 1, size_bytes - 1);
    else
        look_at_given(data + 1, size_bytes - 1);
    return 0;
}
