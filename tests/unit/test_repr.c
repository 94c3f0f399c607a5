#include "cpython/repr.h"

#include "base/text.h"
#include "cpython/type.h"
#include "fake_target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MANY = 1000000 };

static void assert_shows(struct fake_target *target, remote_addr object, size_t max_characters, const char *expected) {
    struct buffer text;
    buffer_init(&text, 16 << 20);
    assert_int_equal(buffer_append_text(&text, ">"), STATUS_OK);
    assert_int_equal(repr_append(&target->runtime, object, max_characters, &text), STATUS_OK);
    assert_string_equal(buffer_text(&text) + 1, expected);
    assert_ptr_equal(target->runtime.objects, &target->memory);
    buffer_release(&text);
}

static remote_addr make_int(struct fake_target *target, remote_addr type, uint64_t tag, uint32_t digit) {
    const struct layout_long *layout = &target->runtime.layout.long_;
    remote_addr address = fake_object(target, type, 64);
    fake_put_u64(target, address + layout->lv_tag, tag);
    fake_put(target, address + layout->ob_digit, &digit, sizeof digit);
    return address;
}

static void test_what_cannot_be_read(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    remote_addr integer = fake_type(target, "int", TYPE_IS_INT);
    remote_addr list = fake_type(target, "list", TYPE_IS_LIST);
    assert_shows(target, 0, MANY, "<null>");
    assert_shows(target, 1, MANY, "<unreadable>");
    assert_shows(target, 0x7fffffff0000, MANY, "<unreadable>");
    assert_shows(target, UINT64_MAX & ~UINT64_C(7), MANY, "<unreadable>");
    assert_shows(target, fake_object(target, 0, 64), MANY, "<unreadable>");
    assert_shows(target, make_int(target, integer, 1 << 3, 1u << 30), MANY, "<unreadable>");
    assert_shows(target, make_int(target, integer, UINT64_MAX, 0), MANY, "<unreadable>");
    const remote_addr items[] = {make_int(target, integer, 1 << 3, 42), 0, 8, make_int(target, integer, 10, 7)};
    assert_shows(target, fake_list(target, list, items, 4), MANY, "[42, <null>, <unreadable>, -7]");
    free(target);
}

static void test_type_names_are_repaired(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    struct buffer text;
    buffer_init(&text, 1000);
    remote_addr object = fake_object(target, fake_type(target, "module.b\xff\xfe", 0), 64);
    assert_int_equal(repr_append_type_name(&target->runtime, object, &text), STATUS_OK);
    assert_string_equal(buffer_text(&text), "b??");
    buffer_clear(&text);
    assert_int_equal(repr_append_type_name(&target->runtime, 0, &text), STATUS_OK);
    assert_int_equal(repr_append_type_name(&target->runtime, 24, &text), STATUS_OK);
    assert_string_equal(buffer_text(&text), "<null><unreadable>");
    buffer_release(&text);
    free(target);
}

/* What is behind the head of a datetime64 or timedelta64. */
static void assert_shows_time(const char *name, int64_t value, int32_t base, int32_t num, const char *expected) {
    struct fake_target *target = fake_new(12);
    remote_addr object = fake_object(target, fake_type(target, name, 0), 64);
    layout_offset head = target->runtime.layout.object.size;
    fake_put(target, object + head, &value, sizeof value);
    fake_put(target, object + head + 8, &base, sizeof base);
    fake_put(target, object + head + 12, &num, sizeof num);
    char plain[64];
    (void)snprintf(plain, sizeof plain, "<%s at 0x%llx>", strrchr(name, '.') + 1, (unsigned long long)object);
    assert_shows(target, object, MANY, expected != NULL ? expected : plain);
    free(target);
}

