#include "cpython/repr_parts.h"

#include "base/bytes.h"
#include "cpython/copy.h"
#include "cpython/dict.h"
#include "cpython/long.h"

#include <string.h>

enum { POINTER_BYTES = 8, CHUNK_POINTERS = 64, DEQUE_BLOCK_ITEMS = 64 };

/* Each item puts at least one character, so the room bounds the loop. */
enum status repr_put_items(struct repr *repr, remote_addr items, uint64_t count) {
    uint8_t chunk[CHUNK_POINTERS * POINTER_BYTES];
    bool first = true;
    for (uint64_t done = 0; done < count;) {
        uint64_t step = count - done < CHUNK_POINTERS ? count - done : CHUNK_POINTERS;
        TRY(memory_read(repr->runtime->objects, items + done * POINTER_BYTES, chunk, step * POINTER_BYTES));
        for (uint64_t i = 0; i < step; i++) {
            TRY(repr_put_comma(repr, &first));
            TRY(repr_put_value(repr, load_u64(chunk + i * POINTER_BYTES)));
        }
        done += step;
    }
    return STATUS_OK;
}

enum status repr_show_list(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    const struct layout *layout = &repr->runtime->layout;
    struct copy head;
    bool entered = false;
    TRY(copy_read(repr->runtime->objects, object, layout->list.ob_item, &head));
    uint64_t count = copy_u64(&head, layout->object.ob_size);
    if (count == 0)
        return repr_put(repr, "[]");
    TRY(repr_enter(repr, object, "[", "]", &entered));
    if (!entered)
        return STATUS_OK;
    TRY(repr_put_items(repr, copy_u64(&head, layout->list.ob_item), count));
    return repr_leave(repr, "]");
}

enum status repr_show_tuple(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    const struct layout *layout = &repr->runtime->layout;
    uint64_t count = 0;
    bool entered = false;
    TRY(memory_read_u64(repr->runtime->objects, object + layout->object.ob_size, &count));
    if (count == 0)
        return repr_put(repr, "()");
    TRY(repr_enter(repr, object, "(", ")", &entered));
    if (!entered)
        return STATUS_OK;
    TRY(repr_put_items(repr, object + layout->tuple.ob_item, count));
    return repr_leave(repr, count == 1 ? ",)" : ")");
}

struct dict_walk {
    struct repr *repr;
    bool first;
};

static enum status put_entry(void *context, remote_addr key, remote_addr value) {
    struct dict_walk *walk = context;
    TRY(repr_put_comma(walk->repr, &walk->first));
    TRY(repr_put_value(walk->repr, key));
    TRY(repr_put(walk->repr, ": "));
    return repr_put_value(walk->repr, value);
}

enum status repr_show_dict(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    struct dict_walk walk = {.repr = repr, .first = true};
    uint64_t used = 0;
    bool entered = false;
    TRY(memory_read_u64(repr->runtime->objects, object + repr->runtime->layout.dict.ma_used, &used));
    if (used == 0)
        return repr_put(repr, "{}");
    TRY(repr_enter(repr, object, "{", "}", &entered));
    if (!entered)
        return STATUS_OK;
    TRY(dict_visit(repr->runtime, object, put_entry, &walk));
    return repr_leave(repr, "}");
}

/* frozendict (3.15+): PyFrozenDictObject begins with a PyDictObject (Include/internal/pycore_dict.h 3.15). */
enum status repr_show_frozendict(struct repr *repr, remote_addr object, const struct type_info *type) {
    uint64_t used = 0;
    TRY(memory_read_u64(repr->runtime->objects, object + repr->runtime->layout.dict.ma_used, &used));
    TRY(repr_put_format(repr, "%s(", type_name(type)));
    if (used > 0)
        TRY(repr_show_dict(repr, object, type));
    return repr_put(repr, ")");
}

/* defdictobject: PyDictObject, whose last field is ma_values, then default_factory (Modules/_collectionsmodule.c, 3.8
 * to 3.15). */
enum status repr_show_defaultdict(struct repr *repr, remote_addr object, const struct type_info *type) {
    remote_addr factory = 0;
    TRY(memory_read_u64(repr->runtime->objects, object + repr->runtime->layout.dict.ma_values + POINTER_BYTES,
                        &factory));
    TRY(repr_put_format(repr, "%s(", type_name(type)));
    if (factory == 0)
        TRY(repr_put(repr, "None"));
    else
        TRY(repr_put_value(repr, factory));
    TRY(repr_put(repr, ", "));
    TRY(repr_show_dict(repr, object, type));
    return repr_put(repr, ")");
}

/* setentry is {key, hash}; a deleted one holds the dummy key and hash -1, which no real key has
 * (Objects/setobject.c, 3.8 to 3.15). */
static enum status put_set_items(struct repr *repr, remote_addr table, uint64_t slots, uint64_t used) {
    uint8_t chunk[CHUNK_POINTERS * 2 * POINTER_BYTES];
    bool first = true;
    uint64_t seen = 0;
    for (uint64_t done = 0; done < slots && seen < used;) {
        uint64_t step = slots - done < CHUNK_POINTERS ? slots - done : CHUNK_POINTERS;
        TRY(memory_read(repr->runtime->objects, table + done * 2 * POINTER_BYTES, chunk, step * 2 * POINTER_BYTES));
        for (uint64_t i = 0; i < step; i++) {
            remote_addr key = load_u64(chunk + i * 2 * POINTER_BYTES);
            uint64_t hash = load_u64(chunk + i * 2 * POINTER_BYTES + POINTER_BYTES);
            if (key == 0 || hash == UINT64_MAX)
                continue;
            seen++;
            TRY(repr_put_comma(repr, &first));
            TRY(repr_put_value(repr, key));
        }
        done += step;
    }
    return STATUS_OK;
}

