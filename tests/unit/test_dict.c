#include "cpython/dict.h"

#include "base/buffer.h"
#include "cpython/str.h"
#include "cpython/type.h"
#include "fake_target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What the interpreter promises of a walk: which values, in which order. Keys are not looked at. */
struct seen {
    remote_addr values[8];
    size_t count;
};

static enum status note(void *context, remote_addr key, remote_addr value) {
    struct seen *seen = context;
    assert_true(key != 0);
    if (seen->count < 8)
        seen->values[seen->count] = value;
    seen->count++;
    return STATUS_OK;
}

static remote_addr make_dict(struct fake_target *target, remote_addr keys, remote_addr values) {
    const struct layout_dict *dict = &target->runtime.layout.dict;
    remote_addr address = fake_allocate(target, 128);
    fake_put_u64(target, address + dict->ma_used, 1);
    fake_put_u64(target, address + dict->ma_keys, keys);
    fake_put_u64(target, address + dict->ma_values, values);
    return address;
}

/* 3.11+: eight slots of one byte, three words an entry when general. */
static remote_addr make_keys(struct fake_target *target, uint8_t log2_size, uint8_t log2_index_bytes, uint8_t kind,
                             uint64_t entry_count) {
    const struct layout_dict_keys *keys = &target->runtime.layout.dict_keys;
    remote_addr address = fake_allocate(target, 512);
    fake_put_u8(target, address + keys->dk_log2_size, log2_size);
    fake_put_u8(target, address + keys->dk_log2_index_bytes, log2_index_bytes);
    fake_put_u8(target, address + keys->dk_kind, kind);
    fake_put_u64(target, address + keys->dk_nentries, entry_count);
    return address;
}

static void put_entry(struct fake_target *target, remote_addr keys, size_t words, size_t number, remote_addr key,
                      remote_addr value) {
    remote_addr entry = keys + target->runtime.layout.dict_keys.dk_indices + 8 + number * words * 8;
    fake_put_u64(target, entry + (words - 2) * 8, key);
    fake_put_u64(target, entry + (words - 1) * 8, value);
}

static enum status walk(struct fake_target *target, remote_addr dict, struct seen *seen) {
    seen->count = 0;
    return dict_visit(&target->runtime, dict, note, seen);
}

static void test_deleted_entries_are_passed_over(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    struct seen seen;
    for (uint8_t kind = 0; kind < 2; kind++) {
        size_t words = kind == 0 ? 3 : 2;
        remote_addr keys = make_keys(target, 3, 3, kind, 4);
        put_entry(target, keys, words, 0, 8, 16);
        put_entry(target, keys, words, 1, 0, 0);
        put_entry(target, keys, words, 2, 24, 0);
        put_entry(target, keys, words, 3, 40, 48);
        assert_int_equal(walk(target, make_dict(target, keys, 0), &seen), STATUS_OK);
        assert_int_equal(seen.count, 2);
        assert_int_equal(seen.values[0], 16);
        assert_int_equal(seen.values[1], 48);
    }
    free(target);
}

static void test_impossible_keys_are_torn(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    struct seen seen;
    const remote_addr torn[] = {
        make_keys(target, 200, 3, 0, 1),        make_keys(target, 3, 200, 0, 1), make_keys(target, 3, 63, 1, 1),
        make_keys(target, 3, 3, 3, 1),          make_keys(target, 3, 3, 255, 1), make_keys(target, 3, 3, 0, 9),
        make_keys(target, 3, 3, 0, UINT64_MAX),
    };
    for (size_t i = 0; i < sizeof torn / sizeof torn[0]; i++)
        assert_int_equal(walk(target, make_dict(target, torn[i], 0), &seen), STATUS_TORN);
    assert_int_equal(walk(target, make_dict(target, 0, 0), &seen), STATUS_TORN);
    assert_int_equal(walk(target, make_dict(target, FAKE_START + 1, 0), &seen), STATUS_TORN);
    remote_addr huge = make_keys(target, 48, 48, 0, UINT64_C(1) << 48);
    assert_int_equal(walk(target, make_dict(target, huge, 0), &seen), STATUS_UNREADABLE);
    free(target);
}

static void test_impossible_old_keys_are_torn(void **state) {
    (void)state;
    struct fake_target *target = fake_new(9);
    const struct layout_dict_keys *layout = &target->runtime.layout.dict_keys;
    static const uint64_t sizes[] = {0, 3, 12, UINT64_MAX, UINT64_C(1) << 63};
    struct seen seen;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        remote_addr keys = fake_allocate(target, 128);
        fake_put_u64(target, keys + layout->dk_size, sizes[i]);
        assert_int_equal(walk(target, make_dict(target, keys, 0), &seen), STATUS_TORN);
    }
    free(target);
}

/* 3.12: the entries in the order of insertion stand backwards before the values. */
static remote_addr make_values(struct fake_target *target, uint8_t prefix_bytes, uint8_t size, uint8_t first,
                               uint8_t second) {
    remote_addr values = fake_allocate(target, 64) + 16;
    fake_put_u8(target, values - 1, prefix_bytes);
    fake_put_u8(target, values - 2, size);
    fake_put_u8(target, values - 3, first);
    fake_put_u8(target, values - 4, second);
    fake_put_u64(target, values, 100);
    fake_put_u64(target, values + 8, 200);
    return values;
}

