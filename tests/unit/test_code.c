/* What is read of a code object, and whether it was alive; which bytecode a frame of a free-threaded build runs: the
 * code object's own, or its thread's copy. */
#include "cpython/code.h"

#include "fake_target.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { OWN = 0x1000, COPY = 0x2000 };

/* The array as in 3.14's Include/cpython/code.h: its size, the code's own bytecode, threads 1 and 2, of which the first
 * has no copy. */
static remote_addr put_copies(struct fake_target *target, uint64_t size) {
    remote_addr array = fake_allocate(target, 4 * sizeof(uint64_t));
    const uint64_t words[] = {size, OWN, 0, COPY};
    fake_put(target, array, words, sizeof words);
    return array;
}

static void test_copies_of_threads(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    struct code code = {.bytecode = OWN, .tlbc = put_copies(target, 3)};
    static const remote_addr expected[] = {OWN, OWN, COPY};
    for (int32_t i = 0; i < 3; i++) {
        remote_addr start = 0;
        assert_int_equal(code_bytecode_start(&target->runtime, &code, i, &start), STATUS_OK);
        assert_int_equal(start, expected[i]);
    }
    free(target);
}

static void test_none_without_an_array(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    struct code code = {.bytecode = OWN};
    remote_addr start = 0;
    assert_int_equal(code_bytecode_start(&target->runtime, &code, 2, &start), STATUS_OK);
    assert_int_equal(start, OWN);
    free(target);
}

static void test_arrays_that_cannot_be(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    struct code code = {.bytecode = OWN, .tlbc = put_copies(target, 3)};
    remote_addr start = 0;
    assert_int_equal(code_bytecode_start(&target->runtime, &code, 3, &start), STATUS_TORN);
    code.tlbc = put_copies(target, UINT64_MAX);
    assert_int_equal(code_bytecode_start(&target->runtime, &code, 1, &start), STATUS_TORN);
    code.tlbc = FAKE_START + FAKE_BYTES;
    assert_int_equal(code_bytecode_start(&target->runtime, &code, 1, &start), STATUS_UNREADABLE);
    free(target);
}

/* A code object of nothing but names, with references counted as given. */
static remote_addr put_code(struct fake_target *target, const void *references, size_t size_bytes) {
    const struct layout *layout = &target->runtime.layout;
    remote_addr code = fake_object(target, fake_type(target, "code", 0), layout->code.size);
    remote_addr name = fake_ascii(target, 0, "name");
    fake_put(target, code + layout->object.ob_type - size_bytes, references, size_bytes);
    fake_put_u64(target, code + layout->code.co_name, name);
    if (layout_has(layout->code.co_qualname))
        fake_put_u64(target, code + layout->code.co_qualname, name);
    else
        fake_put_u64(target, code + layout->code.co_code, fake_allocate(target, 64));
    fake_put_u64(target, code + layout->code.co_filename, fake_ascii(target, 0, "file.py"));
    fake_put_u64(target, code + layout->code.co_linetable, fake_allocate(target, 64));
    return code;
}

enum when { AT_REST, JUST_NOW, LONG_AGO };

/* When the frames were seen that have the code. */
static enum status read_counted(struct fake_target *target, const void *references, size_t size_bytes, enum when when) {
    struct code_cache codes;
    const struct code *code = NULL;
    code_cache_init(&codes, &target->runtime);
    codes.is_sampling = when != AT_REST;
    /* The test itself may be interrupted. */
    codes.frames_ns = clock_monotonic_ns() + (when == JUST_NOW ? NS_PER_S : 0) - (when == LONG_AGO ? NS_PER_S : 0);
    enum status status = code_cache_get(&codes, put_code(target, references, size_bytes), &code);
    if (status == STATUS_OK) {
        assert_string_equal(code->name, "name");
        assert_string_equal(code->filename, "file.py");
    }
    code_cache_release(&codes);
    return status;
}

static void assert_counted(int minor, uint64_t references, enum status expected) {
    struct fake_target *target = fake_new(minor < 12 ? minor : 12);
    target->runtime.layout.version = UINT32_C(0x03000000) | (uint32_t)minor << 16;
    assert_int_equal(layout_minor(&target->runtime.layout), minor);
    assert_int_equal(read_counted(target, &references, sizeof references, AT_REST), expected);
    free(target);
}

static void test_what_was_freed_is_no_code(void **state) {
    (void)state;
    for (int minor = 8; minor <= 15; minor++) {
        assert_counted(minor, 0, STATUS_TORN);
        assert_counted(minor, UINT64_C(0x7f651c1d29b0), STATUS_TORN);
        assert_counted(minor, 1, STATUS_OK);
        assert_counted(minor, 1000000007, STATUS_OK);
        assert_counted(minor, UINT32_MAX, STATUS_OK);
    }
    /* _Py_STATIC_IMMORTAL_INITIAL_REFCNT (Include/refcount.h 3.14). */
    assert_counted(14, UINT64_C(3) << 30 | UINT64_C(5) << 48, STATUS_OK);
    assert_counted(13, UINT64_C(3) << 30 | UINT64_C(5) << 48, STATUS_TORN);
    /* How they will be counted is not known. */
    assert_counted(16, 0, STATUS_OK);
}

/* Where frames are objects, it is taken as it lies there, unless it was seen too long ago. */
static void test_what_was_freed_while_sampling(void **state) {
    (void)state;
    const uint64_t none = 0;
    for (int minor = 8; minor <= 12; minor++) {
        struct fake_target *target = fake_new(minor);
        assert_int_equal(read_counted(target, &none, sizeof none, JUST_NOW), minor <= 10 ? STATUS_OK : STATUS_TORN);
        assert_int_equal(read_counted(target, &none, sizeof none, LONG_AGO), STATUS_TORN);
        free(target);
    }
}