enum status repr_show_set(struct repr *repr, remote_addr object, const struct type_info *type) {
    const struct layout_set *set = &repr->runtime->layout.set;
    layout_offset last = set->table > set->mask ? set->table : set->mask;
    struct copy head;
    bool entered = false;
    TRY(copy_read(repr->runtime->objects, object, last, &head));
    uint64_t slots = copy_u64(&head, set->mask) + 1;
    uint64_t used = copy_u64(&head, set->used);
    if (slots == 0 || (slots & (slots - 1)) != 0 || used > slots)
        return STATUS_TORN;
    if (used == 0)
        return repr_put_format(repr, "%s()", type_name(type));
    bool plain = strcmp(type->full_name, "set") == 0;
    if (!plain)
        TRY(repr_put_format(repr, "%s(", type_name(type)));
    TRY(repr_enter(repr, object, "{", "}", &entered));
    if (entered) {
        TRY(put_set_items(repr, copy_u64(&head, set->table), slots, used));
        TRY(repr_leave(repr, "}"));
    }
    return plain ? STATUS_OK : repr_put(repr, ")");
}

/* dequeobject behind its PyVarObject: leftblock, rightblock, leftindex, rightindex, state, maxlen.
 * Its blocks: leftlink, data[64], rightlink. (Modules/_collectionsmodule.c, 3.8 to 3.15) */
struct deque {
    remote_addr block;
    uint64_t first;
    uint64_t count;
    int64_t maxlen;
};

static enum status read_deque(struct repr *repr, remote_addr object, struct deque *deque) {
    const struct layout_object *layout = &repr->runtime->layout.object;
    struct copy head;
    TRY(copy_read(repr->runtime->objects, object, layout->var_size + 5 * POINTER_BYTES, &head));
    deque->block = copy_u64(&head, layout->var_size);
    deque->first = copy_u64(&head, layout->var_size + 2 * POINTER_BYTES);
    deque->count = copy_u64(&head, layout->ob_size);
    deque->maxlen = (int64_t)copy_u64(&head, layout->var_size + 5 * POINTER_BYTES);
    return deque->first < DEQUE_BLOCK_ITEMS ? STATUS_OK : STATUS_TORN;
}

static enum status put_deque_items(struct repr *repr, const struct deque *deque) {
    remote_addr block = deque->block;
    uint64_t at = deque->first;
    bool first = true;
    for (uint64_t i = 0; i < deque->count; i++, at++) {
        if (at == DEQUE_BLOCK_ITEMS) {
            TRY(memory_read_u64(repr->runtime->objects, block + (remote_addr)(1 + DEQUE_BLOCK_ITEMS) * POINTER_BYTES,
                                &block));
            at = 0;
        }
        remote_addr item = 0;
        TRY(memory_read_u64(repr->runtime->objects, block + (1 + at) * POINTER_BYTES, &item));
        TRY(repr_put_comma(repr, &first));
        TRY(repr_put_value(repr, item));
    }
    return STATUS_OK;
}

enum status repr_show_deque(struct repr *repr, remote_addr object, const struct type_info *type) {
    struct deque deque;
    bool entered = false;
    TRY(read_deque(repr, object, &deque));
    TRY(repr_put_format(repr, "%s(", type_name(type)));
    TRY(repr_enter(repr, object, "[", "]", &entered));
    if (entered) {
        TRY(put_deque_items(repr, &deque));
        TRY(repr_leave(repr, "]"));
    }
    if (deque.maxlen >= 0)
        TRY(repr_put_format(repr, ", maxlen=%lld", (long long)deque.maxlen));
    return repr_put(repr, ")");
}

/* mappingproxyobject: the mapping behind the header (Objects/descrobject.c). */
enum status repr_show_mappingproxy(struct repr *repr, remote_addr object, const struct type_info *type) {
    remote_addr mapping = 0;
    TRY(memory_read_u64(repr->runtime->objects, object + repr->runtime->layout.object.size, &mapping));
    TRY(repr_put_format(repr, "%s(", type_name(type)));
    TRY(repr_put_value(repr, mapping));
    return repr_put(repr, ")");
}

/* rangeobject: start, stop, step, length, all int objects (Objects/rangeobject.c). A step of 1 is not shown. */
enum status repr_show_range(struct repr *repr, remote_addr object, const struct type_info *type) {
    remote_addr items = object + repr->runtime->layout.object.size;
    remote_addr step_object = 0;
    uint64_t step = 0;
    TRY(memory_read_u64(repr->runtime->objects, items + (remote_addr)2 * POINTER_BYTES, &step_object));
    bool shown = long_read_u64(repr->runtime, step_object, &step) != STATUS_OK || step != 1;
    TRY(repr_put_format(repr, "%s(", type_name(type)));
    TRY(repr_put_items(repr, items, shown ? 3 : 2));
    return repr_put(repr, ")");
}

/* PySliceObject: start, stop, step (Include/sliceobject.h). */
enum status repr_show_slice(struct repr *repr, remote_addr object, const struct type_info *type) {
    TRY(repr_put_format(repr, "%s(", type_name(type)));
    TRY(repr_put_items(repr, object + repr->runtime->layout.object.size, 3));
    return repr_put(repr, ")");
}
