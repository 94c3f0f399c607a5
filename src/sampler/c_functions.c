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
#include "elf/machine_code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_MAX_BYTES = 96,
    TABLE_ENTRIES_MAX = 4096,
    MEMORY_LIMIT_BYTES = 16 << 20,
    OBJECT_MIN_BYTES = 16,     /* sizeof(PyObject) */
    SIZE_MAX_BYTES = 1 << 20,  /* of an object, a module's state */
    PAGE_BYTES = 4096,         /* nothing is in the first one */
    FUNCTIONS_MIN = 2,         /* that a type has at least */
    CODE_MAX_BYTES = 64 << 10, /* of a function that is looked through for its continuations */
    ALL_CODE_MAX_BYTES = 64 << 20,
    CONTINUATIONS_MAX = 256,
    STUBS_MAX = 1 << 16,
    JUMPS_MAX = 3, /* one after the other, from a function to where its work is done */
};

/* Include/methodobject.h */
enum { METH_CALLING = 0x8f, METH_ALL = 0x3ff };

/* Words of a PyTypeObject from tp_name on. */
enum {
    TYPE_BASICSIZE = 1,
    TYPE_DEALLOC = 3,
    TYPE_CALL = 13,
    TYPE_TRAVERSE = 20,
    TYPE_CLEAR = 21,
    TYPE_METHODS = 26,
    TYPE_INIT = 34,
    TYPE_ALLOC = 35,
    TYPE_NEW = 36,
    TYPE_FREE = 37,
    TYPE_DEL = 44,
    TYPE_FINALIZE = 46,
    TYPE_VECTORCALL = 47,
    TYPE_WORDS = 48,
};

/* Include/typeslots.h; Include/slots_generated.h in 3.15 */
enum {
    SLOT_ALLOC = 47,
    SLOT_CALL = 50,
    SLOT_CLEAR = 51,
    SLOT_DEALLOC = 52,
    SLOT_DEL = 53,
    SLOT_INIT = 60,
    SLOT_METHODS = 64,
    SLOT_NEW = 65,
    SLOT_TRAVERSE = 71,
    SLOT_FREE = 74,
    SLOT_FINALIZE = 80,
    SLOT_VECTORCALL = 82,
    SLOT_LAST = 100,
};

