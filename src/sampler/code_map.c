#include "sampler/code_map.h"

#include "base/map.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 1 << 13, ROWS_MAX = 1 << 16 };

/* Looking at the memory map costs a process of many mappings a millisecond. It is done when an address is in none that
 * is known, and now and then because a library can have come to be where another was. */
static const uint64_t miss_period_ns = 20000000;
static const uint64_t refresh_period_ns = 2000000000;

struct entry {
    struct code_file file;
    struct elf_file *debug;
    struct symbol_table *symbols;
    bool opened;
    bool symbols_loaded;
    uint64_t inode;
    uint32_t device;
};

/* What belongs to a mapping. */
struct origin {
    struct entry *entry; /* NULL: no file */
    bool placed;
    uint64_t bias; /* remote address - the file's own */
};

struct code_map {
    struct process *process;
    remote_addr interpreter_address;
    struct mappings mappings;
    struct origin *origins; /* one for each mapping */
    struct entry **entries;
    size_t entry_count;
    uint64_t refreshed_ns;
    /* Unwind rows that were asked for: by file and address, their index in `rows`. */
    struct map row_indices;
    struct unwind_row *rows;
    size_t row_count;
};

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The system's own libraries, allocators that take the place of its, and the program that only calls libpython's main.
 */
static bool is_system_name(const char *name) {
    static const char *const prefixes[] = {
        "libc.so",     "libc-2.",     "libc.musl-",      "libm.so",  "libm-2.",    "ld-linux",
        "ld-musl-",    "ld-2.",       "libpthread",      "libdl.so", "libdl-2.",   "librt.so",
        "librt-2.",    "libgcc_s.",   "libstdc++.",      "libc++.",  "libc++abi.", "libjemalloc.",
        "libtcmalloc", "libmimalloc", "libstrobe-agent", "python",
    };
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return name[0] == '[';
}

static struct entry *find_entry(struct code_map *map, const struct mapping *mapping) {
    for (size_t i = 0; i < map->entry_count; i++) {
        struct entry *entry = map->entries[i];
        if (entry->inode == mapping->inode && entry->device == mapping->device &&
            strcmp(entry->file.path, mapping->path) == 0)
            return entry;
    }
    return NULL;
}

static void free_entry(struct entry *entry) {
    symbol_table_free(entry->symbols);
    unwind_table_free(entry->file.table);
    elf_file_free(entry->debug);
    elf_file_free(entry->file.file);
    free((void *)(uintptr_t)entry->file.path);
    free(entry);
}

static struct entry *add_entry(struct code_map *map, const struct mapping *mapping) {
    if (map->entry_count == FILES_MAX)
        return NULL;
    struct entry **entries = reallocarray(map->entries, map->entry_count + 1, sizeof(struct entry *));
    if (entries == NULL)
        return NULL;
    map->entries = entries;
    struct entry *entry = calloc(1, sizeof *entry);
    if (entry == NULL)
        return NULL;
    entry->inode = mapping->inode;
    entry->device = mapping->device;
    entry->file.path = strdup(mapping->path);
    entry->file.index = (uint32_t)map->entry_count;
    entry->file.kind = is_system_name(file_name(mapping->path)) ? CODE_SYSTEM : CODE_LIBRARY;
    if (entry->file.path == NULL) {
        free_entry(entry);
        return NULL;
    }
    map->entries[map->entry_count++] = entry;
    return entry;
}

static bool holds(const struct mapping *mapping, remote_addr address) {
    return address >= mapping->start && address < mapping->end;
}

/* A library that is loaded later can be where another was: what is known of a place goes with its mapping. */
static enum status adopt_mappings(struct code_map *map, struct mappings *mappings) {
    struct origin *origins = calloc(mappings->count > 0 ? mappings->count : 1, sizeof *origins);
    if (origins == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < mappings->count; i++) {
        const struct mapping *mapping = &mappings->items[i];
        if (!mapping->executable || (mapping->path[0] != '/' && strcmp(mapping->path, "[vdso]") != 0))
            continue;
        struct entry *entry = find_entry(map, mapping);
        origins[i].entry = entry != NULL ? entry : add_entry(map, mapping);
        if (origins[i].entry != NULL && holds(mapping, map->interpreter_address))
            origins[i].entry->file.kind = CODE_INTERPRETER;
    }
    free(map->origins);
    mappings_release(&map->mappings);
    map->origins = origins;
    map->mappings = *mappings;
    return STATUS_OK;
}

