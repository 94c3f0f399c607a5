#include "sampler/code_files.h"

#include "base/map.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FILES_MAX = 1 << 13,
    ROWS_MAX = 1 << 16,
    /* What an interpreter's data may be long for C functions to be looked for in them. */
    DATA_LIMIT_BYTES = 64 << 20,
    VDSO_MAX_BYTES = 64 << 10,
    BUILD_ID_MIN_BYTES = 8,
    BUILD_ID_MAX_BYTES = 64,
};

struct code_file_state {
    struct code_file file;
    uint32_t number;
    uint64_t inode;
    uint32_t device;
    struct elf_file *debug;
    /* NULL when there is none, or when it has not been loaded. */
    struct unwind_table *table;
    struct symbol_table *symbols;
    struct interpreter_code *interpreter;
    bool table_loaded;
    bool symbols_loaded;
    bool interpreter_looked_at;
};

struct code_files {
    struct code_file_state **states;
    size_t count;
    /* Unwind rows that were asked for: by file and address, their index in `rows`. */
    struct map row_indices;
    struct unwind_row *rows;
    size_t row_count;
};

enum status code_files_new(struct code_files **result) {
    struct code_files *files = calloc(1, sizeof *files);
    *result = files;
    return files != NULL ? STATUS_OK : STATUS_FAILED;
}

static void free_state(struct code_file_state *state) {
    if (state->interpreter != NULL)
        c_functions_free(state->interpreter->functions);
    free(state->interpreter);
    symbol_table_free(state->symbols);
    unwind_table_free(state->table);
    elf_file_free(state->debug);
    elf_file_free(state->file.file);
    free((void *)(uintptr_t)state->file.path);
    free(state);
}

void code_files_free(struct code_files *files) {
    if (files == NULL)
        return;
    for (size_t i = 0; i < files->count; i++)
        free_state(files->states[i]);
    free(files->states);
    free(files->rows);
    map_release(&files->row_indices);
    free(files);
}

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The system's own libraries, allocators that take the place of its, and the program that only calls libpython's main.
 */
static bool is_system_name(const char *name) {
    static const char *const prefixes[] = {
        "libc.so",     "libc-2.",      "libc.musl-",      "libm.so",  "libm-2.",    "ld-linux",
        "ld-musl-",    "ld-2.",        "libpthread",      "libdl.so", "libdl-2.",   "librt.so",
        "librt-2.",    "libgcc_s.",    "libstdc++.",      "libc++.",  "libc++abi.", "libjemalloc.",
        "libtcmalloc", "libmimalloc.", "libstrobe-agent", "python",
    };
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return name[0] == '[';
}

/* A library that everybody's allocations go through is nobody's own, whatever it is called. */
static bool allocates(struct elf_file *file) {
    uint64_t address = 0;
    return elf_file_find_symbol(file, "malloc", &address) == STATUS_OK &&
           elf_file_find_symbol(file, "posix_memalign", &address) == STATUS_OK;
}

