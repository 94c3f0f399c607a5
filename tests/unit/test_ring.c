#include "wire/ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include <cmocka.h>

enum { GUARD_BYTES = 64 };

/* A ring between two guards, which nothing may write to. */
struct fixture {
    struct wire_slot slot;
    alignas(8) uint8_t before[GUARD_BYTES];
    uint8_t bytes[WIRE_RING_BYTES];
    uint8_t behind[GUARD_BYTES];
    struct wire_ring ring;
};

static int set_up(void **state) {
    struct fixture *fixture = aligned_alloc(64, (sizeof *fixture + 63) & ~(size_t)63);
    assert_non_null(fixture);
    memset(fixture, 0, sizeof *fixture);
    memset(fixture->before, 0x5a, GUARD_BYTES);
    memset(fixture->behind, 0x5a, GUARD_BYTES);
    fixture->ring = (struct wire_ring){.slot = &fixture->slot, .bytes = fixture->bytes};
    *state = fixture;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *fixture = *state;
    for (int i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal(fixture->before[i], 0x5a);
        assert_int_equal(fixture->behind[i], 0x5a);
    }
    free(fixture);
    return 0;
}

/* A record of `size_bytes` whose every byte behind the header tells its number. False when it does not fit. */
static bool write_numbered(struct wire_ring *ring, uint64_t number, size_t size_bytes) {
    uint64_t position = wire_ring_position(ring);
    uint8_t *record = wire_ring_reserve(ring, &position, WIRE_SAMPLE, size_bytes);
    if (record == NULL)
        return false;
    memset(record + sizeof(struct wire_record), (int)(number & 0xff), size_bytes - sizeof(struct wire_record));
    wire_ring_commit(ring, position);
    return true;
}

static size_t size_of_number(uint64_t number) {
    return sizeof(struct wire_record) + number * 7919 % 4000;
}

/* Whether there was one; asserts that it is the record with this number, whole. */
static bool read_numbered(struct wire_ring *ring, uint64_t *position, uint64_t number) {
    bool damaged = true;
    const struct wire_record *record = wire_ring_next(ring, position, wire_ring_written(ring), &damaged);
    assert_false(damaged);
    if (record == NULL)
        return false;
    assert_int_equal(record->size_bytes, (size_of_number(number) + 7) / 8 * 8);
    assert_int_equal(record->type, WIRE_SAMPLE);
    const uint8_t *bytes = (const uint8_t *)record;
    for (size_t i = sizeof *record; i < size_of_number(number); i++)
        if (bytes[i] != (uint8_t)number)
            fail_msg("byte %zu of record %llu is %u", i, (unsigned long long)number, bytes[i]);
    wire_ring_release(ring, *position);
    return true;
}

static void test_records_come_out_as_they_went_in(void **state) {
    struct wire_ring *ring = &((struct fixture *)*state)->ring;
    uint64_t read = 0;
    for (uint64_t number = 0; number < 10000; number++) {
        assert_true(write_numbered(ring, number, size_of_number(number)));
        assert_true(read_numbered(ring, &read, number));
        assert_false(read_numbered(ring, &read, number + 1));
    }
    assert_true(read > 100 * (uint64_t)WIRE_RING_BYTES);
    assert_int_equal(atomic_load(&ring->slot->lost_records), 0);
}

static void test_a_full_ring_loses_the_new_and_counts_it(void **state) {
    struct wire_ring *ring = &((struct fixture *)*state)->ring;
    uint64_t written = 0;
    while (write_numbered(ring, written, size_of_number(written)))
        written++;
    assert_int_equal(atomic_load(&ring->slot->lost_records), 1);
    assert_true(wire_ring_written(ring) <= WIRE_RING_BYTES);
    assert_true(wire_ring_written(ring) > WIRE_RING_BYTES - 2 * 4008);
    uint64_t read = 0;
    for (uint64_t number = 0; number < written; number++)
        assert_true(read_numbered(ring, &read, number));
    assert_false(read_numbered(ring, &read, written));
    /* All of it is free again. */
    for (uint64_t number = 0; number < written - 1; number++)
        assert_true(write_numbered(ring, number, size_of_number(number)));
}

static void test_what_is_not_committed_is_not_there(void **state) {
    struct wire_ring *ring = &((struct fixture *)*state)->ring;
    uint64_t position = wire_ring_position(ring), read = 0;
    assert_non_null(wire_ring_reserve(ring, &position, WIRE_SAMPLE, 100));
    assert_non_null(wire_ring_reserve(ring, &position, WIRE_SAMPLE, 200));
    assert_int_equal(position, 104 + 200);
    assert_false(read_numbered(ring, &read, 0));
    wire_ring_commit(ring, position);
    bool damaged = true;
    const struct wire_record *first = wire_ring_next(ring, &read, wire_ring_written(ring), &damaged);
    assert_non_null(first);
    assert_int_equal(first->size_bytes, 104);
    assert_int_equal(read, 104);
}