struct c_functions {
    struct elf_file *file; /* while they are looked for */
    const struct elf_data *data;
    const struct unwind_table *table;
    size_t code_left;    /* bytes of it that are still to be looked through */
    struct map found;    /* address → struct c_function */
    struct map prefixes; /* table of methods → what stands before their names */
    struct arena memory;
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

/* `name` lives as long as `functions`. */
static enum status add(struct c_functions *functions, uint64_t address, enum c_function_kind kind, const char *name) {
    struct c_function *function = arena_take(&functions->memory, sizeof *function);
    if (function == NULL)
        return STATUS_LIMIT;
    *function = (struct c_function){.kind = kind, .name = name};
    return map_set(&functions->found, address, (uintptr_t)function);
}

static struct c_function *find(const struct c_functions *functions, uint64_t address) {
    uint64_t found = 0;
    return map_get(&functions->found, address, &found) ? (struct c_function *)(uintptr_t)found : NULL;
}

static enum status add_method(struct c_functions *functions, uint64_t address, const char *prefix, const char *name) {
    char text[2 * NAME_MAX_BYTES];
    if (find(functions, address) != NULL)
        return STATUS_OK;
    int length = snprintf(text, sizeof text, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", name);
    const char *copy = length >= 0 ? arena_copy_text(&functions->memory, text, strnlen(text, sizeof text - 1)) : NULL;
    return copy != NULL ? add(functions, address, C_FUNCTION_METHOD, copy) : STATUS_LIMIT;
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
        TRY(add_method(functions, function, prefix, name));
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
static enum status add_slot(struct c_functions *functions, const char *name, uint64_t address) {
    if (address == 0 || !is_function(functions, address))
        return STATUS_OK;
    struct c_function *known = find(functions, address);
    if (known == NULL) {
        const char *copy = arena_copy_text(&functions->memory, name, strlen(name));
        return copy != NULL ? add(functions, address, C_FUNCTION_SLOT, copy) : STATUS_LIMIT;
    }
    if (strcmp(known->name, name) != 0)
        known->name = "";
    return STATUS_OK;
}

static const char *last_part(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot != NULL && dot[1] != '\0' ? dot + 1 : name;
}

/* For what comes before a name is known, too. */
static enum status add_upkeep(struct c_functions *functions, uint64_t address) {
    if (address == 0 || !is_function(functions, address) || find(functions, address) != NULL)
        return STATUS_OK;
    return add(functions, address, C_FUNCTION_UPKEEP, "");
}

/* Whether the words from a tp_name on can be a type's: what each may be, by its place. */
static bool is_type(const struct c_functions *functions, const uint64_t words[TYPE_WORDS]) {
    /* n: name, s: size, f: function or nothing, d: data or nothing, .: anything */
    static const char kinds[TYPE_WORDS + 1] = "nssfsffdfdddfffffd.dfffsffdddd.ff.fffff.....f.ff";
    int functions_found = 0;
    for (size_t i = 0; i < TYPE_WORDS; i++) {
        uint64_t word = words[i];
        if (word == 0)
            continue;
        if ((kinds[i] == 's' && word > SIZE_MAX_BYTES) || (kinds[i] == 'f' && !is_function(functions, word)) ||
            (kinds[i] == 'd' && (word < PAGE_BYTES || !elf_data_holds(functions->data, word))))
            return false;
        functions_found += kinds[i] == 'f';
    }
    return functions_found >= FUNCTIONS_MIN;
}

/* `name` is what the text at `address` says, here and in what follows. */
static enum status read_type(struct c_functions *functions, const char *name, uint64_t address) {
    uint64_t words[TYPE_WORDS];
    uint64_t size = word_at(functions, address + 8 * TYPE_BASICSIZE);
    /* ob_size comes before. */
    if (size < OBJECT_MIN_BYTES || size > SIZE_MAX_BYTES || word_at(functions, address - 8) != 0)
        return STATUS_OK;
    for (size_t i = 0; i < TYPE_WORDS; i++)
        words[i] = word_at(functions, address + 8 * i);
    if (!is_type(functions, words))
        return STATUS_OK;
    static const uint8_t upkeep[] = {TYPE_DEALLOC, TYPE_TRAVERSE, TYPE_CLEAR,   TYPE_ALLOC,
                                     TYPE_FREE,    TYPE_DEL,      TYPE_FINALIZE};
    for (size_t i = 0; i < sizeof upkeep; i++)
        TRY(add_upkeep(functions, words[upkeep[i]]));
    TRY(add_prefix(functions, words[TYPE_METHODS], last_part(name)));
    if (is_go_between(name))
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
           (elf_data_is_code(functions->data, value) || elf_data_holds(functions->data, value));
}

static enum status read_slot(struct c_functions *functions, const char *name, uint64_t slot, uint64_t value) {
    switch (slot & 0xffff) {
    case SLOT_METHODS:
        return add_prefix(functions, value, name);
    case SLOT_CALL:
    case SLOT_INIT:
    case SLOT_NEW:
    case SLOT_VECTORCALL:
        return add_slot(functions, name, value);
    case SLOT_ALLOC:
    case SLOT_CLEAR:
    case SLOT_DEALLOC:
    case SLOT_DEL:
    case SLOT_TRAVERSE:
    case SLOT_FREE:
    case SLOT_FINALIZE:
        return add_upkeep(functions, value);
    default:
        return STATUS_OK;
    }
}

static enum status read_spec(struct c_functions *functions, const char *name, uint64_t address) {
    uint64_t slots = word_at(functions, address + 24), sizes = word_at(functions, address + 8);
    if (slots < PAGE_BYTES || (uint32_t)sizes > SIZE_MAX_BYTES || sizes >> 32 > SIZE_MAX_BYTES)
        return STATUS_OK;
    for (size_t i = 0; i <= SLOT_LAST && is_slot(functions, slots); i++, slots += 16)
        TRY(read_slot(functions, last_part(name), word_at(functions, slots), word_at(functions, slots + 8)));
    return STATUS_OK;
}

/* m_name, m_doc, m_size, m_methods, behind the PyModuleDef_Base. */
static enum status read_module(struct c_functions *functions, const char *name, uint64_t address) {
    uint64_t doc = word_at(functions, address + 8), methods = word_at(functions, address + 24);
    int64_t size = (int64_t)word_at(functions, address + 16);
    if (size < -1 || size > SIZE_MAX_BYTES || methods < PAGE_BYTES ||
        (doc != 0 && !elf_data_holds(functions->data, doc)) ||
        name_at(functions, word_at(functions, methods)) == NULL ||
        !is_function(functions, word_at(functions, methods + 8)))
        return STATUS_OK;
    return add_prefix(functions, methods, name);
}

/* Whatever holds tables comes before what they hold: the names of methods need those of their types. */
static enum status look_through(struct c_functions *functions, const struct elf_data_run *run, bool for_methods) {
    uint64_t first = (8 - run->address % 8) % 8;
    for (uint64_t offset = first; offset + 32 <= run->size_bytes; offset += 8) {
        uint64_t address = run->address + offset, end = address;
        uint64_t word = load_u64(run->bytes + offset), next = load_u64(run->bytes + offset + 8);
        /* Behind the name stands a function in tables of methods; in those that hold them a size or a text does. */
        if (word < PAGE_BYTES || for_methods != elf_data_is_code(functions->data, next))
            continue;
        const char *name = name_at(functions, word);
        if (name == NULL)
            continue;
        if (for_methods) {
            TRY(read_methods(functions, address, &end));
            offset += end > address ? end - address - 8 : 0;
            continue;
        }
        TRY(read_type(functions, name, address));
        TRY(read_spec(functions, name, address));
        TRY(read_module(functions, name, address));
    }
    return STATUS_OK;
}

/* Jumps between objects, and in shared libraries also within one, go through stubs. 0: to another object. */
static uint64_t behind_stub(const struct c_functions *functions, uint64_t address) {
    uint8_t code[MACHINE_CODE_STUB_BYTES];
    if (elf_file_read(functions->file, address, code, sizeof code) != STATUS_OK)
        return address;
    uint64_t slot = machine_code_stub(elf_file_machine(functions->file), code, address);
    if (slot == 0)
        return address;
    uint64_t target = word_at(functions, slot);
    /* What nobody has resolved leads back to the table of stubs. */
    return is_function(functions, target) ? target : 0;
}

/* What the names of functions have in common: "math.*"; "" when that is nothing. NULL when there is no memory. */
static const char *common_name(struct c_functions *functions, const char *a, const char *b) {
    char text[NAME_MAX_BYTES];
    const char *dot = strrchr(a, '.');
    size_t length = dot != NULL ? (size_t)(dot - a) + 1 : 0;
    if (strcmp(a, b) == 0)
        return a;
    if (length == 0 || length + 2 > sizeof text || strncmp(a, b, length) != 0)
        return "";
    if (strcmp(a + length, "*") == 0)
        return a;
    memcpy(text, a, length);
    text[length] = '*';
    return arena_copy_text(&functions->memory, text, length + 1);
}

/* Of what a function goes on with, several can go on with the same. */
static enum status add_continuation(struct c_functions *functions, uint64_t target, const char *name, size_t round) {
    const struct unwind_range *range = unwind_table_find(functions->table, target);
    if (range == NULL)
        return STATUS_OK;
    struct c_function *known = find(functions, range->start);
    if (known == NULL) {
        TRY(add(functions, range->start, C_FUNCTION_CONTINUATION, name));
        find(functions, range->start)->round = (uint8_t)round;
        return STATUS_OK;
    }
    const char *common =
        known->kind == C_FUNCTION_CONTINUATION ? common_name(functions, known->name, name) : known->name;
    if (common == NULL)
        return STATUS_LIMIT;
    known->name = common;
    return STATUS_OK;
}

static enum status follow_jumps(struct c_functions *functions, uint64_t start, const char *name, size_t round,
                                uint8_t *code) {
    uint64_t targets[CONTINUATIONS_MAX];
    const struct unwind_range *range = unwind_table_find(functions->table, start);
    size_t size = range != NULL ? (size_t)(range->end - start) : 0;
    if (size == 0 || size > CODE_MAX_BYTES || size > functions->code_left ||
        elf_file_read(functions->file, start, code, size) != STATUS_OK)
        return STATUS_OK;
    functions->code_left -= size;
    size_t count = machine_code_jumps(elf_file_machine(functions->file), code, size, start, targets, CONTINUATIONS_MAX);
    for (size_t i = 0; i < count && i < CONTINUATIONS_MAX; i++)
        TRY(add_continuation(functions, behind_stub(functions, targets[i]), name, round));
    return STATUS_OK;
}

/* Each round goes one jump further. A name can get lost on the way: then what follows has none either. */
static enum status find_continuations(struct c_functions *functions) {
    size_t count = 0;
    const struct unwind_range *ranges = unwind_table_ranges(functions->table, &count);
    uint8_t *code = malloc(CODE_MAX_BYTES);
    enum status status = code != NULL ? STATUS_OK : STATUS_FAILED;
    for (size_t round = 0, added = 1; round < JUMPS_MAX && added > 0; round++) {
        size_t before = functions->found.count;
        for (size_t i = 0; i < count && status == STATUS_OK; i++) {
            const struct c_function *function = find(functions, ranges[i].start);
            if (function != NULL && function->round == round && function->kind != C_FUNCTION_UPKEEP)
                status = follow_jumps(functions, ranges[i].start, function->name, round + 1, code);
        }
        added = functions->found.count - before;
    }
    free(code);
    return status;
}

static enum status add_shortcuts(struct c_functions *functions) {
    static const struct {
        const char *symbol, *name;
    } shortcuts[] = {{"PyObject_Str", "str"},
                     {"PySequence_Tuple", "tuple"},
                     {"PyObject_Size", "len"},
                     {"PyObject_IsInstance", "isinstance"}};
    for (size_t i = 0; i < sizeof shortcuts / sizeof shortcuts[0]; i++) {
        uint64_t address = 0;
        if (elf_file_find_symbol(functions->file, shortcuts[i].symbol, &address) == STATUS_OK &&
            find(functions, address) == NULL)
            TRY(add(functions, address, C_FUNCTION_SHORTCUT, shortcuts[i].name));
    }
    return STATUS_OK;
}

/* A call through a stub is a call of what is behind it. */
static enum status add_stubs(struct c_functions *functions, const char *section) {
    uint64_t start = 0, size_bytes = 0;
    if (elf_file_find_section(functions->file, section, &start, &size_bytes) != STATUS_OK)
        return STATUS_OK;
    for (uint64_t i = 0; i < STUBS_MAX && (i + 1) * MACHINE_CODE_STUB_BYTES <= size_bytes; i++) {
        uint64_t stub = start + i * MACHINE_CODE_STUB_BYTES, target = behind_stub(functions, stub);
        const struct c_function *function = target != stub ? find(functions, target) : NULL;
        if (function != NULL && function->kind != C_FUNCTION_CONTINUATION)
            TRY(map_set(&functions->found, stub, (uintptr_t)function));
    }
    return STATUS_OK;
}

static enum status find_all(struct c_functions *functions) {
    size_t count = 0;
    const struct elf_data_run *runs = elf_data_runs(functions->data, &count);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count; i++)
            /* CPython's own are never constant. */
            if (runs[i].writable)
                TRY(look_through(functions, &runs[i], pass == 1));
    TRY(add_shortcuts(functions));
    TRY(find_continuations(functions));
    TRY(add_stubs(functions, ".plt"));
    TRY(add_stubs(functions, ".plt.got"));
    return add_stubs(functions, ".plt.sec");
}

enum status c_functions_find_all(struct elf_file *file, const struct elf_data *data, const struct unwind_table *table,
                                 struct c_functions **result) {
    *result = NULL;
    struct c_functions *functions = calloc(1, sizeof *functions);
    if (functions == NULL)
        return STATUS_FAILED;
    *functions = (struct c_functions){.file = file,
                                      .data = data,
                                      .table = table,
                                      .code_left = ALL_CODE_MAX_BYTES,
                                      .memory = {.limit_bytes = MEMORY_LIMIT_BYTES}};
    enum status status = find_all(functions);
    map_release(&functions->prefixes);
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
    map_release(&functions->found);
    map_release(&functions->prefixes);
    arena_release(&functions->memory);
    free(functions);
}

const struct c_function *c_functions_find(const struct c_functions *functions, uint64_t address) {
    return find(functions, address);
}