static enum status refresh(struct code_map *map, uint64_t now_ns) {
    struct mappings mappings;
    map->refreshed_ns = now_ns;
    TRY(process_read_mappings(map->process, &mappings, NULL));
    /* A process that is ending has none any more; what is known is better. */
    if (mappings.count == 0 && map->mappings.count > 0) {
        mappings_release(&mappings);
        return STATUS_NO_PROCESS;
    }
    enum status status = adopt_mappings(map, &mappings);
    if (status != STATUS_OK)
        mappings_release(&mappings);
    return status;
}

enum status code_map_new(struct process *process, remote_addr interpreter_address, struct code_map **result) {
    *result = NULL;
    struct code_map *map = calloc(1, sizeof *map);
    if (map == NULL)
        return STATUS_FAILED;
    map->process = process;
    map->interpreter_address = interpreter_address;
    map->rows = calloc(ROWS_MAX, sizeof *map->rows);
    enum status status = map->rows != NULL ? refresh(map, 0) : STATUS_FAILED;
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
    for (size_t i = 0; i < map->entry_count; i++)
        free_entry(map->entries[i]);
    free(map->entries);
    free(map->origins);
    free(map->rows);
    map_release(&map->row_indices);
    mappings_release(&map->mappings);
    free(map);
}

/* The kernel's own object is in memory alone: a page or two. */
static int copy_to_file(struct code_map *map, const struct mapping *mapping) {
    char page[4096];
    int fd = memfd_create("vdso", MFD_CLOEXEC);
    for (remote_addr at = mapping->start; fd >= 0 && at < mapping->end; at += sizeof page)
        if (memory_read(process_memory(map->process), at, page, sizeof page) != STATUS_OK ||
            write(fd, page, sizeof page) != (ssize_t)sizeof page) {
            (void)close(fd);
            return -1;
        }
    return fd;
}

