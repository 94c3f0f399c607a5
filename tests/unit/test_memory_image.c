#include "base/memory_image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A target: bytes 0, 1, 2 ... from BASE on, nothing elsewhere. */
#define BASE UINT64_C(0x10000)
enum { TARGET_BYTES = 4096, GRANULE_BYTES = 16, HEADER_BYTES = 48 };

struct target {
    struct memory memory;
    unsigned reads;
};

static enum status read_target(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    struct target *target = (struct target *)memory;
    target->reads++;
    if (address < BASE || address + size_bytes > BASE + TARGET_BYTES)
        return STATUS_UNREADABLE;
    for (size_t i = 0; i < size_bytes; i++)
        ((uint8_t *)buffer)[i] = (uint8_t)(address - BASE + i);
    return STATUS_OK;
}

/* Records two places, the second across granules. */
static void record(struct buffer *file) {
    const uint64_t notes[MEMORY_IMAGE_NOTES] = {1, 2, 3, UINT64_MAX};
    struct target target = {.memory = {.read = read_target}};
    struct memory_recorder recorder;
    uint8_t bytes[64];
    buffer_init(file, 1 << 16);
    memory_recorder_init(&recorder, &target.memory, GRANULE_BYTES);
    assert_int_equal(memory_read(&recorder.memory, BASE + 1000, bytes, 40), STATUS_OK);
    assert_int_equal(memory_read(&recorder.memory, BASE + 3, bytes, 5), STATUS_OK);
    assert_int_equal(bytes[4], 7);
    /* Once read is not read again. */
    unsigned reads = target.reads;
    assert_int_equal(memory_read(&recorder.memory, BASE + 1, bytes, 14), STATUS_OK);
    assert_int_equal(target.reads, reads);
    assert_int_equal(memory_read(&recorder.memory, BASE + TARGET_BYTES - 4, bytes, 8), STATUS_UNREADABLE);
    assert_int_equal(memory_read(&recorder.memory, 0, bytes, 8), STATUS_UNREADABLE);
    assert_int_equal(memory_recorder_save(&recorder, notes, file), STATUS_OK);
    memory_recorder_release(&recorder);
}

static void test_what_was_read_is_kept(void **state) {
    (void)state;
    struct buffer file;
    struct memory_image image;
    uint8_t bytes[64];
    record(&file);
    assert_int_equal(memory_image_open(&image, (uint8_t *)file.data, file.size_bytes), STATUS_OK);
    assert_int_equal(image.region_count, 3);
    assert_int_equal(image.notes[0], 1);
    assert_true(image.notes[3] == UINT64_MAX);
    assert_int_equal(memory_read(&image.memory, BASE + 1000, bytes, 40), STATUS_OK);
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(bytes[i], (uint8_t)(1000 + i));
    assert_int_equal(memory_read(&image.memory, BASE, bytes, GRANULE_BYTES), STATUS_OK);
    assert_int_equal(memory_read(&image.memory, BASE, bytes, GRANULE_BYTES + 1), STATUS_UNREADABLE);
    assert_int_equal(memory_read(&image.memory, BASE + 15, bytes, 2), STATUS_UNREADABLE);
    assert_int_equal(memory_read(&image.memory, BASE + 990, bytes, 4), STATUS_UNREADABLE);
    assert_int_equal(memory_read(&image.memory, UINT64_MAX - 4, bytes, 4), STATUS_UNREADABLE);
    assert_int_equal(memory_read(&image.memory, 0, bytes, 1), STATUS_UNREADABLE);
    memory_image_release(&image);
    buffer_release(&file);
}

static void assert_damaged(uint8_t *bytes, size_t size_bytes) {
    struct memory_image image;
    assert_int_equal(memory_image_open(&image, bytes, size_bytes), STATUS_DAMAGED);
    assert_int_equal(image.region_count, 0);
}

static void test_cut_anywhere_is_damaged(void **state) {
    (void)state;
    struct buffer file;
    record(&file);
    for (size_t size_bytes = 0; size_bytes < file.size_bytes; size_bytes++)
        assert_damaged((uint8_t *)file.data, size_bytes);
    assert_int_equal(buffer_append_char(&file, 'x'), STATUS_OK);
    assert_damaged((uint8_t *)file.data, file.size_bytes);
    buffer_release(&file);
}

static void put_u64(struct buffer *file, size_t offset, uint64_t value) {
    memcpy(file->data + offset, &value, sizeof value);
}

/* What each of these 8-byte fields must not be. */
static void test_regions_must_be_in_order(void **state) {
    (void)state;
    static const struct {
        size_t offset;
        uint64_t value;
    } wrong[] = {
        {0, 0},                              /* magic */
        {HEADER_BYTES - 8, UINT64_MAX},      /* region count */
        {HEADER_BYTES - 8, 2},               /* fewer regions than bytes */
        {HEADER_BYTES, BASE + 2000},         /* behind the next */
        {HEADER_BYTES + 8, 0},               /* empty */
        {HEADER_BYTES + 8, UINT64_MAX},      /* more than there is */
        {HEADER_BYTES + 16, BASE + 8},       /* overlaps the first */
        {HEADER_BYTES + 16, BASE + 16},      /* touches the first */
        {HEADER_BYTES + 32, UINT64_MAX - 4}, /* ends behind the last address */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct buffer file;
        record(&file);
        put_u64(&file, wrong[i].offset, wrong[i].value);
        assert_damaged((uint8_t *)file.data, file.size_bytes);
        buffer_release(&file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_read_is_kept),
        cmocka_unit_test(test_cut_anywhere_is_damaged),
        cmocka_unit_test(test_regions_must_be_in_order),
    };
    return cmocka_run_group_tests_name("memory_image", tests, NULL, NULL);
}
