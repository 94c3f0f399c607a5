#include "cpython/thread_names.h"

#include "base/array.h"
#include "cpython/dict.h"
#include "cpython/long.h"
#include "cpython/str.h"

#include <stdlib.h>

enum {
    MAX_NAME_CHARACTERS = 1 << 20,
    BYTES_PER_CHARACTER = 12, /* a surrogate pair as two escapes */
    /* Of all names together; threads beyond have none. */
    MAX_NAMES_BYTES = 64 << 20,
};

struct collector {
    struct runtime *runtime;
    struct arena *arena;
    struct thread_name *items; /* grown, and moved to the arena at the end */
    size_t count;
    size_t capacity;
    size_t names_left_bytes;
    const struct map *wanted;
};

static enum status read_thread_object(struct collector *collector, remote_addr object, struct thread_name *entry) {
    struct runtime *runtime = collector->runtime;
    remote_addr name = 0, native_id = 0;
    size_t limit_bytes = (size_t)MAX_NAME_CHARACTERS * BYTES_PER_CHARACTER;
    if (collector->names_left_bytes < limit_bytes)
        limit_bytes = collector->names_left_bytes;
    TRY(instance_find_text(runtime, object, "_name", &name));
    struct buffer text;
    buffer_init(&text, limit_bytes);
    enum status status = string_read(runtime, name, MAX_NAME_CHARACTERS, &text, NULL);
    if (status == STATUS_OK) {
        collector->names_left_bytes -= text.size_bytes;
        entry->name = arena_copy_text(collector->arena, buffer_text(&text), text.size_bytes);
        status = entry->name != NULL ? STATUS_OK : STATUS_FAILED;
    }
    buffer_release(&text);
    TRY(status);
    if (instance_find_text(runtime, object, "_native_id", &native_id) != STATUS_OK ||
        long_read_u64(runtime, native_id, &entry->native_id) != STATUS_OK)
        entry->native_id = 0;
    return STATUS_OK;
}

static enum status add_entry(struct collector *collector, const struct thread_name *entry) {
    TRY(array_reserve((void **)&collector->items, &collector->capacity, collector->count + 1, sizeof *entry));
    collector->items[collector->count++] = *entry;
    return STATUS_OK;
}

static enum status visit_active(void *context, remote_addr key, remote_addr value) {
    struct collector *collector = context;
    struct thread_name entry = {0};
    uint64_t ignored = 0;
    enum status status = long_read_u64(collector->runtime, key, &entry.thread_id);
    if (status == STATUS_OK && collector->wanted != NULL && !map_get(collector->wanted, entry.thread_id, &ignored))
        return STATUS_OK;
    if (status == STATUS_OK)
        status = read_thread_object(collector, value, &entry);
    if (status == STATUS_OK)
        return add_entry(collector, &entry);
    /* One unreadable entry costs one name. */
    return status == STATUS_FAILED ? status : STATUS_OK;
}

/* sys.modules['threading']._active */
static enum status find_active(struct runtime *runtime, const struct interp *interp, remote_addr *active) {
    remote_addr module = 0, dict = 0;
    if (interp->modules == 0)
        return STATUS_NOT_FOUND;
    TRY(dict_find_text(runtime, interp->modules, "threading", &module));
    TRY(memory_read_u64(runtime->objects, module + runtime->layout.module.md_dict, &dict));
    return dict_find_text(runtime, dict, "_active", active);
}

static int compare_ids(const void *left, const void *right) {
    const struct thread_name *a = left, *b = right;
    return a->thread_id < b->thread_id ? -1 : a->thread_id > b->thread_id;
}

enum status thread_names_read(struct runtime *runtime, const struct interp *interp, const struct map *wanted,
                              struct arena *arena, struct thread_names *names) {
    struct collector collector = {
        .runtime = runtime, .arena = arena, .wanted = wanted, .names_left_bytes = MAX_NAMES_BYTES};
    remote_addr active = 0;
    *names = (struct thread_names){0};
    if (find_active(runtime, interp, &active) != STATUS_OK)
        return STATUS_OK;
    enum status status = dict_visit(runtime, active, visit_active, &collector);
    if (status != STATUS_FAILED) {
        names->items = arena_take(arena, collector.count * sizeof names->items[0] + 1);
        status = names->items != NULL ? STATUS_OK : STATUS_FAILED;
        for (size_t i = 0; status == STATUS_OK && i < collector.count; i++)
            names->items[names->count++] = collector.items[i];
        if (status == STATUS_OK && names->count > 1)
            qsort(names->items, names->count, sizeof names->items[0], compare_ids);
    }
    free(collector.items);
    return status;
}

const struct thread_name *thread_names_find(const struct thread_names *names, uint64_t thread_id) {
    const struct thread_name sought = {.thread_id = thread_id};
    if (names->count == 0)
        return NULL;
    return bsearch(&sought, names->items, names->count, sizeof names->items[0], compare_ids);
}

bool thread_name_is_of(const struct thread_name *name, uint64_t native_id) {
    return native_id == 0 || name->native_id == 0 || name->native_id == native_id;
}
