#include "sampler/locate.h"

#include "elf/elf_image.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OBJECTS_MAX = 1 << 16,
    SCAN_CHUNK_BYTES = 1 << 16,
    SCAN_MAX_BYTES = 1 << 27, /* all scans of one search together */
    PATH_SHOWN_BYTES = 256,
};

/* First bytes of _PyRuntime from 3.13 (Include/internal/pycore_debug_offsets.h, _Py_Debug_Cookie). */
static const char debug_cookie[8] = {'x', 'd', 'e', 'b', 'u', 'g', 'p', 'y'};

enum preference { PREFER_LIBRARY, PREFER_EXECUTABLE, PREFER_PYTHON, PREFER_OTHER };

/* One mapped ELF object: the mappings items[first] (file offset 0) to items[last] of the map. */
struct object {
    size_t first, last;
    enum preference preference;
    struct elf_image image;
    bool opened;
    bool searched;
};

struct search {
    struct process *process;
    struct mappings mappings;
    struct object *objects; /* in order of preference */
    size_t object_count;
    struct located *located;
    uint64_t scanned_bytes;
};

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool begins_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static int parse_minor(const char *digits) {
    char *end = NULL;
    long minor = strtol(digits, &end, 10);
    return end > digits && end - digits <= 2 && minor > 0 ? (int)minor : 0;
}

int locate_minor_from_name(const char *path) {
    static const char *const marks[] = {"libpython3.", "python3.", "cpython-3"};
    const char *name = base_name(path);
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        const char *found = strstr(name, marks[i]);
        int minor = found != NULL ? parse_minor(found + strlen(marks[i])) : 0;
        if (minor != 0)
            return minor;
    }
    return 0;
}

/* ---- the objects of the map ---- */

static bool same_file(const struct mapping *a, const struct mapping *b) {
    return a->inode == b->inode && a->device == b->device && strcmp(a->path, b->path) == 0;
}

/* The last mapping of the object that begins at `first`. Anonymous memory in between and behind is .bss and padding. */
static size_t last_of_object(const struct mappings *mappings, size_t first, bool *has_code) {
    size_t last = first;
    *has_code = mappings->items[first].executable;
    for (size_t i = first + 1; i < mappings->count; i++) {
        const struct mapping *mapping = &mappings->items[i];
        if (mapping->inode == 0 && mapping->path[0] == '\0')
            continue;
        if (!same_file(mapping, &mappings->items[first]))
            break;
        /* The start of another copy; or lld's code segment, which may share the first page of the file. */
        if (mapping->file_offset == 0 && (*has_code || mapping->start != mappings->items[i - 1].end))
            break;
        *has_code |= mapping->executable;
        last = i;
    }
    return last;
}

static enum preference preference_of(const struct mapping *mapping, const char *executable) {
    const char *name = base_name(mapping->path);
    if (begins_with(name, "libpython"))
        return PREFER_LIBRARY;
    if (strcmp(mapping->path, executable) == 0)
        return PREFER_EXECUTABLE;
    return begins_with(name, "python") ? PREFER_PYTHON : PREFER_OTHER;
}

static int compare_objects(const void *left, const void *right) {
    const struct object *a = left, *b = right;
    if (a->preference != b->preference)
        return (a->preference > b->preference) - (a->preference < b->preference);
    /* The dynamic linker maps from above to below, so of two copies the higher is the older. */
    return (a->first < b->first) - (a->first > b->first);
}

static enum status list_objects(struct search *search, const char *executable) {
    const struct mappings *mappings = &search->mappings;
    size_t capacity = mappings->count < OBJECTS_MAX ? mappings->count : OBJECTS_MAX;
    search->objects = calloc(capacity + 1, sizeof *search->objects);
    if (search->objects == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < mappings->count && search->object_count < capacity; i++) {
        const struct mapping *mapping = &mappings->items[i];
        bool has_code = false;
        if (mapping->file_offset != 0 || mapping->inode == 0 || !mapping->readable)
            continue;
        struct object object = {.first = i, .last = last_of_object(mappings, i, &has_code)};
        object.preference = preference_of(mapping, executable);
        /* A file that is only read through its mapping is no object of the program. */
        if (has_code)
            search->objects[search->object_count++] = object;
        i = object.last;
    }
    qsort(search->objects, search->object_count, sizeof *search->objects, compare_objects);
    return STATUS_OK;
}

static bool open_object(struct search *search, struct object *object) {
    if (object->opened)
        return true;
    remote_addr base = search->mappings.items[object->first].start;
    object->opened = elf_image_open(&object->image, process_memory(search->process), base) == STATUS_OK;
    return object->opened;
}

/* ---- what tells the version ---- */

/* From functions that first appeared, as exported symbols, in one version (Doc/data/stable_abi.dat and the headers). */
static int minor_from_symbols(struct elf_image *image) {
    static const struct {
        const char *symbol;
        int minor;
    } first_in[] = {
        {"PyModule_AddObjectRef", 10},
        {"PyObject_CallNoArgs", 9},
        {"PyCode_NewWithPosOnlyArgs", 8},
        {"PyContext_New", 7},
    };
    remote_addr ignored = 0;
    for (size_t i = 0; i < sizeof first_in / sizeof first_in[0]; i++)
        if (elf_image_find(image, first_in[i].symbol, &ignored) == STATUS_OK)
            return first_in[i].minor;
    return 0;
}

