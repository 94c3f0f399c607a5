#include "cpython/dict.h"

#include "base/bytes.h"
#include "cpython/copy.h"
#include "cpython/str.h"
#include "cpython/type.h"

enum {
    POINTER_BYTES = 8,
    CHUNK_BYTES = 3072, /* a multiple of both entry sizes */
    MAX_LOG2_SIZE = 48,
    /* A shared table of keys has at most 30 (SHARED_KEYS_MAX_SIZE, Include/internal/pycore_dict.h, 3.11 to 3.15); in
     * <= 3.10 there is no such limit, but one that grows beyond this many is rare. */
    MAX_SHARED_KEYS = 1024,
    /* 3.11+ keep the order of insertion in bytes. */
    MAX_ORDER = 255,
    MAX_ITEMS = 1 << 28, /* of an object with a variable size and a __dict__ */
    KIND_GENERAL = 0,
    KIND_SPLIT = 2,
};

/* PyDictKeysObject:
 *
 *   | header | dk_indices: hash -> number of the entry | entries in order of insertion |
 *
 * An entry is {hash, key, value}; where all keys are str, from 3.11 on, {key, value}. */
struct keys {
    remote_addr entries;
    uint64_t count;
    size_t entry_bytes;
    size_t key_offset;
};

/* dk_size of <= 3.10 is the number of slots; how wide one is follows from it (DK_IXSIZE, Objects/dictobject.c). */
static enum status index_bytes_old(uint64_t size, uint64_t *index_bytes) {
    if (size == 0 || (size & (size - 1)) != 0 || size > UINT64_C(1) << MAX_LOG2_SIZE)
        return STATUS_TORN;
    *index_bytes = size * (size <= 0xff ? 1 : size <= 0xffff ? 2 : size <= 0xffffffff ? 4 : 8);
    return STATUS_OK;
}

static enum status read_keys(struct runtime *runtime, remote_addr address, struct keys *keys) {
    const struct layout_dict_keys *layout = &runtime->layout.dict_keys;
    struct copy head;
    TRY(copy_read(runtime->objects, address, layout->dk_nentries, &head));
    uint64_t slots = 0;
    uint64_t index_bytes = 0;
    bool general = true;
    if (layout_has(layout->dk_log2_size)) {
        uint8_t log2_size = copy_u8(&head, layout->dk_log2_size);
        uint8_t log2_index_bytes = copy_u8(&head, layout->dk_log2_index_bytes);
        uint8_t kind = copy_u8(&head, layout->dk_kind);
        if (log2_size > MAX_LOG2_SIZE || log2_index_bytes > MAX_LOG2_SIZE || kind > KIND_SPLIT)
            return STATUS_TORN;
        slots = UINT64_C(1) << log2_size;
        index_bytes = UINT64_C(1) << log2_index_bytes;
        general = kind == KIND_GENERAL;
    } else {
        slots = copy_u64(&head, layout->dk_size);
        TRY(index_bytes_old(slots, &index_bytes));
    }
    keys->count = copy_u64(&head, layout->dk_nentries);
    if (keys->count > slots)
        return STATUS_TORN;
    keys->entries = address + layout->dk_indices + index_bytes;
    keys->entry_bytes = general ? 3 * POINTER_BYTES : 2 * POINTER_BYTES;
    keys->key_offset = general ? POINTER_BYTES : 0;
    return STATUS_OK;
}

/* Entries without a value were deleted. */
static enum status visit_combined(struct runtime *runtime, remote_addr keys_address, dict_visit_fn *visit,
                                  void *context) {
    struct keys keys;
    uint8_t chunk[CHUNK_BYTES];
    TRY(read_keys(runtime, keys_address, &keys));
    uint64_t count = keys.count < DICT_MAX_ENTRIES ? keys.count : DICT_MAX_ENTRIES;
    for (uint64_t done = 0; done < count;) {
        uint64_t step = CHUNK_BYTES / keys.entry_bytes;
        if (step > count - done)
            step = count - done;
        TRY(memory_read(runtime->objects, keys.entries + done * keys.entry_bytes, chunk, step * keys.entry_bytes));
        for (uint64_t i = 0; i < step; i++) {
            const uint8_t *entry = chunk + i * keys.entry_bytes + keys.key_offset;
            remote_addr key = load_u64(entry);
            remote_addr value = load_u64(entry + POINTER_BYTES);
            if (key != 0 && value != 0)
                TRY(visit(context, key, value));
        }
        done += step;
    }
    return count < keys.count ? STATUS_LIMIT : STATUS_OK;
}

