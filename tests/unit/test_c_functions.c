/* Tables as CPython's modules have them, and functions for them. */
#include "sampler/c_functions.h"

#include "own_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { METH_VARARGS = 1, METH_O = 8, METH_FASTCALL_KEYWORDS = 0x82 };

/* Compilers see nobody who reads it. */
#define TABLE __attribute__((used)) static

/* Different functions, even to a linker that folds what is the same. */
#define FUNCTION(name)                                                                                                 \
    static const char *name(void) {                                                                                    \
        return #name;                                                                                                  \
    }
FUNCTION(list_append)
FUNCTION(list_sort)
FUNCTION(list_new)
FUNCTION(list_dealloc)
FUNCTION(heap_new)
FUNCTION(heap_call)
FUNCTION(heap_free)
FUNCTION(heap_push)
FUNCTION(square)
FUNCTION(shared_new)
FUNCTION(odd)
FUNCTION(getter)

#if defined(__aarch64__)
#define JUMP(to) "b " to "\n"
#else
/* As between functions that are not neighbours. */
#define JUMP(to) ".byte 0xe9\n.long " to " - . - 4\n"
#endif
/* clang-format off */
#define ASSEMBLY(name, code)                                                                                           \
    ".globl " name "\n.balign 16\n.type " name ", %function\n" name ":\n.cfi_startproc\n" code                         \
    ".cfi_endproc\n.size " name ", . - " name "\n"
__asm__(".text\n"
    ASSEMBLY("tail_one", "nop\n" JUMP("tail_shared"))
    ASSEMBLY("tail_two", "nop\n" JUMP("tail_shared"))
    ASSEMBLY("tail_alone", "nop\n" JUMP("tail_first"))
    ASSEMBLY("tail_first", "nop\n" JUMP("tail_second"))
    ASSEMBLY("tail_second", "nop\nnop\nnop\n")
    ASSEMBLY("tail_shared", "nop\nnop\nnop\n"));
/* clang-format on */
extern const char *tail_one(void), *tail_two(void), *tail_alone(void);
extern const char tail_first[], tail_second[], tail_shared[];

typedef const char *(*function)(void);

struct method {
    const char *ml_name;
    function ml_meth;
    int ml_flags;
    const char *ml_doc;
};

TABLE struct method list_methods[] = {
    {"append", list_append, METH_O, NULL},
    {"sort", list_sort, METH_FASTCALL_KEYWORDS, "sort(self)"},
    {NULL, NULL, 0, NULL},
};
TABLE struct method module_methods[] = {
    {"square", square, METH_O, NULL},    {"one", tail_one, METH_O, NULL}, {"two", tail_two, METH_VARARGS, NULL},
    {"alone", tail_alone, METH_O, NULL}, {NULL, NULL, 0, NULL},
};
TABLE struct method heap_methods[] = {{"push", heap_push, METH_O, NULL}, {NULL, NULL, 0, NULL}};
/* Not tables of methods: a name that is none, flags that are none, a PyGetSetDef. */
TABLE struct method no_methods[] = {{"two words", odd, METH_O, NULL}, {"flags", odd, 0x4000, NULL}};
TABLE struct {
    const char *name;
    function get, set;
    const char *doc;
    void *closure;
} getset[] = {{"attribute", getter, NULL, "doc", NULL}};

/* PyTypeObject: ob_refcnt, ob_type, ob_size, and from tp_name on as in Include/cpython/object.h. */
enum { NAME = 3, BASICSIZE = 4, DEALLOC = 6, METHODS = 29, NEW = 39, TYPE_WORDS = 54 };
TABLE void *list_type[TYPE_WORDS] = {
    [0] = (void *)1,          [NAME] = (void *)"strobe.list",
    [BASICSIZE] = (void *)40, [DEALLOC] = (void *)list_dealloc,
    [METHODS] = list_methods, [NEW] = (void *)list_new,
};
TABLE void *first_type[TYPE_WORDS] = {[0] = (void *)1,
                                      [NAME] = (void *)"first",
                                      [BASICSIZE] = (void *)16,
                                      [DEALLOC] = (void *)list_dealloc,
                                      [NEW] = (void *)shared_new};
TABLE void *second_type[TYPE_WORDS] = {[0] = (void *)1,
                                       [NAME] = (void *)"second",
                                       [BASICSIZE] = (void *)16,
                                       [DEALLOC] = (void *)list_dealloc,
                                       [NEW] = (void *)shared_new};

