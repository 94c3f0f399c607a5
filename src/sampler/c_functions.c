/* Three kinds of tables say which C functions Python code can call (Include/methodobject.h, Include/cpython/object.h,
 * Include/object.h, Include/moduleobject.h; the same in 3.8 to 3.15):
 *
 *     PyMethodDef     {char *ml_name; PyCFunction ml_meth; int ml_flags; char *ml_doc}, until a null ml_name
 *     PyTypeObject    {..., char *tp_name; tp_basicsize; tp_itemsize; ...} with tp_call, tp_init, tp_new, tp_vectorcall
 *     PyType_Slot     {int slot; void *pfunc}, until slot 0; and what names them:
 *     PyType_Spec     {char *name; int basicsize; int itemsize; unsigned flags; PyType_Slot *slots}
 *     PyModuleDef     {..., char *m_name; char *m_doc; m_size; PyMethodDef *m_methods; ...}
 *
 * They are recognised by their form: what must be text is text, what must be a function begins one. */
#include "sampler/c_functions.h"

#include "base/arena.h"
#include "base/bytes.h"
#include "base/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_MAX_BYTES = 96,
    TABLE_ENTRIES_MAX = 4096,
    NAMES_LIMIT_BYTES = 16 << 20,
};

/* Include/methodobject.h */
enum { METH_CALLING = 0x8f, METH_ALL = 0x3ff };

/* Words of a PyTypeObject from tp_name on. */
enum {
    TYPE_BASICSIZE = 1,
    TYPE_ITEMSIZE = 2,
    TYPE_DEALLOC = 3,
    TYPE_CALL = 13,
    TYPE_METHODS = 26,
    TYPE_INIT = 34,
    TYPE_ALLOC = 35,
    TYPE_NEW = 36,
    TYPE_VECTORCALL = 47,
    TYPE_WORDS = 48,
};

/* Include/typeslots.h */
enum { SLOT_CALL = 50, SLOT_INIT = 60, SLOT_METHODS = 64, SLOT_NEW = 65, SLOT_VECTORCALL = 82, SLOT_LAST = 100 };

struct c_functions {
    const struct elf_data *data; /* while they are looked for */
    const struct unwind_table *table;
    uint64_t low, high;  /* between which the data lie: most words are no addresses */
    struct map names;    /* function → its name */
    struct map prefixes; /* table of methods → what stands before their names */
    struct arena texts;
};

static bool is_function(const struct c_functions *functions, uint64_t address) {
    if (!elf_data_is_code(functions->data, address))
        return false;
    const struct unwind_range *range = unwind_table_find(functions->table, address);
    return range != NULL && range->start == address;
}

static bool is_name_character(char character) {
    return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
           (character >= '0' && character <= '9') || character == '_' || character == '.' || character == '-';
}

/* NULL when no name, "len" or "types.GenericAlias" or "method-wrapper", stands there. */
static const char *name_at(const struct c_functions *functions, uint64_t address) {
    const char *text = elf_data_text(functions->data, address, NAME_MAX_BYTES);
    if (text == NULL || text[0] == '\0' || (text[0] >= '0' && text[0] <= '9'))
        return NULL;
    for (const char *at = text; *at != '\0'; at++)
        if (!is_name_character(*at))
            return NULL;
    return text;
}

static uint64_t word_at(const struct c_functions *functions, uint64_t address) {
    uint64_t word = 0;
    return elf_data_read_word(functions->data, address, &word) ? word : 0;
}