static remote_addr put_tuple(struct fake_target *target, const remote_addr *items, uint64_t count) {
    const struct layout *layout = &target->runtime.layout;
    size_t item_bytes = (size_t)count * sizeof items[0];
    remote_addr tuple = fake_object(target, fake_type(target, "tuple", 0), layout->tuple.ob_item + item_bytes);
    fake_put_u64(target, tuple + layout->object.ob_size, count);
    fake_put(target, tuple + layout->tuple.ob_item, items, item_bytes);
    return tuple;
}

/* Code that has the names that are given, and the constant unless it is 0. */
static struct code describe_code(struct fake_target *target, const remote_addr names[2], uint64_t name_count,
                                 remote_addr constant) {
    const struct layout_code *fields = &target->runtime.layout.code;
    remote_addr code = fake_object(target, fake_type(target, "code", 0), fields->size);
    fake_put_u64(target, code + fields->co_names, put_tuple(target, names, name_count));
    fake_put_u64(target, code + fields->co_localsplusnames, put_tuple(target, NULL, 0));
    fake_put_u64(target, code + fields->co_consts, put_tuple(target, &constant, constant != 0));
    return (struct code){.address = code};
}

static void test_what_code_mentions(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    struct code_cache codes;
    const remote_addr names[] = {fake_ascii(target, 0, "generator"), fake_ascii(target, 0, "other")};
    const struct code named = {.address = 2, .name_address = names[1]}, inner = {.address = 4, .name_address = 6};
    const struct code stranger = {.address = 8, .name_address = 10};
    struct code code = describe_code(target, names, 2, inner.address);
    struct code broken = describe_code(target, names, 2, inner.address);
    struct code silent = describe_code(target, names, 0, 0);
    fake_put_u64(target, broken.address + target->runtime.layout.code.co_names, FAKE_START + FAKE_BYTES);
    code_cache_init(&codes, &target->runtime);
    assert_true(code_cache_mentions(&codes, &code, &named));
    assert_true(code_cache_mentions(&codes, &code, &inner));
    assert_false(code_cache_mentions(&codes, &code, &stranger));
    assert_false(code_cache_mentions(&codes, &broken, &named));
    assert_false(code_cache_mentions(&codes, &silent, &named));
    code_cache_release(&codes);
    free(target);
}

static void test_what_was_freed_without_a_gil(void **state) {
    (void)state;
    static const struct {
        uint32_t flags, local;
        int64_t shared;
        enum status expected;
    } cases[] = {
        {0, 1, 0, STATUS_OK},   {0, 0, 1 << 2, STATUS_OK}, {0, UINT32_MAX, 0, STATUS_OK},
        {0, 0, 0, STATUS_TORN}, {0, 0, 3, STATUS_TORN},    {1, 0, -4, STATUS_TORN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fake_target *target = fake_new(12);
        struct layout *layout = &target->runtime.layout;
        layout->free_threaded = true;
        layout->object.ob_type = 24;
        layout->object.ob_size = 32;
        assert_int_equal(read_counted(target, &cases[i], 16, false), cases[i].expected);
        free(target);
    }
}

/* 3.14: BINARY_OP with its five caches, to add and to subscribe; CALL with its three, of 2 and of 200 arguments. */
static void test_steps(void **state) {
    (void)state;
    enum { BINARY_OP = 44, CALL = 52, ADD = 0, SUBSCRIBE = 26, UNITS = 6 + 6 + 4 + 4 };
    uint8_t bytecode[UNITS * CODE_STEP_BYTES] = {
        [0] = BINARY_OP, [1] = ADD, [12] = BINARY_OP, [13] = SUBSCRIBE, [24] = CALL, [25] = 2, [32] = CALL, [33] = 200};
    struct fake_target *target = fake_new(12);
    struct code_cache cache;
    target->runtime.layout.version = 3 << 24 | 14 << 16;
    code_cache_init(&cache, &target->runtime);
    struct code code = {.bytecode = fake_allocate(target, sizeof bytecode), .bytecode_bytes = sizeof bytecode};
    fake_put(target, code.bytecode, bytecode, sizeof bytecode);
    assert_int_equal(code_cache_step(&cache, &code, 0).family, OPCODE_CALLS_PYTHON);
    assert_false(code_cache_step(&cache, &code, 0).enters);
    assert_true(code_cache_step(&cache, &code, 12).enters);
    assert_int_equal(code_cache_step(&cache, &code, 24).family, OPCODE_CALL);
    assert_true(code_cache_step(&cache, &code, 24).enters);
    assert_int_equal(code_cache_step(&cache, &code, 24).argument, 2);
    assert_int_equal(code_cache_step(&cache, &code, 30).argument, 2);
    assert_int_equal(code_cache_step(&cache, &code, 32).argument, CODE_STEP_ARGUMENT);
    assert_int_equal(code_cache_step(&cache, &code, sizeof bytecode).family, OPCODE_HIDDEN);
    code_cache_release(&cache);
    free(target);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_freed_is_no_code), cmocka_unit_test(test_what_was_freed_while_sampling),
        cmocka_unit_test(test_what_code_mentions),        cmocka_unit_test(test_what_was_freed_without_a_gil),
        cmocka_unit_test(test_copies_of_threads),         cmocka_unit_test(test_none_without_an_array),
        cmocka_unit_test(test_arrays_that_cannot_be),     cmocka_unit_test(test_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