static void test_nothing_is_larger_than_half_a_ring(void **state) {
    struct wire_ring *ring = &((struct fixture *)*state)->ring;
    uint64_t position = 0;
    assert_null(wire_ring_reserve(ring, &position, WIRE_SAMPLE, WIRE_RING_BYTES / 2 + 1));
    assert_null(wire_ring_reserve(ring, &position, WIRE_SAMPLE, SIZE_MAX - 8));
    assert_int_equal(position, 0);
    assert_non_null(wire_ring_reserve(ring, &position, WIRE_SAMPLE, WIRE_RING_BYTES / 2));
    assert_non_null(wire_ring_reserve(ring, &position, WIRE_SAMPLE, WIRE_RING_BYTES / 2));
    assert_null(wire_ring_reserve(ring, &position, WIRE_SAMPLE, 8));
}

static uint64_t next_random(uint64_t *random) {
    *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *random >> 16;
}

/* Anything at all in the slot and in the ring: the reader neither leaves the ring nor goes on for ever. */
static void test_reader_survives_any_bytes(void **state) {
    struct fixture *fixture = *state;
    uint64_t random = 1;
    for (int round = 0; round < 3000; round++) {
        for (size_t i = 0; i < WIRE_RING_BYTES; i += 8) {
            struct wire_record header = {.size_bytes = (uint32_t)(next_random(&random) % 64 * 8),
                                         .type = (uint16_t)(next_random(&random) % 4)};
            if (round % 2 == 0 || next_random(&random) % 4096 == 0)
                header.size_bytes = (uint32_t)next_random(&random);
            memcpy(fixture->bytes + i, &header, sizeof header);
        }
        uint64_t position = next_random(&random) % 8 == 0 ? next_random(&random) : next_random(&random) & ~UINT64_C(7);
        uint64_t written = position + next_random(&random) % (2 * WIRE_RING_BYTES);
        if (round % 3 != 0)
            written &= ~UINT64_C(7);
        bool damaged = false;
        const struct wire_record *record;
        size_t count = 0;
        while ((record = wire_ring_next(&fixture->ring, &position, written, &damaged)) != NULL) {
            const uint8_t *bytes = (const uint8_t *)record;
            assert_true(bytes >= fixture->bytes);
            assert_true(bytes + record->size_bytes <= fixture->bytes + WIRE_RING_BYTES);
            assert_true(++count <= WIRE_RING_BYTES / sizeof *record);
        }
        assert_true(damaged || position == written);
    }
}

/* Whatever strobe writes: the writer's records stay in the ring (the guards say so). */
static void test_writer_survives_any_positions(void **state) {
    struct fixture *fixture = *state;
    uint64_t random = 1;
    for (int round = 0; round < 100000; round++) {
        atomic_store(&fixture->slot.read, next_random(&random));
        if (next_random(&random) % 2 == 0) {
            uint64_t near = next_random(&random) % (2 * WIRE_RING_BYTES);
            atomic_store(&fixture->slot.written, near);
            atomic_store(&fixture->slot.read, near - next_random(&random) % 4096);
        }
        size_t size = size_of_number((uint64_t)round);
        uint64_t position = wire_ring_position(&fixture->ring);
        uint8_t *record = wire_ring_reserve(&fixture->ring, &position, WIRE_SAMPLE, size);
        if (record == NULL)
            continue;
        assert_true(record >= fixture->bytes && record + size <= fixture->bytes + WIRE_RING_BYTES);
        assert_int_equal((uintptr_t)record % 8, 0);
    }
}

enum { EXCHANGED = 200000 };

static int write_all(void *argument) {
    struct wire_ring *ring = argument;
    for (uint64_t number = 0; number < EXCHANGED;) {
        if (write_numbered(ring, number, size_of_number(number)))
            number++;
        else
            thrd_yield();
    }
    return 0;
}

static void test_two_threads(void **state) {
    struct wire_ring *ring = &((struct fixture *)*state)->ring;
    thrd_t writer;
    assert_int_equal(thrd_create(&writer, write_all, ring), thrd_success);
    uint64_t read = 0;
    for (uint64_t number = 0; number < EXCHANGED;) {
        if (read_numbered(ring, &read, number))
            number++;
        else
            thrd_yield();
    }
    assert_int_equal(thrd_join(writer, NULL), thrd_success);
}

int main(void) {
#define RING_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        RING_TEST(test_records_come_out_as_they_went_in),
        RING_TEST(test_a_full_ring_loses_the_new_and_counts_it),
        RING_TEST(test_what_is_not_committed_is_not_there),
        RING_TEST(test_nothing_is_larger_than_half_a_ring),
        RING_TEST(test_reader_survives_any_bytes),
        RING_TEST(test_writer_survives_any_positions),
        RING_TEST(test_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