static int minor_from_any_name(const struct mappings *mappings) {
    for (size_t i = 0; i < mappings->count; i++) {
        int minor = mappings->items[i].executable ? locate_minor_from_name(mappings->items[i].path) : 0;
        if (minor != 0)
            return minor;
    }
    return 0;
}

static void fill_hints(struct search *search, struct object *object, struct runtime_symbols *symbols) {
    struct elf_image *image = &object->image;
    symbols->minor_hint = locate_minor_from_name(search->mappings.items[object->first].path);
    if (symbols->py_version == 0 && symbols->minor_hint == 0)
        symbols->minor_hint = minor_from_symbols(image);
    if (symbols->py_version == 0 && symbols->minor_hint == 0)
        symbols->minor_hint = minor_from_any_name(&search->mappings);
}

static void add_candidate(struct search *search, struct object *object, remote_addr runtime, remote_addr py_version) {
    struct located *located = search->located;
    if (located->count == LOCATED_MAX)
        return;
    for (size_t i = 0; i < located->count; i++)
        if (located->candidates[i].runtime == runtime)
            return;
    struct runtime_symbols *symbols = &located->candidates[located->count++];
    *symbols = (struct runtime_symbols){.runtime = runtime, .py_version = py_version};
    fill_hints(search, object, symbols);
}

/* ---- the ways to find a runtime in an object, cheapest first ---- */

static bool search_dynamic_symbols(struct search *search, struct object *object) {
    remote_addr runtime = 0, py_version = 0;
    if (elf_image_find(&object->image, "_PyRuntime", &runtime) != STATUS_OK)
        return false;
    if (elf_image_find(&object->image, "Py_Version", &py_version) != STATUS_OK)
        py_version = 0;
    add_candidate(search, object, runtime, py_version);
    return true;
}

static enum status open_object_file(struct search *search, const struct object *object, struct elf_file **file) {
    int fd = -1;
    TRY(process_open_mapped_file(search->process, &search->mappings.items[object->first], &fd));
    enum status status = elf_file_open(fd, file);
    (void)close(fd);
    return status;
}

static bool search_file(struct search *search, struct object *object) {
    struct elf_file *file = NULL;
    if (open_object_file(search, object, &file) != STATUS_OK)
        return false;
    uint64_t runtime = 0, py_version = 0, size_bytes = 0, bias = object->image.load_bias;
    bool found = elf_file_find_section(file, ".PyRuntime", &runtime, &size_bytes) == STATUS_OK ||
                 elf_file_find_symbol(file, "_PyRuntime", &runtime) == STATUS_OK;
    if (found) {
        bool has_version = elf_file_find_symbol(file, "Py_Version", &py_version) == STATUS_OK;
        add_candidate(search, object, runtime + bias, has_version ? py_version + bias : 0);
    }
    elf_file_free(file);
    return found;
}

static bool scan_mapping(struct search *search, struct object *object, const struct mapping *mapping) {
    char chunk[SCAN_CHUNK_BYTES];
    for (remote_addr at = mapping->start; at < mapping->end && search->scanned_bytes < SCAN_MAX_BYTES;) {
        size_t size_bytes = mapping->end - at < sizeof chunk ? (size_t)(mapping->end - at) : sizeof chunk;
        if (memory_read(process_memory(search->process), at, chunk, size_bytes) != STATUS_OK)
            return false;
        search->scanned_bytes += size_bytes;
        for (size_t i = 0; i + sizeof debug_cookie <= size_bytes; i += sizeof debug_cookie)
            if (memcmp(chunk + i, debug_cookie, sizeof debug_cookie) == 0) {
                add_candidate(search, object, at + i, 0);
                return true;
            }
        at += size_bytes;
    }
    return false;
}

/* 3.13 and later, when neither symbols nor the file are to be had: the runtime is initialised data. */
static bool search_cookie(struct search *search, struct object *object) {
    for (size_t i = object->first; i <= object->last; i++) {
        const struct mapping *mapping = &search->mappings.items[i];
        if (mapping->writable && mapping->readable && mapping->inode != 0 && scan_mapping(search, object, mapping))
            return true;
    }
    return false;
}

typedef bool search_way(struct search *search, struct object *object);

static void search_objects(struct search *search, search_way *way, enum preference least) {
    for (size_t i = 0; i < search->object_count && search->located->count < LOCATED_MAX; i++) {
        struct object *object = &search->objects[i];
        if (object->preference <= least && !object->searched && open_object(search, object) && object->image.is_64bit)
            object->searched = way(search, object);
    }
}

/* ---- what is said when there is none ---- */

static bool has_library(const struct search *search) {
    return search->object_count > 0 && search->objects[0].preference == PREFER_LIBRARY;
}