static void test_split_values_in_order_of_insertion(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    struct seen seen;
    remote_addr keys = make_keys(target, 3, 3, 2, 2);
    put_entry(target, keys, 2, 0, 8, 0);
    put_entry(target, keys, 2, 1, 16, 0);
    assert_int_equal(walk(target, make_dict(target, keys, make_values(target, 8, 2, 1, 0)), &seen), STATUS_OK);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.values[0], 200);
    assert_int_equal(seen.values[1], 100);
    /* An entry that the keys do not have, and more entries than there is room for. */
    assert_int_equal(walk(target, make_dict(target, keys, make_values(target, 8, 2, 0, 77)), &seen), STATUS_TORN);
    assert_int_equal(walk(target, make_dict(target, keys, make_values(target, 8, 200, 0, 0)), &seen), STATUS_TORN);
    assert_int_equal(walk(target, make_dict(target, keys, 3), &seen), STATUS_TORN);
    free(target);
}

static void test_finding_ends_and_does_not_trip_over_other_keys(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    remote_addr keys = make_keys(target, 3, 3, 0, 3);
    remote_addr value = 0;
    /* One key is no string, one lies nowhere. */
    put_entry(target, keys, 3, 0, fake_allocate(target, 64), 1);
    put_entry(target, keys, 3, 1, UINT64_C(0x700000000000), 2);
    put_entry(target, keys, 3, 2, fake_ascii(target, 0, "sought"), 3);
    remote_addr dict = make_dict(target, keys, 0);
    assert_int_equal(dict_find_text(&target->runtime, dict, "sought", &value), STATUS_OK);
    assert_int_equal(value, 3);
    assert_int_equal(dict_find_text(&target->runtime, dict, "absent", &value), STATUS_NOT_FOUND);
    free(target);
}

static void test_instances_without_attributes_and_impossible_ones(void **state) {
    (void)state;
    struct fake_target *target = fake_new(10);
    const struct layout *layout = &target->runtime.layout;
    struct seen seen = {.count = 0};
    remote_addr type = fake_type(target, "Thing", 0);
    remote_addr object = fake_object(target, type, 64);
    assert_int_equal(instance_visit(&target->runtime, object, note, &seen), STATUS_NOT_FOUND);
    /* A null slot: nothing was ever set. */
    fake_put_u64(target, type + layout->type.tp_dictoffset, 32);
    assert_int_equal(instance_visit(&target->runtime, object, note, &seen), STATUS_OK);
    assert_int_equal(seen.count, 0);
    fake_put_u64(target, object + 32, 1);
    assert_int_equal(instance_visit(&target->runtime, object, note, &seen), STATUS_TORN);
    /* From the end of an object that claims to have 2**63 items. */
    fake_put_u64(target, type + layout->type.tp_dictoffset, (uint64_t)-8);
    fake_put_u64(target, object + layout->object.ob_size, UINT64_C(1) << 63);
    assert_int_equal(instance_visit(&target->runtime, object, note, &seen), STATUS_TORN);
    fake_put_u64(target, type + layout->type.tp_dictoffset, UINT64_C(1) << 40);
    assert_int_equal(instance_visit(&target->runtime, object, note, &seen), STATUS_TORN);
    fake_put_u64(target, type + layout->type.tp_flags, 0);
    assert_int_equal(instance_visit(&target->runtime, object, note, &seen), STATUS_TORN);
    free(target);
}

/* 3.13+ has no table of its own here, but its form of values can be given by hand. */
static void test_inline_values(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    struct layout *layout = &target->runtime.layout;
    layout->managed = (struct layout_managed){.dict_back = 24,
                                              .values_back = OFFSET_NONE,
                                              .inline_values = true,
                                              .values_capacity = 0,
                                              .values_size = 1,
                                              .values_valid = 3,
                                              .values_items = 8};
    struct seen seen = {.count = 0};
    remote_addr keys = make_keys(target, 3, 3, 2, 2);
    put_entry(target, keys, 2, 0, 8, 0);
    put_entry(target, keys, 2, 1, 16, 0);
    remote_addr type = fake_type(target, "Thing", TYPE_HAS_MANAGED_DICT | TYPE_HAS_INLINE_VALUES);
    fake_put_u64(target, type + layout->type.tp_basicsize, 16);
    fake_put_u64(target, type + layout->type.ht_cached_keys, keys);
    remote_addr object = fake_allocate(target, 128) + 32;
    fake_put_u64(target, object + layout->object.ob_type, type);
    static const uint8_t head[] = {2, 2, 1, 1};
    static const uint8_t order[] = {1, 0};
    fake_put(target, object + 16, head, sizeof head);
    fake_put_u64(target, object + 24, 100);
    fake_put_u64(target, object + 32, 200);
    fake_put(target, object + 40, order, sizeof order);
    assert_int_equal(instance_visit(&target->runtime, object, note, &seen), STATUS_OK);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.values[0], 200);
    assert_int_equal(seen.values[1], 100);
    /* More values than there is room for; an entry beyond the keys; values that are no longer in use. */
    fake_put_u8(target, object + 17, 3);
    assert_int_equal(instance_visit(&target->runtime, object, note, &seen), STATUS_TORN);
    fake_put_u8(target, object + 17, 2);
    fake_put_u8(target, object + 40, 2);
    assert_int_equal(instance_visit(&target->runtime, object, note, &seen), STATUS_TORN);
    fake_put_u8(target, object + 19, 0);
    seen.count = 0;
    assert_int_equal(instance_visit(&target->runtime, object, note, &seen), STATUS_OK);
    assert_int_equal(seen.count, 0);
    free(target);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deleted_entries_are_passed_over),
        cmocka_unit_test(test_impossible_keys_are_torn),
        cmocka_unit_test(test_impossible_old_keys_are_torn),
        cmocka_unit_test(test_split_values_in_order_of_insertion),
        cmocka_unit_test(test_finding_ends_and_does_not_trip_over_other_keys),
        cmocka_unit_test(test_instances_without_attributes_and_impossible_ones),
        cmocka_unit_test(test_inline_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