static void test_times_of_numpy(void **state) {
    (void)state;
    enum { YEAR, MONTH, WEEK, BUSINESS_DAY, DAY, HOUR, SECOND = 7, ATTOSECOND = 13, GENERIC };
    assert_shows_time("numpy.datetime64", 0, DAY, 1, "np.datetime64('1970-01-01')");
    assert_shows_time("numpy.datetime64", -1, ATTOSECOND, 1, "np.datetime64('1969-12-31T23:59:59.999999999999999999')");
    assert_shows_time("numpy.datetime64", INT64_MIN, DAY, 1, "np.datetime64('NaT')");
    assert_shows_time("numpy.timedelta64", INT64_MAX, DAY, 7, "np.timedelta64(9223372036854775807,'7D')");
    assert_shows_time("numpy.timedelta64", -1, GENERIC, 1, "np.timedelta64(-1)");
    /* No dates, and no units. */
    const int64_t far[] = {INT64_MAX, INT64_MIN + 1};
    for (size_t i = 0; i < 2; i++)
        for (int32_t base = YEAR; base <= HOUR; base++)
            assert_shows_time("numpy.datetime64", far[i], base, base < HOUR ? 1 : INT32_MAX, NULL);
    assert_shows_time("numpy.datetime64", 1, GENERIC, 1, NULL);
    assert_shows_time("numpy.timedelta64", 1, GENERIC + 1, 1, NULL);
    assert_shows_time("numpy.timedelta64", 1, -1, 1, NULL);
    assert_shows_time("numpy.timedelta64", 1, BUSINESS_DAY, 1, NULL);
    assert_shows_time("numpy.timedelta64", 1, SECOND, 0, NULL);
}

static void test_cut_between_characters(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    remote_addr type = fake_type(target, "str", TYPE_IS_STR);
    static const uint16_t wide[] = {0x4e2d, 0x6587};
    remote_addr object = fake_string(target, type, 2, true, false, 2, wide, sizeof wide);
    assert_shows(target, object, 4, "'中文'");
    assert_shows(target, object, 3, "'中…");
    assert_shows(target, object, 2, "'…");
    assert_shows(target, object, 1, "…");
    assert_shows(target, object, 0, "");
    free(target);
}

static void test_text_that_does_not_fit_its_buffer_is_strobes_failure(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    struct buffer text;
    remote_addr object = fake_ascii(target, fake_type(target, "str", TYPE_IS_STR), "hello");
    buffer_init(&text, 3);
    assert_int_equal(repr_append(&target->runtime, object, MANY, &text), STATUS_LIMIT);
    buffer_release(&text);
    free(target);
}

static void test_cycles_and_depth(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    remote_addr type = fake_type(target, "list", TYPE_IS_LIST);
    remote_addr inner = fake_list(target, type, NULL, 0);
    for (int i = 0; i < 1000; i++)
        inner = fake_list(target, type, &inner, 1);
    assert_shows(target, inner, MANY, "[[[[[…]]]]]");
    const remote_addr nothing[2] = {0};
    remote_addr cycle = fake_list(target, type, nothing, 2);
    remote_addr items = 0;
    memcpy(&items, target->bytes + (cycle - FAKE_START) + target->runtime.layout.list.ob_item, sizeof items);
    fake_put_u64(target, items, cycle);
    fake_put_u64(target, items + 8, fake_list(target, type, &cycle, 1));
    assert_shows(target, cycle, MANY, "[[...], [[...]]]");
    free(target);
}

static void test_cells_in_cells_end(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    remote_addr cell = fake_object(target, fake_type(target, "cell", 0), 64);
    fake_put_u64(target, cell + target->runtime.layout.cell.ob_ref, cell);
    struct buffer text;
    buffer_init(&text, 1000);
    assert_int_equal(repr_append(&target->runtime, cell, MANY, &text), STATUS_OK);
    assert_non_null(strstr(buffer_text(&text), "<cell: …>"));
    buffer_release(&text);
    free(target);
}