/* The object of the executable, opened; NULL when there is none that can be read. */
static struct object *executable_object(struct search *search) {
    for (size_t i = 0; i < search->object_count; i++)
        if (search->objects[i].preference == PREFER_EXECUTABLE)
            return open_object(search, &search->objects[i]) ? &search->objects[i] : NULL;
    return NULL;
}

static enum status explain_absence(struct search *search, const char *executable, struct error *error) {
    int pid = (int)process_pid(search->process);
    if (!process_alive(search->process))
        return error_set(error, STATUS_NO_PROCESS, "process %d has ended", pid);
    struct object *object = executable_object(search);
    if (object != NULL && !object->image.is_64bit)
        return error_set(error, STATUS_NOT_PYTHON, "process %d is a 32-bit program (executable %.*s)", pid,
                         PATH_SHOWN_BYTES, executable);
    /* An exec takes effect before the new program is mapped, and the program before its libraries. */
    bool incomplete = object == NULL || elf_image_needs(&object->image, "libpython");
    if (incomplete && !has_library(search))
        return error_set(error, STATUS_TORN, "process %d is still starting (executable %.*s)", pid, PATH_SHOWN_BYTES,
                         executable);
    bool like_python = has_library(search) || begins_with(base_name(executable), "python");
    return error_set(error, STATUS_NOT_PYTHON, "process %d is not %s (executable %.*s)", pid,
                     like_python ? "a Python that strobe knows" : "Python", PATH_SHOWN_BYTES, executable);
}

/* ---- the search ---- */

static enum status search_open(struct search *search, struct process *process, char *executable, size_t capacity,
                               struct error *error) {
    *search = (struct search){.process = process};
    if (process_read_executable(process, executable, capacity) != STATUS_OK)
        (void)snprintf(executable, capacity, "unknown");
    TRY(process_read_mappings(process, &search->mappings, error));
    enum status status = list_objects(search, executable);
    if (status != STATUS_OK)
        return error_set(error, status, "out of memory");
    return STATUS_OK;
}

static void search_release(struct search *search) {
    free(search->objects);
    mappings_release(&search->mappings);
}

static void search_to(struct search *search, enum preference least) {
    static search_way *const ways[] = {search_dynamic_symbols, search_file, search_cookie};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        search_objects(search, ways[i], least);
}

static enum status locate(struct process *process, enum preference least, struct located *located,
                          struct error *error) {
    *located = (struct located){0};
    char executable[PATH_MAX];
    struct search search;
    enum status status = search_open(&search, process, executable, sizeof executable, error);
    search.located = located;
    if (status == STATUS_OK) {
        search_to(&search, least);
        if (located->count == 0)
            search_to(&search, PREFER_OTHER);
        if (located->count == 0)
            status = explain_absence(&search, executable, error);
    }
    search_release(&search);
    return status;
}

enum status locate_runtime(struct process *process, struct located *located, struct error *error) {
    return locate(process, PREFER_PYTHON, located, error);
}

enum status locate_runtime_everywhere(struct process *process, struct located *located, struct error *error) {
    return locate(process, PREFER_OTHER, located, error);
}

/* ---- asyncio ---- */

/* Modules/_asynciomodule.c: `_AsyncioDebug` (3.14), `_Py_AsyncioDebug` (3.15), in a section of its own; not exported,
 * so it takes the file. */
static enum status asyncio_in_object(struct search *search, struct object *object, remote_addr *address) {
    if (!open_object(search, object) || !object->image.is_64bit)
        return STATUS_NOT_FOUND;
    if (elf_image_find(&object->image, "_Py_AsyncioDebug", address) == STATUS_OK ||
        elf_image_find(&object->image, "_AsyncioDebug", address) == STATUS_OK)
        return STATUS_OK;
    struct elf_file *file = NULL;
    TRY(open_object_file(search, object, &file));
    uint64_t in_file = 0, size_bytes = 0;
    enum status status = elf_file_find_section(file, ".AsyncioDebug", &in_file, &size_bytes);
    if (status != STATUS_OK)
        status = elf_file_find_symbol(file, "_Py_AsyncioDebug", &in_file);
    if (status != STATUS_OK)
        status = elf_file_find_symbol(file, "_AsyncioDebug", &in_file);
    elf_file_free(file);
    if (status == STATUS_OK)
        *address = in_file + object->image.load_bias;
    return status;
}

static bool holds(struct search *search, struct object *object, remote_addr address) {
    return open_object(search, object) && address >= object->image.start && address < object->image.end;
}

enum status locate_asyncio_debug(struct process *process, const struct runtime_symbols *symbols, remote_addr *address) {
    char executable[PATH_MAX];
    struct search search;
    enum status status = search_open(&search, process, executable, sizeof executable, NULL);
    bool found = false;
    for (size_t i = 0; status == STATUS_OK && i < search.object_count && !found; i++) {
        struct object *object = &search.objects[i];
        const char *path = search.mappings.items[object->first].path;
        if (begins_with(base_name(path), "_asyncio.") || holds(&search, object, symbols->runtime))
            found = asyncio_in_object(&search, object, address) == STATUS_OK;
    }
    search_release(&search);
    return status == STATUS_OK && !found ? STATUS_NOT_FOUND : status;
}