static enum status add_name(struct c_functions *functions, uint64_t function, const char *prefix, const char *name) {
    char text[2 * NAME_MAX_BYTES];
    uint64_t known = 0;
    if (map_get(&functions->names, function, &known))
        return STATUS_OK;
    int length = snprintf(text, sizeof text, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", name);
    if (length < 0 || (size_t)length >= sizeof text)
        return STATUS_OK;
    char *copy = arena_copy_text(&functions->texts, text, (size_t)length);
    if (copy == NULL)
        return STATUS_LIMIT;
    return map_set(&functions->names, function, (uintptr_t)copy);
}

static enum status add_prefix(struct c_functions *functions, uint64_t methods, const char *prefix) {
    /* Nobody writes builtins.len. */
    if (methods == 0 || strcmp(prefix, "builtins") == 0)
        return STATUS_OK;
    return map_set(&functions->prefixes, methods, (uintptr_t)prefix);
}

/* The methods of a table, whose first is at `address`: where the table ends, or `address` when there is none. */
static enum status read_methods(struct c_functions *functions, uint64_t address, uint64_t *end) {
    uint64_t known = 0;
    const char *prefix = map_get(&functions->prefixes, address, &known) ? (const char *)(uintptr_t)known : "";
    *end = address;
    for (size_t i = 0; i < TABLE_ENTRIES_MAX; i++, *end += 32) {
        const char *name = name_at(functions, word_at(functions, *end));
        uint64_t function = word_at(functions, *end + 8), flags = word_at(functions, *end + 16);
        if (name == NULL || (flags & METH_CALLING) == 0 || (flags & ~(uint64_t)METH_ALL) != 0 ||
            !is_function(functions, function))
            break;
        TRY(add_name(functions, function, prefix, name));
    }
    return STATUS_OK;
}

/* What calls what was called: Python's functions, or a C function that has a name of its own; and object.__new__, which
 * makes the objects of Python's classes above all. */
static bool is_go_between(const char *name) {
    static const char *const names[] = {
        "object",         "type",
        "function",       "method",
        "instancemethod", "builtin_function_or_method",
        "builtin_method", "method_descriptor",
        "staticmethod",   "classmethod_descriptor",
        "classmethod",    "weakref.CallableProxyType",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* A function that several types share has no one name. */
static enum status add_slot(struct c_functions *functions, const char *name, uint64_t function) {
    uint64_t known = 0;
    if (function == 0 || !is_function(functions, function))
        return STATUS_OK;
    if (!map_get(&functions->names, function, &known))
        return add_name(functions, function, "", name);
    if (strcmp((const char *)(uintptr_t)known, name) == 0)
        return STATUS_OK;
    return map_set(&functions->names, function, (uintptr_t) "");
}

static bool is_function_or_nothing(const struct c_functions *functions, uint64_t word) {
    return word == 0 || is_function(functions, word);
}

static const char *last_part(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot != NULL && dot[1] != '\0' ? dot + 1 : name;
}

static enum status read_type(struct c_functions *functions, uint64_t address) {
    uint64_t words[TYPE_WORDS];
    const char *name = name_at(functions, word_at(functions, address));
    if (name == NULL)
        return STATUS_OK;
    for (size_t i = 0; i < TYPE_WORDS; i++) {
        words[i] = word_at(functions, address + 8 * i);
        /* Most that is no type is told by its sizes. */
        if ((i == TYPE_BASICSIZE && words[i] > 1 << 20) || (i == TYPE_ITEMSIZE && words[i] > 1 << 16))
            return STATUS_OK;
    }
    if (!is_function_or_nothing(functions, words[TYPE_DEALLOC]) ||
        !is_function_or_nothing(functions, words[TYPE_CALL]) || !is_function_or_nothing(functions, words[TYPE_INIT]) ||
        !is_function_or_nothing(functions, words[TYPE_ALLOC]) || !is_function_or_nothing(functions, words[TYPE_NEW]))
        return STATUS_OK;
    if (words[TYPE_METHODS] != 0 && name_at(functions, word_at(functions, words[TYPE_METHODS])) != NULL)
        TRY(add_prefix(functions, words[TYPE_METHODS], last_part(name)));
    if (is_go_between(name) || words[TYPE_BASICSIZE] == 0)
        return STATUS_OK;
    TRY(add_slot(functions, name, words[TYPE_CALL]));
    TRY(add_slot(functions, name, words[TYPE_NEW]));
    TRY(add_slot(functions, name, words[TYPE_INIT]));
    TRY(add_slot(functions, name, words[TYPE_VECTORCALL]));
    return STATUS_OK;
}

static bool is_slot(const struct c_functions *functions, uint64_t address) {
    uint64_t slot = word_at(functions, address), value = word_at(functions, address + 8);
    slot &= 0xffff; /* 3.15: the upper half has flags */
    return slot > 0 && slot <= SLOT_LAST && value != 0 &&
           (elf_data_is_code(functions->data, value) || elf_data_text(functions->data, value, SIZE_MAX) != NULL);
}

static enum status read_spec(struct c_functions *functions, uint64_t address) {
    const char *name = name_at(functions, word_at(functions, address));
    uint64_t slots = word_at(functions, address + 24), sizes = word_at(functions, address + 8);
    if (name == NULL || slots == 0 || (int32_t)sizes < 0 || !is_slot(functions, slots))
        return STATUS_OK;
    for (size_t i = 0; i <= SLOT_LAST && is_slot(functions, slots); i++, slots += 16) {
        uint64_t slot = word_at(functions, slots) & 0xffff, value = word_at(functions, slots + 8);
        if (slot == SLOT_METHODS)
            TRY(add_prefix(functions, value, last_part(name)));
        else if (slot == SLOT_CALL || slot == SLOT_INIT || slot == SLOT_NEW || slot == SLOT_VECTORCALL)
            TRY(add_slot(functions, last_part(name), value));
    }
    return STATUS_OK;
}

/* m_name, m_doc, m_size, m_methods, behind the PyModuleDef_Base. */
static enum status read_module(struct c_functions *functions, uint64_t address) {
    const char *name = name_at(functions, word_at(functions, address));
    uint64_t doc = word_at(functions, address + 8), methods = word_at(functions, address + 24);
    int64_t size = (int64_t)word_at(functions, address + 16);
    if (name == NULL || size < -1 || size > 1 << 20 || methods == 0 ||
        (doc != 0 && elf_data_text(functions->data, doc, SIZE_MAX) == NULL) ||
        name_at(functions, word_at(functions, methods)) == NULL ||
        !is_function(functions, word_at(functions, methods + 8)))
        return STATUS_OK;
    return add_prefix(functions, methods, name);
}

/* Whatever holds tables comes before what they hold: the names of methods need those of their types. */
static enum status look_through(struct c_functions *functions, const struct elf_data_run *run, bool for_methods) {
    uint64_t first = (run->address + 7) & ~UINT64_C(7);
    uint64_t last = run->address + run->size_bytes;
    for (uint64_t at = first; at + 32 <= last; at += 8) {
        uint64_t word = load_u64(run->bytes + (at - run->address));
        if (word - functions->low >= functions->high - functions->low || name_at(functions, word) == NULL)
            continue;
        if (for_methods) {
            uint64_t end = at;
            TRY(read_methods(functions, at, &end));
            at = end > at ? end - 8 : at;
            continue;
        }
        TRY(read_type(functions, at));
        TRY(read_spec(functions, at));
        TRY(read_module(functions, at));
    }
    return STATUS_OK;
}

enum status c_functions_find_all(const struct elf_data *data, const struct unwind_table *table,
                                 struct c_functions **result) {
    size_t count = 0;
    const struct elf_data_run *runs = elf_data_runs(data, &count);
    *result = NULL;
    struct c_functions *functions = calloc(1, sizeof *functions);
    if (functions == NULL)
        return STATUS_FAILED;
    functions->data = data;
    functions->table = table;
    functions->texts.limit_bytes = NAMES_LIMIT_BYTES;
    for (size_t i = 0; i < count; i++) {
        uint64_t end = runs[i].address + runs[i].size_bytes;
        functions->low = i == 0 || runs[i].address < functions->low ? runs[i].address : functions->low;
        functions->high = end > functions->high ? end : functions->high;
    }
    enum status status = STATUS_OK;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count && status == STATUS_OK; i++)
            status = look_through(functions, &runs[i], pass == 1);
    map_release(&functions->prefixes);
    functions->data = NULL;
    functions->table = NULL;
    if (status != STATUS_OK) {
        c_functions_free(functions);
        return status;
    }
    *result = functions;
    return STATUS_OK;
}

void c_functions_free(struct c_functions *functions) {
    if (functions == NULL)
        return;
    map_release(&functions->names);
    map_release(&functions->prefixes);
    arena_release(&functions->texts);
    free(functions);
}

const char *c_functions_name(const struct c_functions *functions, uint64_t address) {
    uint64_t name = 0;
    return map_get(&functions->names, address, &name) ? (const char *)(uintptr_t)name : NULL;
}