/* Include/typeslots.h */
TABLE struct {
    int slot;
    void *pfunc;
} heap_slots[] = {
    {65, (void *)heap_new}, {50, (void *)heap_call}, {74, (void *)heap_free}, {64, heap_methods}, {0, NULL}};
TABLE struct {
    const char *name;
    int basicsize, itemsize;
    unsigned flags;
    void *slots;
} heap_spec = {"module.heap", 24, 0, 0, heap_slots};

/* PyModuleDef, behind its PyModuleDef_Base */
TABLE void *module[9] = {[5] = (void *)"strobe_module", [7] = (void *)(intptr_t)-1, [8] = module_methods};

static struct own_file own;
static struct c_functions *functions;

static void assert_is(const void *address, enum c_function_kind kind, const char *name) {
    const struct c_function *found = c_functions_find(functions, own_file_address(&own, address));
    assert_non_null(found);
    assert_int_equal(found->kind, kind);
    assert_string_equal(found->name, name);
}

static void test_methods_have_the_names_that_python_gives_them(void **state) {
    (void)state;
    assert_is((void *)list_append, C_FUNCTION_METHOD, "list.append");
    assert_is((void *)list_sort, C_FUNCTION_METHOD, "list.sort");
    assert_is((void *)heap_push, C_FUNCTION_METHOD, "heap.push");
    assert_is((void *)square, C_FUNCTION_METHOD, "strobe_module.square");
}

static void test_types_are_called(void **state) {
    (void)state;
    assert_is((void *)list_new, C_FUNCTION_SLOT, "strobe.list");
    assert_is((void *)heap_new, C_FUNCTION_SLOT, "heap");
    assert_is((void *)heap_call, C_FUNCTION_SLOT, "heap");
    assert_is((void *)shared_new, C_FUNCTION_SLOT, "");
    assert_is((void *)list_dealloc, C_FUNCTION_UPKEEP, "");
    assert_is((void *)heap_free, C_FUNCTION_UPKEEP, "");
}

static void test_what_only_looks_like_a_table_is_none(void **state) {
    (void)state;
    assert_null(c_functions_find(functions, own_file_address(&own, (void *)odd)));
    assert_null(c_functions_find(functions, own_file_address(&own, (void *)getter)));
    assert_null(c_functions_find(functions, own_file_address(&own, (void *)own_file_open)));
    assert_null(c_functions_find(functions, 0));
}

static void test_jumps_lead_to_where_the_work_is_done(void **state) {
    (void)state;
    assert_is((void *)tail_one, C_FUNCTION_METHOD, "strobe_module.one");
    assert_is(tail_shared, C_FUNCTION_CONTINUATION, "strobe_module.*");
    assert_is(tail_first, C_FUNCTION_CONTINUATION, "strobe_module.alone");
    assert_is(tail_second, C_FUNCTION_CONTINUATION, "strobe_module.alone");
}

/* Relocated data are as they are in memory. */
static void test_data_are_those_in_memory(void **state) {
    (void)state;
    void *const *const tables[] = {list_type, first_type, second_type};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (size_t k = 0; k < TYPE_WORDS; k++) {
            uint64_t word = 0, truth = (uint64_t)tables[i][k];
            assert_true(elf_data_read_word(own.data, own_file_address(&own, &tables[i][k]), &word));
            assert_int_equal(word, truth >= own.bias && own.bias != 0 ? truth - own.bias : truth);
        }
    const char *text = elf_data_text(own.data, own_file_address(&own, list_type[NAME]), 64);
    assert_non_null(text);
    assert_string_equal(text, "strobe.list");
    assert_null(elf_data_text(own.data, own_file_address(&own, list_type[NAME]), 4));
    assert_true(elf_data_is_code(own.data, own_file_address(&own, (void *)square)));
    assert_false(elf_data_is_code(own.data, own_file_address(&own, list_type)));
}

static int set_up(void **state) {
    (void)state;
    own_file_open(&own);
    return c_functions_find_all(own.file, own.data, own.table, &functions) != STATUS_OK;
}

static int tear_down(void **state) {
    (void)state;
    c_functions_free(functions);
    own_file_close(&own);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_methods_have_the_names_that_python_gives_them),
        cmocka_unit_test(test_types_are_called),
        cmocka_unit_test(test_what_only_looks_like_a_table_is_none),
        cmocka_unit_test(test_jumps_lead_to_where_the_work_is_done),
        cmocka_unit_test(test_data_are_those_in_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