/* A list of lists of lists of lists, each of 1000 items, and a set that claims 2**40 slots: what would take hours. */
static void test_patience_ends(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    remote_addr type = fake_type(target, "list", TYPE_IS_LIST);
    remote_addr items[1000];
    remote_addr list = fake_object(target, fake_type(target, "object", 0), 64);
    for (int level = 0; level < 4; level++) {
        for (size_t i = 0; i < 1000; i++)
            items[i] = list;
        list = fake_list(target, type, items, 1000);
    }
    struct buffer text;
    buffer_init(&text, 1 << 30);
    target->reads = 0;
    assert_int_equal(repr_append(&target->runtime, list, SIZE_MAX, &text), STATUS_OK);
    assert_in_range(target->reads, 1000, 100000);
    assert_string_equal(buffer_text(&text) + text.size_bytes - 3, "…");
    buffer_release(&text);
    free(target);
}

static void test_bases_in_a_circle_end(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    const struct layout_type *layout = &target->runtime.layout.type;
    remote_addr one = fake_type(target, "One", TYPE_IS_HEAP_TYPE | TYPE_IS_TUPLE);
    remote_addr two = fake_type(target, "Two", TYPE_IS_HEAP_TYPE | TYPE_IS_TUPLE);
    fake_put_u64(target, one + layout->tp_base, two);
    fake_put_u64(target, two + layout->tp_base, one);
    fake_put_u64(target, one + target->runtime.layout.object.ob_type, one);
    fake_put_u64(target, two + target->runtime.layout.object.ob_type, two);
    struct buffer text;
    buffer_init(&text, 1000);
    assert_int_equal(repr_append(&target->runtime, fake_object(target, one, 64), MANY, &text), STATUS_OK);
    buffer_release(&text);
    free(target);
}

/* An endless memory in which every 64 bytes begin an object of a type drawn by chance, whose other words are what an
 * attacker would choose: nothing, small numbers, huge ones, other objects. The types are well-formed. */
struct chaos {
    struct memory memory;
    const struct layout *layout;
    uint64_t seed;
};

enum { CHAOS_TYPES = 0x100000, CHAOS_TYPE_BYTES = 0x1000, CHAOS_NAME = 0xf00, CHAOS_OBJECTS = 0x1000000 };

static const struct {
    char name[32];
    uint64_t flags;
} chaos_types[] = {
    {"list", TYPE_IS_LIST},
    {"tuple", TYPE_IS_TUPLE},
    {"dict", TYPE_IS_DICT},
    {"set", 0},
    {"int", TYPE_IS_INT},
    {"str", TYPE_IS_STR},
    {"bytes", TYPE_IS_BYTES},
    {"bytearray", 0},
    {"cell", 0},
    {"function", 0},
    {"method", 0},
    {"builtin_function_or_method", 0},
    {"module", 0},
    {"type", TYPE_IS_TYPE},
    {"collections.deque", TYPE_IS_HEAP_TYPE},
    {"collections.defaultdict", TYPE_IS_DICT},
    {"numpy.ndarray", 0},
    {"numpy.str_", TYPE_IS_STR},
    {"numpy.datetime64", 0},
    {"numpy.timedelta64", 0},
    {"datetime.datetime", 0},
    {"datetime.timezone", 0},
    {"BaseException", TYPE_IS_EXCEPTION},
    {"range", 0},
    {"weakref", 0},
    {"method_descriptor", 0},
    {"Plain", TYPE_IS_HEAP_TYPE | TYPE_HAS_MANAGED_DICT},
    {"Point", TYPE_IS_HEAP_TYPE | TYPE_IS_TUPLE},
    {"EnumMeta", TYPE_IS_HEAP_TYPE},
    {"Slots", TYPE_IS_HEAP_TYPE},
};
enum { CHAOS_TYPE_COUNT = sizeof chaos_types / sizeof chaos_types[0] };