/* When the process has ended already, what it had mapped is most likely still where it was. */
static int open_by_path(const struct mapping *mapping) {
    struct stat status;
    int fd = open(mapping->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_ino != mapping->inode)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static int open_mapping(struct code_map *map, const struct mapping *mapping) {
    int fd = -1;
    if (mapping->path[0] == '[')
        return copy_to_file(map, mapping);
    if (process_open_mapped_file(map->process, mapping, &fd) == STATUS_OK)
        return fd;
    return process_alive(map->process) ? -1 : open_by_path(mapping);
}

/* A library that everybody's allocations go through is nobody's own, whatever it is called. */
static bool allocates(struct elf_file *file) {
    uint64_t address = 0;
    return elf_file_find_symbol(file, "malloc", &address) == STATUS_OK &&
           elf_file_find_symbol(file, "posix_memalign", &address) == STATUS_OK;
}

static void open_file(struct code_map *map, const struct mapping *mapping, struct entry *entry) {
    entry->opened = true;
    int fd = open_mapping(map, mapping);
    if (fd < 0)
        return;
    if (elf_file_open(fd, &entry->file.file) == STATUS_OK) {
        entry->file.machine = elf_file_machine(entry->file.file);
        if (unwind_table_load(entry->file.file, &entry->file.table) != STATUS_OK)
            entry->file.table = NULL;
        if (entry->file.kind == CODE_LIBRARY && allocates(entry->file.file))
            entry->file.kind = CODE_SYSTEM;
    }
    (void)close(fd);
}

/* Finds out where in its file a mapping is from; there is code at `probe`. */
static void place_mapping(struct code_map *map, const struct mapping *mapping, remote_addr probe,
                          struct origin *origin) {
    uint64_t address = 0;
    origin->placed = true;
    if (!origin->entry->opened)
        open_file(map, mapping, origin->entry);
    if (origin->entry->file.file == NULL)
        return;
    uint64_t offset = mapping->file_offset + (probe - mapping->start);
    if (elf_file_place(origin->entry->file.file, offset, &address) == STATUS_OK)
        origin->bias = probe - address;
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

enum status code_map_find(struct code_map *map, remote_addr address, struct code_place *place) {
    const struct mapping *mapping = find_code(map, address);
    if (mapping == NULL)
        return STATUS_NOT_FOUND;
    struct origin *origin = &map->origins[mapping - map->mappings.items];
    *place = (struct code_place){.address = address};
    if (origin->entry == NULL)
        return STATUS_OK;
    if (!origin->placed)
        place_mapping(map, mapping, address, origin);
    place->file = &origin->entry->file;
    place->address = address - origin->bias;
    return STATUS_OK;
}

enum status code_map_interpreter(struct code_map *map, struct code_place *place) {
    if (map->interpreter_address == 0)
        return STATUS_NOT_FOUND;
    TRY(code_map_find(map, map->interpreter_address, place));
    return place->file != NULL && place->file->file != NULL ? STATUS_OK : STATUS_NOT_FOUND;
}

enum status code_place_read_row(struct code_map *map, const struct code_place *place, struct unwind_row *row) {
    uint64_t index = 0;
    if (place->file == NULL || place->file->table == NULL)
        return STATUS_NOT_FOUND;
    uint64_t key = (uint64_t)place->file->index << 48 ^ place->address;
    if (map_get(&map->row_indices, key, &index)) {
        *row = map->rows[index];
        return STATUS_OK;
    }
    TRY(unwind_table_read_row(place->file->table, place->address, row));
    if (map->row_count == ROWS_MAX) {
        map_clear(&map->row_indices);
        map->row_count = 0;
    }
    if (map_set(&map->row_indices, key, map->row_count) == STATUS_OK)
        map->rows[map->row_count++] = *row;
    return STATUS_OK;
}

const struct unwind_range *code_place_range(const struct code_place *place) {
    return place->file != NULL && place->file->table != NULL ? unwind_table_find(place->file->table, place->address)
                                                             : NULL;
}

enum { BUILD_ID_MIN_BYTES = 8, BUILD_ID_MAX_BYTES = 64 };

/* GNU's convention: /usr/lib/debug/.build-id/ab/cdef….debug */
static enum status open_debug_file(struct code_map *map, struct elf_file *file, struct elf_file **debug) {
    struct elf_section note;
    char path[32 + 2 * BUILD_ID_MAX_BYTES + 16];
    TRY(elf_file_read_section(file, ".note.gnu.build-id", &note));
    /* u32 name size (4), u32 size, u32 type, "GNU\0", the id */
    size_t size = note.size_bytes > 16 ? note.size_bytes - 16 : 0;
    if (size < BUILD_ID_MIN_BYTES || size > BUILD_ID_MAX_BYTES)
        return STATUS_NOT_FOUND;
    int length = snprintf(path, sizeof path, "/usr/lib/debug/.build-id/%02x/", note.data[16]);
    for (size_t i = 1; i < size; i++)
        length += snprintf(path + length, sizeof path - (size_t)length, "%02x", note.data[16 + i]);
    (void)snprintf(path + length, sizeof path - (size_t)length, ".debug");
    int fd = -1;
    TRY(process_open_path(map->process, path, &fd));
    enum status status = elf_file_open(fd, debug);
    (void)close(fd);
    return status;
}

static void load_symbols(struct code_map *map, struct entry *entry) {
    entry->symbols_loaded = true;
    if (entry->file.file == NULL)
        return;
    if (!symbol_table_has_local(entry->file.file) && open_debug_file(map, entry->file.file, &entry->debug) != STATUS_OK)
        entry->debug = NULL;
    if (symbol_table_load(entry->file.file, entry->debug, &entry->symbols) != STATUS_OK)
        entry->symbols = NULL;
}

enum status code_place_symbol(struct code_map *map, const struct code_place *place, struct symbol *symbol) {
    if (place->file == NULL)
        return STATUS_NOT_FOUND;
    struct entry *entry = map->entries[place->file->index];
    if (!entry->symbols_loaded)
        load_symbols(map, entry);
    if (entry->symbols == NULL)
        return STATUS_NOT_FOUND;
    TRY(symbol_table_find(entry->symbols, place->address, symbol));
    /* One of unknown size does not reach into the next function, nor into the stubs of the linkage table. */
    const struct unwind_range *range = code_place_range(place);
    return symbol->size_bytes == 0 && range != NULL && symbol->start < range->start ? STATUS_NOT_FOUND : STATUS_OK;
}

enum machine_call code_place_call(const struct code_place *place, uint64_t *target) {
    uint8_t before[MACHINE_CODE_CALL_BYTES];
    *target = 0;
    if (place->file == NULL || place->file->file == NULL ||
        elf_file_read(place->file->file, place->address - sizeof before, before, sizeof before) != STATUS_OK)
        return MACHINE_CALL_NONE;
    return machine_code_call(place->file->machine, before, place->address, target);
}