/* The values of a split dict, or of an instance that has no dict yet, and the order in which they were set. */
struct values {
    remote_addr items;
    uint64_t count;           /* how many were set and not deleted */
    uint8_t order[MAX_ORDER]; /* the entry of the i-th; only with has_order */
    bool has_order;
};

/* 3.13+, struct _dictvalues (Include/internal/pycore_dict.h):
 *
 *   | capacity, size, embedded, valid: u8 each | values[capacity] | order[capacity]: u8 each | */
static enum status read_values_new(struct runtime *runtime, remote_addr address, struct values *values) {
    const struct layout_managed *managed = &runtime->layout.managed;
    struct copy head;
    TRY(copy_read(runtime->objects, address, managed->values_items, &head));
    uint8_t capacity = copy_u8(&head, managed->values_capacity);
    values->count = copy_u8(&head, managed->values_size);
    if (values->count > capacity)
        return STATUS_TORN;
    values->items = address + managed->values_items;
    values->has_order = true;
    return memory_read(runtime->objects, values->items + (uint64_t)capacity * POINTER_BYTES, values->order,
                       values->count);
}

/* 3.11, 3.12 (_PyDictValues_AddToInsertionOrder, Include/internal/pycore_dict.h):
 *
 *   ... third | second | first | size | bytes before the values: u8 each | values ... */
static enum status read_values_prefixed(struct runtime *runtime, remote_addr address, struct values *values) {
    uint8_t prefix[2];
    uint8_t reversed[MAX_ORDER];
    if (address == 0 || address % POINTER_BYTES != 0)
        return STATUS_TORN;
    TRY(memory_read(runtime->objects, address - sizeof prefix, prefix, sizeof prefix));
    values->count = prefix[0];
    if (values->count + sizeof prefix > prefix[1])
        return STATUS_TORN;
    TRY(memory_read(runtime->objects, address - sizeof prefix - values->count, reversed, values->count));
    for (uint64_t i = 0; i < values->count; i++)
        values->order[i] = reversed[values->count - 1 - i];
    values->items = address + runtime->layout.managed.values_items;
    values->has_order = true;
    return STATUS_OK;
}

static enum status read_values(struct runtime *runtime, remote_addr address, const struct keys *keys,
                               struct values *values) {
    const struct layout_managed *managed = &runtime->layout.managed;
    if (layout_has(managed->values_capacity))
        return read_values_new(runtime, address, values);
    if (layout_has(managed->dict_back))
        return read_values_prefixed(runtime, address, values);
    /* <= 3.10: set in the order of the keys, or the dict would not be split. */
    values->items = address;
    values->count = keys->count;
    values->has_order = false;
    return STATUS_OK;
}

static enum status visit_values(struct runtime *runtime, remote_addr keys_address, remote_addr values_address,
                                dict_visit_fn *visit, void *context) {
    struct keys keys;
    struct values values;
    TRY(read_keys(runtime, keys_address, &keys));
    TRY(read_values(runtime, values_address, &keys, &values));
    uint64_t count = values.count < MAX_SHARED_KEYS ? values.count : MAX_SHARED_KEYS;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t entry = values.has_order ? values.order[i] : i;
        remote_addr key = 0;
        remote_addr value = 0;
        if (entry >= keys.count)
            return STATUS_TORN;
        TRY(memory_read_u64(runtime->objects, values.items + entry * POINTER_BYTES, &value));
        TRY(memory_read_u64(runtime->objects, keys.entries + entry * keys.entry_bytes + keys.key_offset, &key));
        if (key != 0 && value != 0)
            TRY(visit(context, key, value));
    }
    return count < values.count ? STATUS_LIMIT : STATUS_OK;
}

enum status dict_visit(struct runtime *runtime, remote_addr address, dict_visit_fn *visit, void *context) {
    const struct layout_dict *dict = &runtime->layout.dict;
    struct copy head;
    layout_offset last = dict->ma_keys > dict->ma_values ? dict->ma_keys : dict->ma_values;
    TRY(copy_read(runtime->objects, address, last, &head));
    remote_addr keys = copy_u64(&head, dict->ma_keys);
    remote_addr values = copy_u64(&head, dict->ma_values);
    return values != 0 ? visit_values(runtime, keys, values, visit, context)
                       : visit_combined(runtime, keys, visit, context);
}

/* <= 3.10 always, later for special types: a pointer in the object, from whose end a negative offset counts
 * (_PyObject_GetDictPtr, Objects/object.c). */
