#include "sampler/code_map.h"

#include <stdlib.h>
#include <string.h>

/* Looking at the memory map costs a process of many mappings a millisecond. It is done when an address is in none that
 * is known, and now and then because a library can have come to be where another was. */
static const uint64_t miss_period_ns = 20000000;
static const uint64_t refresh_period_ns = 2000000000;

/* What belongs to a mapping. */
struct origin {
    bool taken;             /* `file` is known, if there is one */
    struct code_file *file; /* NULL: none */
    uint64_t bias;          /* remote address - the file's own */
};

struct code_map {
    struct process *process;
    struct code_files *files;
    struct mappings mappings;
    struct origin *origins; /* one for each mapping */
    uint64_t refreshed_ns;
};

static bool same_mapping(const struct mapping *a, const struct mapping *b) {
    return a->start == b->start && a->file_offset == b->file_offset && a->inode == b->inode && a->device == b->device &&
           a->executable == b->executable && strcmp(a->path, b->path) == 0;
}

/* What was found out of mappings that are still there stays. */
static void keep_origins(const struct code_map *map, const struct mappings *mappings, struct origin *origins) {
    size_t old = 0;
    for (size_t i = 0; i < mappings->count; i++) {
        while (old < map->mappings.count && map->mappings.items[old].start < mappings->items[i].start)
            old++;
        if (old < map->mappings.count && same_mapping(&map->mappings.items[old], &mappings->items[i]))
            origins[i] = map->origins[old];
    }
}

static enum status refresh(struct code_map *map, uint64_t now_ns) {
    struct mappings mappings;
    map->refreshed_ns = now_ns;
    TRY(process_read_mappings(map->process, &mappings, NULL));
    struct origin *origins = calloc(mappings.count > 0 ? mappings.count : 1, sizeof *origins);
    /* A process that is ending has no memory any more; what is known is better. */
    if (origins == NULL || (mappings.count == 0 && map->mappings.count > 0)) {
        free(origins);
        mappings_release(&mappings);
        return STATUS_FAILED;
    }
    keep_origins(map, &mappings, origins);
    free(map->origins);
    mappings_release(&map->mappings);
    map->origins = origins;
    map->mappings = mappings;
    return STATUS_OK;
}

enum status code_map_new(struct process *process, struct code_files *files, struct code_map **result) {
    *result = NULL;
    struct code_map *map = calloc(1, sizeof *map);
    if (map == NULL)
        return STATUS_FAILED;
    map->process = process;
    map->files = files;
    enum status status = refresh(map, 0);
    if (status != STATUS_OK) {
        code_map_free(map);
        return status;
    }
    *result = map;
    return STATUS_OK;
}

void code_map_free(struct code_map *map) {
    if (map == NULL)
        return;
    free(map->origins);
    mappings_release(&map->mappings);
    free(map);
}

static const struct mapping *find_code(const struct code_map *map, remote_addr address) {
    const struct mapping *mapping = mappings_find(&map->mappings, address);
    return mapping != NULL && mapping->executable ? mapping : NULL;
}

void code_map_refresh(struct code_map *map, remote_addr address, uint64_t now_ns) {
    uint64_t period_ns = find_code(map, address) != NULL ? refresh_period_ns : miss_period_ns;
    if (now_ns > map->refreshed_ns && now_ns - map->refreshed_ns >= period_ns && refresh(map, now_ns) != STATUS_OK)
        return;
}

/* Finds out which file a mapping is of, and where in it; there is code at `probe`. */
static void take_file(struct code_map *map, const struct mapping *mapping, remote_addr probe, struct origin *origin) {
    uint64_t address = 0;
    origin->taken = true;
    if (mapping->path[0] != '/' && strcmp(mapping->path, "[vdso]") != 0)
        return;
    origin->file = code_files_take(map->files, map->process, mapping);
    if (origin->file == NULL || origin->file->file == NULL)
        return;
    uint64_t offset = mapping->file_offset + (probe - mapping->start);
    if (elf_file_place(origin->file->file, offset, &address) == STATUS_OK)
        origin->bias = probe - address;
}

enum status code_map_find(struct code_map *map, remote_addr address, struct code_place *place) {
    const struct mapping *mapping = find_code(map, address);
    if (mapping == NULL)
        return STATUS_NOT_FOUND;
    struct origin *origin = &map->origins[mapping - map->mappings.items];
    if (!origin->taken)
        take_file(map, mapping, address, origin);
    *place = (struct code_place){.file = origin->file, .address = address - origin->bias};
    return STATUS_OK;
}