static uint64_t mix(uint64_t value) {
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

static remote_addr chaos_type(uint64_t random) {
    return CHAOS_TYPES + random % CHAOS_TYPE_COUNT * CHAOS_TYPE_BYTES;
}

static uint64_t chaos_type_word(const struct chaos *chaos, remote_addr address) {
    const struct layout_type *type = &chaos->layout->type;
    uint64_t random = mix(address ^ chaos->seed);
    size_t number = (address - CHAOS_TYPES) / CHAOS_TYPE_BYTES;
    size_t offset = address % CHAOS_TYPE_BYTES;
    uint64_t word = 0;
    if (offset >= CHAOS_NAME && offset < CHAOS_NAME + sizeof chaos_types[0].name)
        memcpy(&word, chaos_types[number].name + (offset - CHAOS_NAME), sizeof word);
    else if (offset == type->tp_name)
        word = address - offset + CHAOS_NAME;
    else if (offset == type->tp_flags)
        word = chaos_types[number].flags | TYPE_IS_READY;
    else if (offset == type->tp_basicsize || offset == type->tp_itemsize)
        word = random % 16 * 8;
    else if (offset == type->tp_dictoffset)
        word = random % 2 == 0 ? 0 : random % 3 == 0 ? (uint64_t)-8 : 32;
    else if (offset == chaos->layout->object.ob_type || offset == type->tp_base)
        word = chaos_type(random);
    else
        word = random % 2 == 0 ? random % 4 : CHAOS_OBJECTS + random % 100000 * 64;
    return word;
}

static uint64_t chaos_word(const struct chaos *chaos, remote_addr address) {
    if (address >= CHAOS_TYPES && address < CHAOS_TYPES + CHAOS_TYPE_COUNT * CHAOS_TYPE_BYTES)
        return chaos_type_word(chaos, address);
    uint64_t random = mix(address ^ chaos->seed);
    uint64_t drawn = random >> 32;
    if (address % 64 == chaos->layout->object.ob_type)
        return chaos_type(drawn);
    switch (random % 8) {
    case 0:
        return 0;
    case 1:
        return drawn % 16;
    case 2:
        return UINT64_MAX - drawn % 64;
    case 3:
        return UINT64_C(1) << drawn % 64;
    case 4:
        return random;
    case 5:
        return (UINT64_C(1) << drawn % 24) - 1;
    default:
        return CHAOS_OBJECTS + drawn % 100000 * 64;
    }
}

static enum status chaos_read(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    struct chaos *chaos = (struct chaos *)memory;
    for (size_t i = 0; i < size_bytes; i++) {
        uint64_t word = chaos_word(chaos, (address + i) & ~UINT64_C(7));
        ((uint8_t *)buffer)[i] = (uint8_t)(word >> (address + i) % 8 * 8);
    }
    return STATUS_OK;
}

static void test_chaos_ends_and_gives_characters(void **state) {
    (void)state;
    size_t count = 0;
    const struct layout *tables = layout_tables(&count);
    for (uint64_t seed = 0; seed < 20000; seed++) {
        const struct layout *layout = &tables[seed % count];
        struct chaos chaos = {.memory = {.read = chaos_read}, .layout = layout, .seed = mix(seed)};
        struct runtime runtime = {.live = &chaos.memory, .objects = &chaos.memory, .layout = *layout};
        struct buffer text;
        buffer_init(&text, 10000);
        assert_int_equal(repr_append(&runtime, CHAOS_OBJECTS + seed * 64, 500, &text), STATUS_OK);
        size_t characters = 0;
        for (size_t at = 0; at < text.size_bytes; characters++) {
            uint32_t character;
            size_t size_bytes = text_decode_utf8(text.data + at, text.size_bytes - at, &character);
            assert_true(size_bytes > 0);
            at += size_bytes;
        }
        assert_in_range(characters, 1, 500);
        buffer_release(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_cannot_be_read),
        cmocka_unit_test(test_type_names_are_repaired),
        cmocka_unit_test(test_times_of_numpy),
        cmocka_unit_test(test_cut_between_characters),
        cmocka_unit_test(test_text_that_does_not_fit_its_buffer_is_strobes_failure),
        cmocka_unit_test(test_cycles_and_depth),
        cmocka_unit_test(test_cells_in_cells_end),
        cmocka_unit_test(test_patience_ends),
        cmocka_unit_test(test_bases_in_a_circle_end),
        cmocka_unit_test(test_chaos_ends_and_gives_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
