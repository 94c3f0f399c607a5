#include "base/memory_image.h"

#include "base/bytes.h"

#include <stdlib.h>

static const char magic[8] = {'s', 't', 'r', 'o', 'b', 'e', 'M', '1'};

enum { HEADER_BYTES = sizeof magic + MEMORY_IMAGE_NOTES * 8 + 8, ENTRY_BYTES = 16 };

/* The region that begins last at or before `address`, or NULL. */
static const struct memory_region *find_region(const struct memory_image *image, remote_addr address) {
    size_t low = 0;
    size_t high = image->region_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (image->regions[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? &image->regions[low - 1] : NULL;
}

static enum status read_image(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    const struct memory_region *region = find_region((struct memory_image *)memory, address);
    if (size_bytes == 0)
        return STATUS_OK;
    if (region == NULL || address - region->address >= region->size_bytes ||
        size_bytes > region->size_bytes - (address - region->address))
        return STATUS_UNREADABLE;
    memcpy(buffer, region->bytes + (address - region->address), size_bytes);
    return STATUS_OK;
}

/* Reads one entry of the list; *end is where the region before it ended, *content where its bytes begin. */
static enum status open_region(struct memory_region *region, const uint8_t *entry, remote_addr *end, uint8_t **content,
                               size_t *left_bytes) {
    region->address = load_u64(entry);
    region->size_bytes = load_u64(entry + 8);
    region->bytes = *content;
    bool first = *end == 0;
    if (region->size_bytes == 0 || region->size_bytes > *left_bytes ||
        region->address > UINT64_MAX - region->size_bytes || (!first && region->address <= *end))
        return STATUS_DAMAGED;
    *end = region->address + region->size_bytes;
    *content += region->size_bytes;
    *left_bytes -= (size_t)region->size_bytes;
    return STATUS_OK;
}

enum status memory_image_open(struct memory_image *image, uint8_t *bytes, size_t size_bytes) {
    *image = (struct memory_image){.memory = {.read = read_image}};
    if (size_bytes < HEADER_BYTES || size_bytes > MEMORY_IMAGE_MAX_BYTES || memcmp(bytes, magic, sizeof magic) != 0)
        return STATUS_DAMAGED;
    for (size_t i = 0; i < MEMORY_IMAGE_NOTES; i++)
        image->notes[i] = load_u64(bytes + sizeof magic + i * 8);
    uint64_t count = load_u64(bytes + HEADER_BYTES - 8);
    size_t left_bytes = size_bytes - HEADER_BYTES;
    if (count > left_bytes / ENTRY_BYTES)
        return STATUS_DAMAGED;
    left_bytes -= (size_t)count * ENTRY_BYTES;
    uint8_t *content = bytes + HEADER_BYTES + count * ENTRY_BYTES;
    image->regions = calloc((size_t)count + 1, sizeof image->regions[0]);
    if (image->regions == NULL)
        return STATUS_FAILED;
    image->region_count = (size_t)count;
    remote_addr end = 0;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < image->region_count && status == STATUS_OK; i++)
        status = open_region(&image->regions[i], bytes + HEADER_BYTES + i * ENTRY_BYTES, &end, &content, &left_bytes);
    if (status == STATUS_OK && left_bytes == 0)
        return STATUS_OK;
    memory_image_release(image);
    return STATUS_DAMAGED;
}

void memory_image_release(struct memory_image *image) {
    free(image->regions);
    *image = (struct memory_image){.memory = {.read = read_image}};
}

/* The copy of the granule at `address`, read now if it was not before. Valid until the next one is. */
static enum status get_granule(struct memory_recorder *recorder, remote_addr address, const char **copy) {
    uint64_t index = 0;
    void *fresh = NULL;
    if (!map_get(&recorder->granules, address, &index)) {
        size_t size_before = recorder->bytes.size_bytes;
        index = size_before / recorder->granule_bytes;
        TRY(buffer_extend(&recorder->bytes, recorder->granule_bytes, &fresh));
        enum status status = memory_read(recorder->below, address, fresh, recorder->granule_bytes);
        if (status == STATUS_OK)
            status = map_set(&recorder->granules, address, index);
        if (status != STATUS_OK) {
            buffer_truncate(&recorder->bytes, size_before);
            return status;
        }
    }
    *copy = recorder->bytes.data + index * recorder->granule_bytes;
    return STATUS_OK;
}

static enum status read_recorded(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    struct memory_recorder *recorder = (struct memory_recorder *)memory;
    uint8_t *to = buffer;
    while (size_bytes > 0) {
        const char *copy = NULL;
        size_t from = (size_t)(address % recorder->granule_bytes);
        size_t part = recorder->granule_bytes - from;
        if (part > size_bytes)
            part = size_bytes;
        TRY(get_granule(recorder, address - from, &copy));
        memcpy(to, copy + from, part);
        to += part;
        address += part;
        size_bytes -= part;
    }
    return STATUS_OK;
}

void memory_recorder_init(struct memory_recorder *recorder, struct memory *below, size_t granule_bytes) {
    *recorder =
        (struct memory_recorder){.memory = {.read = read_recorded}, .below = below, .granule_bytes = granule_bytes};
    buffer_init(&recorder->bytes, MEMORY_IMAGE_MAX_BYTES);
}

void memory_recorder_release(struct memory_recorder *recorder) {
    map_release(&recorder->granules);
    buffer_release(&recorder->bytes);
}

static int compare_entries(const void *left, const void *right) {
    const struct map_entry *a = left, *b = right;
    return a->key < b->key ? -1 : a->key > b->key;
}

/* How many granules from `first` on follow each other in the target. */
static size_t run_length(const struct map_entry *granules, size_t count, size_t granule_bytes) {
    size_t length = 1;
    while (length < count && granules[length].key == granules[length - 1].key + granule_bytes)
        length++;
    return length;
}

static enum status append_u64(struct buffer *file, uint64_t value) {
    return buffer_append(file, &value, sizeof value);
}

static enum status append_header(const uint64_t notes[MEMORY_IMAGE_NOTES], const struct map_entry *granules,
                                 size_t count, size_t granule_bytes, struct buffer *file) {
    uint64_t regions = 0;
    TRY(buffer_append(file, magic, sizeof magic));
    for (size_t i = 0; i < MEMORY_IMAGE_NOTES; i++)
        TRY(append_u64(file, notes[i]));
    for (size_t i = 0; i < count; i += run_length(granules + i, count - i, granule_bytes))
        regions++;
    TRY(append_u64(file, regions));
    for (size_t i = 0; i < count;) {
        size_t length = run_length(granules + i, count - i, granule_bytes);
        TRY(append_u64(file, granules[i].key));
        TRY(append_u64(file, length * granule_bytes));
        i += length;
    }
    return STATUS_OK;
}

enum status memory_recorder_save(const struct memory_recorder *recorder, const uint64_t notes[MEMORY_IMAGE_NOTES],
                                 struct buffer *file) {
    struct map_entry *granules = malloc((recorder->granules.count + 1) * sizeof granules[0]);
    size_t count = 0;
    if (granules == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < recorder->granules.capacity; i++)
        if (recorder->granules.entries[i].used)
            granules[count++] = recorder->granules.entries[i];
    qsort(granules, count, sizeof granules[0], compare_entries);
    enum status status = append_header(notes, granules, count, recorder->granule_bytes, file);
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = buffer_append(file, recorder->bytes.data + granules[i].value * recorder->granule_bytes,
                               recorder->granule_bytes);
    free(granules);
    return status;
}