static enum status find_dict_slot(struct runtime *runtime, remote_addr object, const struct type_info *type,
                                  remote_addr *slot) {
    const struct layout *layout = &runtime->layout;
    if (type->dictoffset >= 0) {
        *slot = object + (uint64_t)type->dictoffset;
        return type->dictoffset > 0 ? STATUS_OK : STATUS_NOT_FOUND;
    }
    bool tagged_int = (type->flags & TYPE_IS_INT) != 0 && layout_has(layout->long_.lv_tag);
    uint64_t word = 0;
    TRY(memory_read_u64(runtime->objects, object + (tagged_int ? layout->long_.lv_tag : layout->object.ob_size),
                        &word));
    uint64_t items = tagged_int ? word >> 3 : (int64_t)word < 0 ? -word : word;
    if (items > MAX_ITEMS)
        return STATUS_TORN;
    uint64_t size_bytes = (uint64_t)type->basicsize + items * (uint64_t)type->itemsize;
    size_bytes = (size_bytes + POINTER_BYTES - 1) / POINTER_BYTES * POINTER_BYTES;
    *slot = object + size_bytes + (uint64_t)type->dictoffset;
    return STATUS_OK;
}

/* 3.13+: null until somebody asks for __dict__; the values stand behind the object until it changes too much.
 * 3.12: the dict, or the values with the lowest bit set, one below their address.
 * 3.11: one word for each. */
static enum status visit_managed(struct runtime *runtime, remote_addr object, const struct type_info *type,
                                 dict_visit_fn *visit, void *context) {
    const struct layout_managed *managed = &runtime->layout.managed;
    remote_addr dict = 0;
    remote_addr values = 0;
    TRY(memory_read_u64(runtime->objects, object - managed->dict_back, &dict));
    if (managed->inline_values) {
        uint8_t valid = 0;
        values = object + (uint64_t)type->basicsize;
        if (dict == 0 && (type->flags & TYPE_HAS_INLINE_VALUES) != 0)
            TRY(memory_read_u8(runtime->objects, values + managed->values_valid, &valid));
        values = valid != 0 ? values : 0;
    } else if (layout_has(managed->values_back) && managed->values_back != managed->dict_back) {
        TRY(memory_read_u64(runtime->objects, object - managed->values_back, &values));
    } else if ((dict & 1) != 0) {
        values = dict + 1;
        dict = 0;
    }
    if (values == 0)
        return dict != 0 ? dict_visit(runtime, dict, visit, context) : STATUS_OK;
    remote_addr keys = 0;
    TRY(memory_read_u64(runtime->objects, type->address + runtime->layout.type.ht_cached_keys, &keys));
    return visit_values(runtime, keys, values, visit, context);
}

enum status instance_visit(struct runtime *runtime, remote_addr object, dict_visit_fn *visit, void *context) {
    struct type_info type;
    remote_addr slot = 0;
    remote_addr dict = 0;
    TRY(type_read(runtime, object, &type));
    if ((type.flags & TYPE_HAS_MANAGED_DICT) != 0 && layout_has(runtime->layout.managed.dict_back))
        return visit_managed(runtime, object, &type, visit, context);
    TRY(find_dict_slot(runtime, object, &type, &slot));
    TRY(memory_read_u64(runtime->objects, slot, &dict));
    return dict != 0 ? dict_visit(runtime, dict, visit, context) : STATUS_OK;
}

struct text_search {
    struct runtime *runtime;
    const char *text;
    remote_addr value;
};

/* A key that is no str reads as one that makes no sense; it is not the one searched for. STATUS_LIMIT cannot come from
 * the comparison, so it can say that the search is over. */
static enum status compare_key(void *context, remote_addr key, remote_addr value) {
    struct text_search *search = context;
    bool equal = false;
    enum status status = string_equals(search->runtime, key, search->text, &equal);
    if (status != STATUS_OK)
        return status == STATUS_TORN || status == STATUS_UNREADABLE ? STATUS_OK : status;
    if (!equal)
        return STATUS_OK;
    search->value = value;
    return STATUS_LIMIT;
}

static enum status end_search(enum status status, const struct text_search *search, remote_addr *value) {
    if (search->value == 0)
        return status == STATUS_OK ? STATUS_NOT_FOUND : status;
    *value = search->value;
    return STATUS_OK;
}

enum status dict_find_text(struct runtime *runtime, remote_addr address, const char *key, remote_addr *value) {
    struct text_search search = {.runtime = runtime, .text = key};
    return end_search(dict_visit(runtime, address, compare_key, &search), &search, value);
}

enum status instance_find_text(struct runtime *runtime, remote_addr object, const char *name, remote_addr *value) {
    struct text_search search = {.runtime = runtime, .text = name};
    return end_search(instance_visit(runtime, object, compare_key, &search), &search, value);
}