/* The kernel's own object is in memory alone: a page or two. */
static int copy_to_file(struct process *process, const struct mapping *mapping) {
    char page[4096];
    int fd = memfd_create("vdso", MFD_CLOEXEC);
    if (fd < 0 || mapping->end - mapping->start > VDSO_MAX_BYTES)
        return fd;
    for (remote_addr at = mapping->start; at < mapping->end; at += sizeof page)
        if (memory_read(process_memory(process), at, page, sizeof page) != STATUS_OK ||
            write(fd, page, sizeof page) != (ssize_t)sizeof page)
            break;
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

static int open_mapping(struct process *process, const struct mapping *mapping) {
    int fd = -1;
    if (mapping->path[0] == '[')
        return copy_to_file(process, mapping);
    if (process_open_mapped_file(process, mapping, &fd) == STATUS_OK)
        return fd;
    return process_alive(process) ? -1 : open_by_path(mapping);
}

static void open_file(struct process *process, const struct mapping *mapping, struct code_file *file) {
    int fd = open_mapping(process, mapping);
    if (fd < 0)
        return;
    if (elf_file_open(fd, &file->file) == STATUS_OK) {
        file->machine = elf_file_machine(file->file);
        if (file->kind == CODE_LIBRARY && allocates(file->file))
            file->kind = CODE_SYSTEM;
    }
    (void)close(fd);
}

static struct code_file_state *find_state(const struct code_files *files, const struct mapping *mapping) {
    for (size_t i = 0; i < files->count; i++) {
        struct code_file_state *state = files->states[i];
        if (state->inode == mapping->inode && state->device == mapping->device &&
            strcmp(state->file.path, mapping->path) == 0)
            return state;
    }
    return NULL;
}

static struct code_file_state *add_state(struct code_files *files, const struct mapping *mapping) {
    struct code_file_state **states =
        files->count < FILES_MAX ? reallocarray(files->states, files->count + 1, sizeof(struct code_file_state *))
                                 : NULL;
    if (states == NULL)
        return NULL;
    files->states = states;
    struct code_file_state *state = calloc(1, sizeof *state);
    if (state == NULL)
        return NULL;
    state->inode = mapping->inode;
    state->device = mapping->device;
    state->number = (uint32_t)files->count;
    state->file.state = state;
    state->file.path = strdup(mapping->path);
    state->file.kind = is_system_name(file_name(mapping->path)) ? CODE_SYSTEM : CODE_LIBRARY;
    if (state->file.path == NULL) {
        free_state(state);
        return NULL;
    }
    files->states[files->count++] = state;
    return state;
}

struct code_file *code_files_take(struct code_files *files, struct process *process, const struct mapping *mapping) {
    struct code_file_state *state = find_state(files, mapping);
    if (state == NULL) {
        state = add_state(files, mapping);
        if (state != NULL)
            open_file(process, mapping, &state->file);
    }
    return state != NULL ? &state->file : NULL;
}

static const struct unwind_table *table_of(const struct code_file *file) {
    struct code_file_state *state = file->state;
    if (!state->table_loaded && file->file != NULL && unwind_table_load(file->file, &state->table) != STATUS_OK)
        state->table = NULL;
    state->table_loaded = true;
    return state->table;
}

enum status code_file_read_row(struct code_files *files, const struct code_file *file, uint64_t address,
                               struct unwind_row *row) {
    uint64_t index = 0, key = (uint64_t)file->state->number << 48 ^ address;
    const struct unwind_table *table = table_of(file);
    if (table == NULL)
        return STATUS_NOT_FOUND;
    if (map_get(&files->row_indices, key, &index)) {
        *row = files->rows[index];
        return STATUS_OK;
    }
    TRY(unwind_table_read_row(table, address, row));
    if (files->rows == NULL)
        files->rows = calloc(ROWS_MAX, sizeof *files->rows);
    if (files->row_count == ROWS_MAX) {
        map_clear(&files->row_indices);
        files->row_count = 0;
    }
    if (files->rows != NULL && map_set(&files->row_indices, key, files->row_count) == STATUS_OK)
        files->rows[files->row_count++] = *row;
    return STATUS_OK;
}

const struct unwind_range *code_file_range(const struct code_file *file, uint64_t address) {
    const struct unwind_table *table = table_of(file);
    return table != NULL ? unwind_table_find(table, address) : NULL;
}

/* GNU's convention: /usr/lib/debug/.build-id/ab/cdef….debug */
static enum status open_debug_file(struct process *process, struct elf_file *file, struct elf_file **debug) {
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
    TRY(process_open_path(process, path, &fd));
    enum status status = elf_file_open(fd, debug);
    (void)close(fd);
    return status;
}

static void load_symbols(struct code_file_state *state, struct process *process) {
    state->symbols_loaded = true;
    if (state->file.file == NULL)
        return;
    if (!symbol_table_has_local(state->file.file) &&
        open_debug_file(process, state->file.file, &state->debug) != STATUS_OK)
        state->debug = NULL;
    if (symbol_table_load(state->file.file, state->debug, &state->symbols) != STATUS_OK)
        state->symbols = NULL;
}

enum status code_file_symbol(struct code_file *file, struct process *process, uint64_t address, struct symbol *symbol) {
    struct code_file_state *state = file->state;
    if (!state->symbols_loaded)
        load_symbols(state, process);
    if (state->symbols == NULL)
        return STATUS_NOT_FOUND;
    TRY(symbol_table_find(state->symbols, address, symbol));
    /* One of unknown size does not reach into the next function, nor into the stubs of the linkage table. */
    const struct unwind_range *range = code_file_range(file, address);
    return symbol->size_bytes == 0 && range != NULL && symbol->start < range->start ? STATUS_NOT_FOUND : STATUS_OK;
}

enum machine_call code_file_call(const struct code_file *file, uint64_t address, uint64_t *target) {
    uint8_t before[MACHINE_CODE_CALL_BYTES];
    *target = 0;
    if (file->file == NULL || address < sizeof before ||
        elf_file_read(file->file, address - sizeof before, before, sizeof before) != STATUS_OK)
        return MACHINE_CALL_NONE;
    return machine_code_call(file->machine, before, address, target);
}

static void look_at_interpreter(struct code_file_state *state, uint64_t eval_address) {
    struct code_file *file = &state->file;
    const struct unwind_table *table = table_of(file);
    struct elf_data *data = NULL;
    state->interpreter_looked_at = true;
    if (table == NULL || elf_data_load(file->file, DATA_LIMIT_BYTES, &data) != STATUS_OK)
        return;
    struct interpreter_code *made = calloc(1, sizeof *made);
    if (made != NULL && eval_loop_find(file->file, data, table, eval_address, &made->loop) == STATUS_OK) {
        file->kind = CODE_INTERPRETER;
        if (c_functions_find_all(file->file, data, table, &made->functions) != STATUS_OK)
            made->functions = NULL;
        state->interpreter = made;
        made = NULL;
    }
    free(made);
    elf_data_free(data);
}

const struct interpreter_code *code_file_interpreter(struct code_file *file, uint64_t eval_address) {
    if (!file->state->interpreter_looked_at)
        look_at_interpreter(file->state, eval_address);
    return file->state->interpreter;
}
