#include "elf/symbol_name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* As c++filt and rustfilt say, without parameters and hashes. */
static const char *const names[][2] = {
    {"dgemm_", "dgemm_"},
    {"PyObject_Malloc", "PyObject_Malloc"},
    {"list_dealloc.part.0", "list_dealloc"},
    {"_PyEval_EvalFrameDefault.cold", "_PyEval_EvalFrameDefault"},
    {"memcpy@@GLIBC_2.14", "memcpy"},
    {".L42", ".L42"},
    {"_ZN3agg11qsort_cellsINS_7cell_aaEEEvPPT_j", "agg::qsort_cells<agg::cell_aa>"},
    {"_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<int, std::allocator<int> >::push_back"},
    {"_ZL9kernel_1dPfi.constprop.0", "kernel_1d"},
    {"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"},
    {"_ZN4core3fmt3num50_$LT$impl$u20$core..fmt..Debug$u20$for$u20$u32$GT$3fmt17h5b1b2a1c0d9e8f76E",
     "core::fmt::num::<impl core::fmt::Debug for u32>::fmt"},
    {"_RNvCs1234_7mycrate3foo", "mycrate::foo"},
    {"_Z", "_Z"},
    {"_ZN4unfinished", "_ZN4unfinished"},
    {"_Return", "_Return"},
};

static void test_names(void **state) {
    (void)state;
    struct symbol_names cache = {0};
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            assert_string_equal(symbol_names_plain(&cache, names[i][0]), names[i][1]);
    symbol_names_release(&cache);
}

static void assert_is_cut(const char *name) {
    static const char mark[] = "\u2026";
    size_t length = strlen(name);
    assert_true(length < SYMBOL_NAME_MAX_BYTES && length > SYMBOL_NAME_MAX_BYTES - 8);
    assert_string_equal(name + length - strlen(mark), mark);
}

static void test_long_names(void **state) {
    (void)state;
    struct symbol_names cache = {0};
    char name[8192];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_is_cut(symbol_names_plain(&cache, name));
    memcpy(name, "_Z", 2);
    assert_is_cut(symbol_names_plain(&cache, name));
    /* Of two bytes each in the source: no half of one is left. */
    (void)snprintf(name, sizeof name, "_ZN300");
    for (size_t i = 0; i < 150; i++)
        memcpy(name + 6 + 2 * i, "\u00e9", 2);
    memcpy(name + 306, "1aEv", sizeof "1aEv");
    assert_is_cut(symbol_names_plain(&cache, name));
    assert_int_equal(((unsigned char)symbol_names_plain(&cache, name)[SYMBOL_NAME_MAX_BYTES - 5]) & 0x80, 0x80);
    symbol_names_release(&cache);
}

/* f<a<int, int>, a<a<int, int>, a<int, int>>, …>: each type has the one before twice in it, so that all of it would be
 * 2^25 times as long as the first. c++filt prints 139,198 bytes for 12 of these. */
static void test_a_name_that_would_not_end(void **state) {
    (void)state;
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    struct symbol_names cache = {0};
    char name[1024];
    size_t length = (size_t)snprintf(name, sizeof name, "_Z1fI1aIiiE");
    for (size_t i = 1; i <= 25; i++)
        length += (size_t)snprintf(name + length, sizeof name - length, "S0_IS%c_S%c_E", digits[i], digits[i]);
    (void)snprintf(name + length, sizeof name - length, "Evv");
    const char *plain = symbol_names_plain(&cache, name);
    assert_is_cut(plain);
    assert_memory_equal(plain, "f<a<int, int>, a<a<int, int>, ", 30);
    symbol_names_release(&cache);
}

static void test_more_names_than_are_kept(void **state) {
    (void)state;
    struct symbol_names cache = {0};
    for (int i = 0; i < 20000; i++) {
        char name[32], expected[32];
        (void)snprintf(name, sizeof name, "_Z6f%05dv", i);
        (void)snprintf(expected, sizeof expected, "f%05d", i);
        assert_string_equal(symbol_names_plain(&cache, name), expected);
    }
    assert_true(cache.texts.size_bytes < 1 << 20);
    symbol_names_release(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_a_name_that_would_not_end),
        cmocka_unit_test(test_more_names_than_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
